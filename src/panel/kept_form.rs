//! A form that waits until its user has signed in again, or has confirmed the password. The page in between carries it
//! in hidden fields. Afterwards it is sent only if the user agrees.

use askama::Template;
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE};
use hyper::{Method, StatusCode};

use super::cookie::Theme;
use super::form::{Form, own_address};
use super::html;
use super::layout::BasePage;
use super::page_error::PageError;
use crate::http::answer::Answer;
use crate::http::route::Call;

/// Maximum size, in bytes, of a kept form.
const BYTES_MAX: usize = 8 * 1024;
/// Content type of a kept form. Uploads are not kept.
const URL_ENCODED: &str = "application/x-www-form-urlencoded";
/// Parts of the names of fields that are secrets of the sign-in.
const SECRETS: [&str; 4] = ["password", "code", "secret", "token"];

/// A form that waits.
pub(super) struct KeptForm {
    /// Path that the form posts to.
    pub(super) path: String,
    /// The form's fields, encoded.
    pub(super) body: String,
}

/// Page that sends the kept form.
#[derive(Template)]
#[template(path = "continue.html")]
struct ContinuePage<'a> {
    base: BasePage,
    title: &'static str,
    path: &'a str,
    fields: Vec<(String, String)>,
    next: &'a str,
}

impl KeptForm {
    /// Whether the request announces a form that is small enough.
    pub(super) fn is_announced_by(call: &Call<()>) -> bool {
        let length = call.header(&CONTENT_LENGTH).and_then(|length| length.parse().ok());
        is_form(call) && length.is_some_and(|length: usize| (1..=BYTES_MAX).contains(&length))
    }

    /// Returns the form of a request, unless it is too large or an upload.
    pub(super) fn of_request(call: &Call<()>) -> Option<Self> {
        let is_kept = is_form(call) && (1..=BYTES_MAX).contains(&call.body().len());
        let body = std::str::from_utf8(call.body()).ok().filter(|_| is_kept)?;
        Some(Self { path: own_address(call.path()).to_owned(), body: body.to_owned() })
    }

    /// Returns the form that another form carries.
    pub(super) fn carried_by(form: &Form) -> Option<Self> {
        let (path, body) = (own_address(form.given("to")?), form.text("form"));
        (body.len() <= BYTES_MAX).then(|| Self { path: path.to_owned(), body: body.to_owned() })
    }

    /// Whether it has a password or another secret of the sign-in, which no page repeats.
    pub(super) fn has_secret(&self) -> bool {
        let fields = Form::read(self.body.as_bytes()).into_fields();
        fields.iter().any(|(name, _)| SECRETS.iter().any(|secret| name.contains(secret)))
    }

    /// Renders the page that sends the form. Those who don't continue leave to `next`.
    ///
    /// # Errors
    /// Fails if the page can't be rendered.
    pub(super) fn answer(&self, theme: Theme, title: &'static str, next: &str) -> Result<Answer, PageError> {
        let fields = Form::read(self.body.as_bytes()).into_fields();
        let page = ContinuePage { base: BasePage::new(title, theme), title, path: &self.path, fields, next };
        html::page(StatusCode::OK, &page)
    }
}

fn is_form(call: &Call<()>) -> bool {
    call.method == Method::POST && call.header(&CONTENT_TYPE).unwrap_or_default().starts_with(URL_ENCODED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_with_secrets_of_the_sign_in_are_recognised() {
        let has_secret = |body: &str| KeptForm { path: "/x".to_owned(), body: body.to_owned() }.has_secret();
        for body in ["current_password=a", "a=1&code=123456", "secret=x", "token=y"] {
            assert!(has_secret(body), "{body}");
        }
        assert!(!has_secret("name=password&url=https%3A%2F%2Fhooks.example"));
    }
}
