//! A message in the form of another service's client, converted field by field to the body of `POST /v1/messages`.
//!
//! Both codecs fill it. Errors of its form are recorded under the client's field names. [`Submission::lift`] checks
//! everything else, and its errors are translated.

use serde_json::{Map, Value};

use super::failure::CompatError;
use super::mailbox::{Mailbox, split};
use super::names::Names;
use crate::domain::address::Address;
use crate::domain::fields::Fields;
use crate::domain::header::HeaderValue;
use crate::domain::limits::FROM_NAME_CHARACTERS;
use crate::domain::submission::{Submission, SubmissionLimits};
use crate::domain::text::{has_control, is_longer};
use crate::domain::unsubscribe_url::UnsubscribeUrl;
use crate::domain::violation::Violations;

/// Hint for a second recipient, and for cc and bcc.
pub(super) const ONE_RECIPIENT: &str = "takes one address: send one request per recipient";
/// Hint for copies.
pub(super) const NO_COPIES: &str = "is not supported: send one request per recipient";
/// Hint for templates.
pub(super) const NO_TEMPLATES: &str = "templates are not supported: render the message before sending it";
/// Hint for tracking.
pub(super) const NO_TRACKING: &str = "tracking is not supported: leave it out";
/// Value of the one-click header (RFC 8058).
const ONE_CLICK: &str = "List-Unsubscribe=One-Click";
/// Maximum number of bytes in a word that a header field can contain unencoded.
const WORD_BYTES_MAX: usize = 900;

/// A message under construction.
pub(super) struct MessageDraft {
    /// The body of `POST /v1/messages`.
    ours: Map<String, Value>,
    headers: Map<String, Value>,
    metadata: Map<String, Value>,
    /// Sender and recipient as the client wrote them.
    from_as_given: Option<String>,
    to_as_given: Option<String>,
    to_name: Option<String>,
    list_unsubscribe: Option<String>,
    names: Names,
}

/// A valid message, ready to submit.
pub(super) struct ValidMessage {
    pub(super) submission: Submission,
    pub(super) names: Names,
    /// Recipient as the client wrote it.
    pub(super) to_as_given: String,
}

/// Returns whether a value counts as absent. Clients send such values for unset fields.
pub(super) fn is_absent(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Returns the members of `object` that are not absent.
pub(super) fn present(mut object: Map<String, Value>) -> Map<String, Value> {
    object.retain(|_, value| !is_absent(value));
    object
}

impl MessageDraft {
    pub(super) fn new(names: Names) -> Self {
        Self {
            ours: Map::new(),
            headers: Map::new(),
            metadata: Map::new(),
            from_as_given: None,
            to_as_given: None,
            to_name: None,
            list_unsubscribe: None,
            names,
        }
    }

    /// Copies a field unchanged.
    pub(super) fn copy(&mut self, fields: &mut Fields<'_>, theirs: &'static str, ours: &str) {
        if let Some(value) = fields.value(theirs) {
            self.ours.insert(ours.to_owned(), value);
        }
    }

    /// Converts the body texts. At least one is required.
    pub(super) fn bodies(&mut self, fields: &mut Fields<'_>, text: &'static str, html: &'static str) {
        self.copy(fields, text, "text");
        self.copy(fields, html, "html");
        if !self.ours.contains_key("text") && !self.ours.contains_key("html") {
            fields.fault(text, format!("is required: give {text}, {html}, or both"));
            self.ours.insert("text".to_owned(), " ".into());
        }
    }

    /// Converts the sender. Its display name becomes `from_name`.
    pub(super) fn sender(&mut self, fields: &mut Fields<'_>, field: &'static str) {
        let Some(text) = fields.text(field) else { return };
        match Mailbox::parse(&text) {
            Some(mailbox) => {
                self.ours.insert("from".to_owned(), mailbox.address.into());
                self.ours.extend(mailbox.name.map(|name| ("from_name".to_owned(), name.into())));
            }
            None => fields.fault(field, "takes one address"),
        }
        self.from_as_given = Some(text);
    }

    /// Converts the only recipient. Its display name goes to the To header.
    pub(super) fn recipient(&mut self, fields: &mut Fields<'_>, field: &'static str, text: String) {
        match Mailbox::parse(&text) {
            Some(mailbox) => {
                let bad = |name: &String| is_longer(name, FROM_NAME_CHARACTERS) || has_control(name);
                if mailbox.name.as_ref().is_some_and(bad) {
                    let most = FROM_NAME_CHARACTERS;
                    fields.fault(
                        field,
                        format!("the name must have at most {most} characters, without control characters"),
                    );
                }
                self.ours.insert("to".to_owned(), mailbox.address.into());
                self.to_name = mailbox.name;
            }
            None => fields.fault(field, ONE_RECIPIENT),
        }
        self.to_as_given = Some(text);
    }

    /// Converts the Reply-To addresses, each with an optional name.
    pub(super) fn reply_to(&mut self, fields: &mut Fields<'_>, field: &'static str, given: &[String]) {
        let mut mailboxes = Vec::new();
        for text in given.iter().flat_map(|text| split(text)) {
            let mailbox = Mailbox::parse(text);
            let parsed = mailbox.as_ref().map(|mailbox| mailbox.address.parse::<Address>());
            match (mailbox, parsed) {
                (Some(mailbox), Some(Ok(_))) => mailboxes.push(mailbox.to_header()),
                (_, Some(Err(why))) => fields.fault(field, why.to_string()),
                (Some(_) | None, None | Some(Ok(_))) => fields.fault(field, "must be addresses"),
            }
        }
        if self.headers.keys().any(|name| name.eq_ignore_ascii_case("reply-to")) {
            fields.fault(field, "is given as a header too");
        } else if !mailboxes.is_empty() {
            self.names.moved("headers.Reply-To", field);
            self.headers.insert("Reply-To".to_owned(), mailboxes.join(", ").into());
        }
    }

    /// Converts one header.
    pub(super) fn header(&mut self, fields: &mut Fields<'_>, list: &str, name: String, value: Value) {
        if value.is_null() {
            return;
        }
        if self.headers.contains_key(&name) {
            fields.fault(&format!("{list}.{name}"), "is given twice");
        }
        self.headers.insert(name, value);
    }

    /// Converts one metadata pair from the client's field `field`.
    pub(super) fn pair(&mut self, fields: &mut Fields<'_>, field: &str, name: String, value: Value) {
        if value.is_null() {
            return;
        }
        self.names.moved(format!("metadata.{name}"), fields.path(field));
        if self.metadata.insert(name, value).is_some() {
            fields.fault(field, "is given twice");
        }
    }

    /// Records that our field comes from the client's field `theirs`.
    pub(super) fn moved(&mut self, ours: String, theirs: String) {
        self.names.moved(ours, theirs);
    }

    /// Sets the attachments, which are already in our form.
    pub(super) fn attachments(&mut self, attachments: Vec<Value>) {
        if !attachments.is_empty() {
            self.ours.insert("attachments".to_owned(), attachments.into());
        }
    }

    /// Treats List-Unsubscribe with a URL as `unsubscribe_url`. List-Unsubscribe-Post belongs to it.
    fn unsubscribe(&mut self, faults: &mut Violations) {
        let named = |name: &str| self.headers.keys().find(|key| key.eq_ignore_ascii_case(name)).cloned();
        let (list, post) = (named("list-unsubscribe"), named("list-unsubscribe-post"));
        let Some(list) = list else { return };
        let Some(given) = self.headers.get(&list).and_then(Value::as_str).map(str::to_owned) else { return };
        let Some(url) = unsubscribe_url(&given) else { return };
        let parsed = url.parse::<UnsubscribeUrl>();
        if let Some(post) = post {
            let said = self.headers.remove(&post);
            let is_right = said.as_ref().and_then(Value::as_str).is_some_and(|said| said.trim() == ONE_CLICK);
            let field = self.names.name(&format!("headers.{post}"));
            if !is_right {
                faults.add(field, format!("must be {ONE_CLICK}"));
            } else if parsed.as_ref().is_ok_and(|url| !url.is_https()) {
                faults.add(field, "needs an https URL in List-Unsubscribe");
            }
        }
        let field = self.names.name(&format!("headers.{list}"));
        faults.check(&field, HeaderValue::parse(given.clone()));
        self.names.moved("unsubscribe_url", field);
        self.ours.insert("unsubscribe_url".to_owned(), url.into());
        self.headers.remove(&list);
        self.list_unsubscribe = Some(given);
    }

    /// Returns the message if it is valid. `faults` are the errors of its form.
    ///
    /// # Errors
    /// All errors, under the client's field names.
    pub(super) fn lift(
        mut self,
        mut faults: Violations,
        limits: SubmissionLimits,
    ) -> Result<ValidMessage, CompatError> {
        self.unsubscribe(&mut faults);
        if !self.headers.is_empty() {
            self.ours.insert("headers".to_owned(), self.headers.into());
        }
        if !self.metadata.is_empty() {
            self.ours.insert("metadata".to_owned(), self.metadata.into());
        }
        let mut opening = Vec::new();
        let lifted = match Submission::lift(self.ours, limits) {
            Ok(submission) => Some(submission),
            Err(ours) => {
                for (field, given) in [("from", &self.from_as_given), ("to", &self.to_as_given)] {
                    let name = self.names.name(field);
                    let is_new = ours.by_field().contains_key(field) && !faults.by_field().contains_key(&name);
                    opening.extend(given.as_ref().filter(|_| is_new).map(|given| invalid_address(&name, given)));
                }
                let theirs = self.names.translated(&ours);
                let earlier = faults.clone();
                for (field, said) in
                    theirs.by_field().iter().filter(|(field, _)| !earlier.by_field().contains_key(*field))
                {
                    said.iter().for_each(|said| faults.add(field.as_str(), said.as_str()));
                }
                None
            }
        };
        let (to_name, names) = (self.to_name, self.names);
        let list_unsubscribe = self.list_unsubscribe.filter(|given| is_header_text(given));
        let list_unsubscribe = list_unsubscribe.and_then(|given| HeaderValue::parse(given).ok());
        let ready = faults.or(|| {
            let submission = Submission { to_name, list_unsubscribe, ..lifted? };
            Some(ValidMessage { submission, names, to_as_given: self.to_as_given.unwrap_or_default() })
        });
        ready.map_err(|violations| CompatError::from(violations).opened_by(opening))
    }
}

/// Returns the message for an invalid address, as Postmark's clients parse it.
fn invalid_address(field: &str, given: &str) -> String {
    format!("Invalid '{field}' address: '{given}'.")
}

/// Returns whether a header can contain the text without encoding.
fn is_header_text(text: &str) -> bool {
    let printable = text.bytes().all(|c| c == b' ' || c.is_ascii_graphic());
    printable && text.split(' ').all(|word| word.len() <= WORD_BYTES_MAX)
}

/// Returns the URL of a List-Unsubscribe header; https takes precedence over http.
fn unsubscribe_url(value: &str) -> Option<String> {
    let bracketed = value.split('<').skip(1).filter_map(|rest| rest.split_once('>')).map(|(inside, _)| inside);
    let bare = (!value.contains('<')).then_some(value);
    let urls: Vec<&str> = bracketed.chain(bare).map(str::trim).collect();
    let with = |scheme: &str| {
        let fits = |url: &&&str| url.get(..scheme.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(scheme));
        urls.iter().find(fits).map(|url| (*url).to_owned())
    };
    with("https://").or_else(|| with("http://"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_url_is_found_among_other_list_unsubscribe_values() {
        for (given, url) in [
            ("<https://example.com/u>", Some("https://example.com/u")),
            ("<mailto:u@example.com>, <HTTPS://example.com/u?a=b,c>", Some("HTTPS://example.com/u?a=b,c")),
            ("<http://example.com/a>, <https://example.com/b>", Some("https://example.com/b")),
            ("https://example.com/u", Some("https://example.com/u")),
            ("<http://example.com/a>", Some("http://example.com/a")),
            ("<mailto:u@example.com>", None),
            ("NO", None),
        ] {
            assert_eq!(unsubscribe_url(given).as_deref(), url, "{given}");
        }
    }
}
