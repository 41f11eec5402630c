//! One message as submitted (contract 3): raw JSON parsed into checked types.
//!
//! Called by the route of POST /v1/messages with an object that was already decoded strictly. All violations are
//! reported at once. Checks that need the account (its domains, the stream's need of an unsubscribe URL) come later.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::address::{Address, InvalidAddress};
use super::attachment::Attachment;
use super::fields::Fields;
use super::foreign_fields::{ONE_RECIPIENT, USE_FROM_NAME, instead_of};
use super::header::{CustomHeaders, HeaderValue, Unsubscribe};
use super::limits::{
    ATTACHMENTS_COUNT, BODY_BYTES, EXPIRES_AHEAD_SECONDS, FROM_NAME_CHARACTERS, METADATA_COUNT,
    METADATA_KEY_CHARACTERS, METADATA_VALUE_CHARACTERS, SUBJECT_CHARACTERS,
};
use super::text::{has_control, is_longer};
use super::unsubscribe_url::UnsubscribeUrl;
use super::violation::Violations;
use crate::base::time::Timestamp;

/// Fields that `raw` contains and therefore excludes (contract 3).
const EXCLUDED_BY_RAW: [&str; 6] = ["text", "html", "subject", "headers", "from_name", "attachments"];

/// A complete, checked submission.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Submission {
    /// The sender.
    pub from: Address,
    /// The sender's display name.
    pub from_name: Option<String>,
    /// The one recipient.
    pub to: Address,
    /// The recipient's display name, only for the To header.
    pub to_name: Option<String>,
    /// Content of the message.
    pub content: Content,
    /// URL for unsubscribing.
    pub unsubscribe_url: Option<UnsubscribeUrl>,
    /// The List-Unsubscribe header from which `unsubscribe_url` was taken, sent as given.
    pub list_unsubscribe: Option<HeaderValue>,
    /// The sender's metadata, which is never mailed.
    pub metadata: BTreeMap<String, String>,
    /// Time after which the message must not be sent.
    pub expires_at: Option<Expiry>,
}

/// Content of a message: parts to compose, or a whole message.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Content {
    /// Parts from which Postrider composes a message.
    Composed(Parts),
    /// The caller's own RFC 5322 message, as given.
    Raw(Vec<u8>),
}

/// The parts of a message to compose. At least one of `text` and `html` is present; neither is empty.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Parts {
    /// The subject; `None` gives no Subject header.
    pub subject: Option<String>,
    /// The plain text.
    pub text: Option<String>,
    /// The HTML.
    pub html: Option<String>,
    /// Custom headers.
    pub headers: CustomHeaders,
    /// Attachments.
    pub attachments: Vec<Attachment>,
}

/// The clocks and configured limits by which a submission is checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SubmissionLimits {
    /// Maximum time for which a message is retried (contract 6: 48 hours unless configured).
    pub queue_lifetime: Duration,
    /// The service's time.
    pub now: Timestamp,
    /// The time of the wall clock, which differs while it is doubtful.
    pub wall: Timestamp,
}

/// A time that the caller chose. While the wall clock is doubtful, it may be meant by either clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Expiry {
    /// The time as given.
    pub given: Timestamp,
    /// The moment that was given, by the service's clock.
    pub at: Timestamp,
}

impl From<Timestamp> for Expiry {
    fn from(at: Timestamp) -> Self {
        Self { given: at, at }
    }
}

impl SubmissionLimits {
    /// Returns the limits at a time that both clocks agree on.
    pub const fn at(now: Timestamp, queue_lifetime: Duration) -> Self {
        Self { queue_lifetime, now, wall: now }
    }

    /// Returns the expiry at `given`, or the rule that it breaks by the service's clock.
    fn expiry(self, given: Timestamp) -> Result<Expiry, String> {
        match (self.check(given, self.now), self.check(given, self.wall)) {
            (Ok(()), _) => Ok(given.into()),
            (Err(_), Ok(())) => Ok(Expiry { given, at: self.now + given.since(self.wall) }),
            (Err(fault), Err(_)) => Err(fault),
        }
    }

    fn check(self, at: Timestamp, now: Timestamp) -> Result<(), String> {
        if at < now + Duration::from_secs(EXPIRES_AHEAD_SECONDS) {
            return Err(format!("must be at least {EXPIRES_AHEAD_SECONDS} seconds ahead"));
        }
        if at > now + self.queue_lifetime {
            let hours = self.queue_lifetime.as_secs() / 3600;
            return Err(format!(
                "must be at most {hours} hours ahead, the maximum time for which a message is retried"
            ));
        }
        Ok(())
    }
}

impl Content {
    /// Returns the size of the content in bytes, without the headers of parts.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Raw(message) => message.len(),
            Self::Composed(Parts { text, html, attachments, .. }) => {
                let bodies = [text, html].into_iter().flatten().map(String::len);
                bodies.chain(attachments.iter().map(|attachment| attachment.content.len())).sum()
            }
        }
    }
}

impl Submission {
    /// Parses a decoded JSON object. `null` counts as absent.
    ///
    /// # Errors
    /// All violations of all fields, under dotted names.
    pub fn lift(object: Map<String, Value>, limits: SubmissionLimits) -> Result<Self, Violations> {
        Self::lift_with(object, limits, |_, _| Violations::new())
    }

    /// Parses a decoded JSON object. If it has violations, `raw_faults` adds those that composing would find in `raw`,
    /// so that one answer reports them all (contract 1). It gets the sender if that is valid.
    ///
    /// # Errors
    /// All violations of all fields, under dotted names.
    pub fn lift_with(
        object: Map<String, Value>,
        limits: SubmissionLimits,
        raw_faults: impl FnOnce(&[u8], Option<&Address>) -> Violations,
    ) -> Result<Self, Violations> {
        let mut violations = Violations::new();
        let given_beside_raw: Vec<_> = EXCLUDED_BY_RAW
            .into_iter()
            .filter(|name| object.get(*name).is_some_and(|value| !value.is_null()))
            .collect();
        let mut fields = Fields::new(object, &mut violations);
        let from = sender(&mut fields);
        let to = recipient(&mut fields);
        let from_name = line(&mut fields, "from_name", FROM_NAME_CHARACTERS);
        let unsubscribe_url = fields.text("unsubscribe_url");
        let unsubscribe = if unsubscribe_url.is_some() { Unsubscribe::Ours } else { Unsubscribe::Callers };
        let unsubscribe_url = unsubscribe_url.and_then(|text| fields.check("unsubscribe_url", text.parse()));
        let metadata = metadata(&mut fields);
        let expires_at = expires_at(&mut fields, limits);
        let raw = fields.value("raw");
        let parts = parts(&mut fields, unsubscribe);
        let content = match raw {
            Some(raw) => lift_raw(&mut fields, raw, &given_beside_raw).map(Content::Raw),
            None => {
                let has_fault = ["text", "html"].iter().any(|name| fields.violations().by_field().contains_key(*name));
                if parts.text.is_none() && parts.html.is_none() && !has_fault {
                    fields.fault("text", "a body is required: give text, html, or both");
                }
                Some(Content::Composed(parts))
            }
        };
        fields.finish_with(instead_of);
        if let (Some(Content::Raw(raw)), false) = (&content, violations.is_empty()) {
            violations.absorb(raw_faults(raw, from.as_ref()));
        }
        violations.or(|| {
            let (from, to, content) = (from?, to?, content?);
            Some(Self {
                from,
                from_name,
                to,
                to_name: None,
                content,
                unsubscribe_url,
                list_unsubscribe: None,
                metadata,
                expires_at,
            })
        })
    }
}

/// Parses the sender. Many other services accept `Name <address>` there.
fn sender(fields: &mut Fields<'_>) -> Option<Address> {
    let parsed = fields.required_text("from")?.parse();
    if let Err(InvalidAddress::NotBare) = parsed {
        fields.fault("from", format!("{}; {USE_FROM_NAME}", InvalidAddress::NotBare));
        fields.violations().hint(format!("from: {USE_FROM_NAME}."));
        return None;
    }
    fields.check("from", parsed)
}

/// Parses the recipient. Many other services accept a list there.
fn recipient(fields: &mut Fields<'_>) -> Option<Address> {
    if fields.is_list("to") {
        fields.value("to");
        fields.fault("to", ONE_RECIPIENT);
        fields.violations().hint(format!("{ONE_RECIPIENT}."));
        return None;
    }
    fields.required_text("to").and_then(|text| fields.check("to", text.parse()))
}

/// Facts about a message that are never mailed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Notes {
    /// The sender's metadata.
    pub metadata: BTreeMap<String, String>,
    /// Time after which the message must not be sent.
    pub expires_at: Option<Expiry>,
}

impl Notes {
    /// Parses the members `metadata` and `expires_at` of a submission.
    ///
    /// # Errors
    /// All violations of all fields, under dotted names.
    pub fn lift(object: Map<String, Value>, limits: SubmissionLimits) -> Result<Self, Violations> {
        let mut violations = Violations::new();
        let mut fields = Fields::new(object, &mut violations);
        let notes = Self { metadata: metadata(&mut fields), expires_at: expires_at(&mut fields, limits) };
        fields.finish();
        violations.or(|| Some(notes))
    }
}

fn parts(fields: &mut Fields<'_>, unsubscribe: Unsubscribe) -> Parts {
    Parts {
        subject: line(fields, "subject", SUBJECT_CHARACTERS),
        text: body(fields, "text"),
        html: body(fields, "html"),
        headers: fields
            .object("headers")
            .map(|object| CustomHeaders::lift(object, unsubscribe, fields.violations()))
            .unwrap_or_default(),
        attachments: attachments(fields),
    }
}

/// Parses a text of one line, for a header field that Postrider writes.
fn line(fields: &mut Fields<'_>, name: &'static str, limit: usize) -> Option<String> {
    let text = fields.text(name)?;
    if is_longer(&text, limit) {
        fields.fault(name, format!("must be at most {limit} characters long"));
    }
    if has_control(&text) {
        fields.fault(name, "must not have control characters, such as line breaks or tabs");
    }
    Some(text)
}

/// Parses a body; an empty one counts as absent (contract 3).
fn body(fields: &mut Fields<'_>, name: &'static str) -> Option<String> {
    let text = fields.text(name)?;
    if text.len() > BODY_BYTES {
        fields.fault(name, "must be at most 5 MiB long");
    }
    if text.as_bytes().contains(&0) {
        fields.fault(name, "must not have NUL characters");
    }
    (!text.is_empty()).then_some(text)
}

fn attachments(fields: &mut Fields<'_>) -> Vec<Attachment> {
    let given = fields.array("attachments").unwrap_or_default();
    if given.len() > ATTACHMENTS_COUNT {
        fields.fault("attachments", format!("must be at most {ATTACHMENTS_COUNT} files"));
        return Vec::new();
    }
    let mut list: Vec<Attachment> = Vec::with_capacity(given.len());
    for (place, value) in given.into_iter().enumerate() {
        let path = format!("attachments.{place}");
        let Some(attachment) = Attachment::lift(value, &path, fields.violations()) else { continue };
        let same = |other: &Attachment| other.content_id.is_some() && other.content_id == attachment.content_id;
        if list.iter().any(same) {
            fields.fault(&format!("{path}.content_id"), "is given to another attachment too");
        }
        list.push(attachment);
    }
    list
}

fn metadata(fields: &mut Fields<'_>) -> BTreeMap<String, String> {
    let given = fields.object("metadata").unwrap_or_default();
    if given.len() > METADATA_COUNT {
        fields.fault("metadata", format!("must have at most {METADATA_COUNT} pairs"));
        return BTreeMap::new();
    }
    let mut pairs = BTreeMap::new();
    for (key, value) in given {
        let path = format!("metadata.{key}");
        if key.is_empty() || is_longer(&key, METADATA_KEY_CHARACTERS) {
            fields.fault(&path, format!("the key must be 1 to {METADATA_KEY_CHARACTERS} characters long"));
        }
        let Value::String(value) = value else {
            fields.fault(&path, "must be a string");
            continue;
        };
        if is_longer(&value, METADATA_VALUE_CHARACTERS) {
            fields.fault(&path, format!("must be at most {METADATA_VALUE_CHARACTERS} characters long"));
        }
        pairs.insert(key, value);
    }
    pairs
}

fn expires_at(fields: &mut Fields<'_>, limits: SubmissionLimits) -> Option<Expiry> {
    let text = fields.text("expires_at")?;
    let given: Timestamp = fields.check("expires_at", text.parse())?;
    fields.check("expires_at", limits.expiry(given))
}

/// Parses the caller's message: base64 if it has only the base64 alphabet and white space, otherwise text.
fn lift_raw(fields: &mut Fields<'_>, raw: Value, beside: &[&str]) -> Option<Vec<u8>> {
    if !beside.is_empty() {
        fields.fault("raw", format!("cannot be combined with {}", beside.join(", ")));
    }
    let Value::String(text) = raw else {
        fields.fault("raw", "must be a string");
        return None;
    };
    if text.trim_ascii().is_empty() {
        fields.fault("raw", "must be a whole message, with header fields");
        return None;
    }
    let encoded = text.bytes().all(|c| c.is_ascii_alphanumeric() || b"+/=".contains(&c) || c.is_ascii_whitespace());
    if !encoded {
        return Some(text.into_bytes());
    }
    let mut packed = text.into_bytes();
    packed.retain(|c| !c.is_ascii_whitespace());
    fields.check("raw", STANDARD.decode(packed).map_err(|_| "is not a message or base64 of one"))
}

#[cfg(test)]
#[path = "submission_tests.rs"]
mod tests;
