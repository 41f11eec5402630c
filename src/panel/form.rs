//! Form fields: decoded names and values of bounded size. The functions that check API bodies also check the values.

use hyper::Method;
use serde_json::{Map, Value};
use url::form_urlencoded;

use super::page_error::PageError;
use crate::base::secret::Secret;
use crate::http::body::FORM_BYTES;
use crate::http::error::ApiError;
use crate::http::route::Call;

/// Maximum number of fields in a form.
const FIELDS_MAX: usize = 200;
/// Maximum length, in bytes, of a path to return to after signing in.
pub(super) const NEXT_MAX: usize = 2000;

/// Fields of one form. The type does not implement `Debug`, because fields may contain passwords.
pub(super) struct Form(Vec<(String, String)>);

impl Form {
    /// Reads the form in a request body.
    ///
    /// # Errors
    /// 413 if the body is larger than any form of the panel.
    pub(super) fn of(call: &Call<()>) -> Result<Self, PageError> {
        if call.body().len() > FORM_BYTES {
            return Err(ApiError::PayloadTooLarge(FORM_BYTES).into());
        }
        Ok(Self::read(call.body()))
    }

    /// Reads the form in a request's query: a search, a filter, a tab.
    pub(super) fn of_query(call: &Call<()>) -> Self {
        debug_assert!(call.method == Method::GET || call.method == Method::HEAD || call.method == Method::POST);
        let query = call.path_and_query().split_once('?').map_or("", |(_, query)| query);
        Self::read(query.as_bytes())
    }

    /// Decodes a form.
    pub(super) fn read(bytes: &[u8]) -> Self {
        Self(form_urlencoded::parse(bytes).into_owned().take(FIELDS_MAX).collect())
    }

    /// Returns the value of a field, or an empty string. If a name occurs twice, the first value counts.
    pub(super) fn text(&self, name: &str) -> &str {
        self.given(name).unwrap_or_default()
    }

    /// Returns the value of a field, if it isn't empty.
    pub(super) fn given(&self, name: &str) -> Option<&str> {
        self.field(name).filter(|value| !value.is_empty())
    }

    /// Returns the value of a field that the form has, even if it is empty.
    pub(super) fn field(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.trim())
    }

    /// Returns the values of a field that can occur many times, such as a group of boxes.
    pub(super) fn all(&self, name: &str) -> Vec<&str> {
        self.0.iter().filter(|(known, _)| known == name).map(|(_, value)| value.trim()).collect()
    }

    /// Returns all fields in their order.
    pub(super) fn into_fields(self) -> Vec<(String, String)> {
        self.0
    }

    /// Returns the non-empty fields with these names as an API body.
    pub(super) fn as_body(&self, names: &[&str]) -> Map<String, Value> {
        let given = |name: &&str| self.given(name).map(|text| ((*name).to_owned(), Value::from(text)));
        names.iter().filter_map(given).collect()
    }

    /// Returns the value of a field unchanged, including white space.
    pub(super) fn secret(&self, name: &str) -> Secret {
        let found = self.0.iter().find(|(known, _)| known == name);
        Secret::new(found.map_or("", |(_, value)| value.as_str()))
    }

    /// Whether a box is ticked.
    pub(super) fn is_ticked(&self, name: &str) -> bool {
        self.given(name).is_some()
    }
}

/// Returns `text` if it is a path of our own, to continue there. For foreign, missing and overlong addresses it returns
/// the overview, because a long one would be repeated to visitors who are not signed in.
pub(super) fn own_address(text: &str) -> &str {
    if text.len() > NEXT_MAX {
        return "/";
    }
    let is_path = text.starts_with('/') && !text[1..].starts_with(['/', '\\']);
    if is_path && text.bytes().all(|byte| byte.is_ascii_graphic()) { text } else { "/" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_is_decoded_and_bounded() {
        let form = Form::read(b"a=+x%20&b=&c=1&c=2&p=+p+");
        assert_eq!((form.text("a"), form.given("b"), form.text("z")), ("x", None, ""));
        assert_eq!((form.secret("p").expose_text(), form.all("c")), (" p ", vec!["1", "2"]));
        assert!(form.is_ticked("c") && !form.is_ticked("b"));
        assert_eq!(Form::read("a=1&".repeat(300).as_bytes()).0.len(), FIELDS_MAX);
    }

    #[test]
    fn redirects_never_leave_the_panel() {
        assert_eq!(own_address("/messages?q=a%20b#c"), "/messages?q=a%20b#c");
        for foreign in ["//evil.example", "/\\evil.example", "https://evil.example", "", "/a\nb", "javascript:x"] {
            assert_eq!(own_address(foreign), "/", "{foreign}");
        }
        assert_eq!(own_address(&format!("/{}", "a".repeat(NEXT_MAX))), "/");
    }
}
