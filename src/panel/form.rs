//! Fields of a form: names and values, decoded, of bounded size. Their meaning is checked by the functions that check
//! the API's bodies.

use hyper::Method;
use serde_json::{Map, Value};
use url::form_urlencoded;

use super::page_error::Fault;
use crate::base::secret::Secret;
use crate::http::body::FORM_BYTES;
use crate::http::error::ApiError;
use crate::http::route::Call;

/// Fields of a form at most.
const FIELDS_MAX: usize = 200;
/// The longest path, in bytes, to which a visitor is sent after signing in.
pub(super) const NEXT_MAX: usize = 2000;

/// The fields of one form. No formatter shows them: passwords are among them.
pub(super) struct Form(Vec<(String, String)>);

impl Form {
    /// The form in a request's body.
    ///
    /// # Errors
    /// 413 where it is larger than any of our forms.
    pub(super) fn of(call: &Call<()>) -> Result<Self, Fault> {
        if call.body().len() > FORM_BYTES {
            return Err(ApiError::PayloadTooLarge(FORM_BYTES).into());
        }
        Ok(Self::read(call.body()))
    }

    /// The form in a request's query: a search, a filter, a tab.
    pub(super) fn of_query(call: &Call<()>) -> Self {
        debug_assert!(call.method == Method::GET || call.method == Method::HEAD || call.method == Method::POST);
        let query = call.path_and_query().split_once('?').map_or("", |(_, query)| query);
        Self::read(query.as_bytes())
    }

    /// The form that these bytes are.
    pub(super) fn read(bytes: &[u8]) -> Self {
        Self(form_urlencoded::parse(bytes).into_owned().take(FIELDS_MAX).collect())
    }

    /// The value of a field; empty where it is not there. Of a name that is given twice, the first.
    pub(super) fn text(&self, name: &str) -> &str {
        self.given(name).unwrap_or_default()
    }

    /// The value of a field that says something.
    pub(super) fn given(&self, name: &str) -> Option<&str> {
        self.field(name).filter(|value| !value.is_empty())
    }

    /// The value of a field that the form has, empty or not.
    pub(super) fn field(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.trim())
    }

    /// The values of a field that may be given many times, such as a group of boxes.
    pub(super) fn all(&self, name: &str) -> Vec<&str> {
        self.0.iter().filter(|(known, _)| known == name).map(|(_, value)| value.trim()).collect()
    }

    /// The members of these names that say something, as the body that would ask the API for the same.
    pub(super) fn as_body(&self, names: &[&str]) -> Map<String, Value> {
        let given = |name: &&str| self.given(name).map(|text| ((*name).to_owned(), Value::from(text)));
        names.iter().filter_map(given).collect()
    }

    /// The value of a field as it was typed, white space too.
    pub(super) fn secret(&self, name: &str) -> Secret {
        let found = self.0.iter().find(|(known, _)| known == name);
        Secret::new(found.map_or("", |(_, value)| value.as_str()))
    }

    /// Whether a box is ticked.
    pub(super) fn is_ticked(&self, name: &str) -> bool {
        self.given(name).is_some()
    }
}

/// An address of our own to go on to; the overview where it is another's, none, or too long to be repeated to whoever
/// is not signed in.
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
    fn nobody_is_led_elsewhere() {
        assert_eq!(own_address("/messages?q=a%20b#c"), "/messages?q=a%20b#c");
        for foreign in ["//evil.example", "/\\evil.example", "https://evil.example", "", "/a\nb", "javascript:x"] {
            assert_eq!(own_address(foreign), "/", "{foreign}");
        }
        assert_eq!(own_address(&format!("/{}", "a".repeat(NEXT_MAX))), "/");
    }
}
