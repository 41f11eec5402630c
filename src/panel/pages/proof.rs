//! Password confirmation, with the second factor if the user has one, before secrets are shown or access is granted. It
//! is valid for 15 minutes, as after a sign-in. A form that needs it is kept in the page meanwhile, and is sent
//! afterwards. A new sign-in at the identity provider leaves the page, so the service keeps the form for it.

use askama::Template;
use hyper::header::CONTENT_TYPE;
use hyper::{Method, StatusCode};
use url::form_urlencoded;

use super::login::LoginRefusal;
use super::oidc::ProviderLink;
use crate::base::secret::Secret;
use crate::engine::oidc;
use crate::engine::ports::Clock as _;
use crate::engine::sign_in::IdentityProof;
use crate::http::answer::Answer;
use crate::http::route::Call;
use crate::net::clock::SystemClock;
use crate::panel::cookie::Theme;
use crate::panel::form::{Form, own_address};
use crate::panel::html;
use crate::panel::layout::BasePage;
use crate::panel::page_error::PageError;
use crate::panel::page_guard::Visit;

const TITLE: &str = "Your password, please";
/// Maximum size, in bytes, of a form that is kept until the password is confirmed.
const KEPT_MAX: usize = 8 * 1024;
/// Content type of a kept form. Uploads are not kept.
const URL_ENCODED: &str = "application/x-www-form-urlencoded";

/// A form that waits for the confirmation of the password.
struct KeptForm {
    /// Path that the form posts to.
    path: String,
    /// The form's fields, encoded.
    body: String,
}

impl KeptForm {
    /// Returns the form of a request, unless it is too large or an upload.
    fn of_request(call: &Call<()>) -> Option<Self> {
        let kind = call.header(&CONTENT_TYPE).unwrap_or_default();
        let is_form = call.method == Method::POST && kind.starts_with(URL_ENCODED) && call.body().len() <= KEPT_MAX;
        let body = std::str::from_utf8(call.body()).ok().filter(|body| is_form && !body.is_empty())?;
        Some(Self { path: own_address(call.path()).to_owned(), body: body.to_owned() })
    }

    /// Returns the form that the confirmation's own form carries.
    fn carried_by(form: &Form) -> Option<Self> {
        let (path, body) = (own_address(form.given("to")?), form.text("form"));
        (body.len() <= KEPT_MAX).then(|| Self { path: path.to_owned(), body: body.to_owned() })
    }

    /// Keeps the form while the user signs in again at the identity provider. Returns the path that continues with it,
    /// or `None` without a provider.
    fn keep(&self, visit: &Visit<'_>, next: &str) -> Option<String> {
        let forms = &visit.api.engine.oidc.get()?.forms;
        let form = oidc::KeptForm { path: self.path.clone(), body: Secret::new(self.body.as_str()) };
        let name = forms.keep(visit.user().id, form, SystemClock::new().now(), &*visit.api.engine.entropy);
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.append_pair("name", &name).append_pair("next", next);
        Some(format!("/login/confirm/form?{}", query.finish()))
    }
}

#[derive(Template)]
#[template(path = "proof.html")]
struct ProofPage<'a> {
    base: BasePage,
    email: &'a str,
    has_totp: bool,
    next: &'a str,
    refused: Option<String>,
    provider: Option<ProviderLink>,
    kept: Option<KeptForm>,
}

/// Page after the confirmation or the new sign-in that sends the kept form.
#[derive(Template)]
#[template(path = "proved.html")]
struct ProvedPage<'a> {
    base: BasePage,
    title: &'static str,
    path: &'a str,
    fields: Vec<(String, String)>,
    next: &'a str,
}

impl<'a> ProofPage<'a> {
    fn new(visit: &'a Visit<'_>, next: &'a str, refused: Option<String>, kept: Option<KeptForm>) -> Self {
        let user = visit.user();
        let base = BasePage::new(TITLE, Theme::of(&visit.call.headers));
        let form = kept.as_ref().and_then(|kept| kept.keep(visit, next));
        let provider = ProviderLink::new(visit.api, form.as_deref().unwrap_or(next), true);
        Self { base, email: user.email.as_given(), has_totp: user.totp.is_some(), next, refused, provider, kept }
    }
}

/// `GET /login/confirm`.
pub(in crate::panel) async fn show(visit: Visit<'_>) -> Result<Answer, PageError> {
    let query = Form::of_query(&visit.call);
    html::page(StatusCode::OK, &ProofPage::new(&visit, own_address(query.text("next")), None, None))
}

/// Asks for the password before a page that needs it. A form is kept in the page; without one the visitor is redirected
/// to the confirmation, and then to `next`.
pub(in crate::panel) fn ask_first(visit: &Visit<'_>, next: String) -> Result<Answer, PageError> {
    match KeptForm::of_request(&visit.call) {
        Some(kept) => html::page(StatusCode::FORBIDDEN, &ProofPage::new(visit, &next, None, Some(kept))),
        None => Err(PageError::ProveFirst(next)),
    }
}

/// `POST /login/confirm`.
pub(in crate::panel) async fn attempt(visit: Visit<'_>) -> Result<Answer, PageError> {
    let form = Form::of(&visit.call)?;
    let (next, password) = (own_address(form.text("next")), form.secret("password"));
    let shown = IdentityProof { password: &password, code: form.text("code") };
    match visit.api.engine.prove(&visit.visitor, shown, SystemClock::new().now()).await {
        Ok(()) => match KeptForm::carried_by(&form) {
            Some(kept) => proved(&visit, "Password confirmed", (&kept.path, kept.body.as_bytes()), next),
            None => Ok(html::redirect(next)),
        },
        Err(stop) => {
            let wrong = match &visit.user().totp {
                Some(_) => "Wrong password or code. Each code works once.",
                None => "Wrong password.",
            };
            let refused = LoginRefusal::of(stop, wrong)?;
            refused.answer(&ProofPage::new(&visit, next, Some(refused.sentence.clone()), KeptForm::carried_by(&form)))
        }
    }
}

/// `GET /login/confirm/form`: continues with a kept form after a new sign-in at the identity provider.
pub(in crate::panel) async fn resume(visit: Visit<'_>) -> Result<Answer, PageError> {
    if !visit.is_proved() {
        return Err(PageError::ProveFirst(visit.call.path_and_query().to_owned()));
    }
    let query = Form::of_query(&visit.call);
    let (next, now) = (own_address(query.text("next")), SystemClock::new().now());
    let provider = visit.api.engine.oidc.get();
    match provider.and_then(|oidc| oidc.forms.take(visit.user().id, query.text("name"), now)) {
        Some(form) => proved(&visit, "Signed in again", (&form.path, form.body.expose()), next),
        None => Ok(html::redirect(next)),
    }
}

/// Renders the page that sends the form with this path and these encoded fields.
fn proved(
    visit: &Visit<'_>,
    title: &'static str,
    (path, body): (&str, &[u8]),
    next: &str,
) -> Result<Answer, PageError> {
    let base = BasePage::new(title, Theme::of(&visit.call.headers));
    let fields = Form::read(body).into_fields();
    html::page(StatusCode::OK, &ProvedPage { base, title, path, fields, next })
}
