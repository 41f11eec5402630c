//! Custom headers of a submission (contract 3), checked against every rule before a message is composed with them.
//!
//! A name or value with CR or LF can't be built, so a custom header can't add another one.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::limits::{HEADER_NAME_CHARACTERS, HEADER_VALUE_CHARACTERS, HEADERS_BYTES, HEADERS_COUNT};
use super::text::{has_control, is_longer};
use super::violation::Violations;

/// Names written by Postrider or forbidden for callers (contract 3).
const REFUSED_NAMES: [&str; 14] = [
    "from",
    "to",
    "cc",
    "bcc",
    "resent-bcc",
    "sender",
    "subject",
    "date",
    "message-id",
    "mime-version",
    "dkim-signature",
    "received",
    "return-path",
    "authentication-results",
];
/// Names that route complaints to Postrider (RFC 9477): a caller's value would send them elsewhere.
pub const FEEDBACK_NAMES: [&str; 3] = ["Feedback-ID", "CFBL-Address", "CFBL-Feedback-ID"];
/// Prefixes of refused names.
const REFUSED_PREFIXES: [&str; 3] = ["content-", "arc-", "x-service-"];
/// Names that `unsubscribe_url` sets.
const UNSUBSCRIBE_NAMES: [&str; 2] = ["list-unsubscribe", "list-unsubscribe-post"];

/// A field name (RFC 5322 2.2): printable ASCII except the colon, at most 76 characters.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct HeaderName(String);

/// An unfolded field body: at most 998 characters without control characters.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct HeaderValue(String);

/// Custom headers of one message, in the order in which they are written.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct CustomHeaders(Vec<(HeaderName, HeaderValue)>);

/// Author of the list headers of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unsubscribe {
    /// Postrider, because `unsubscribe_url` is set.
    Ours,
    /// The caller, because `unsubscribe_url` is not set.
    Callers,
}

/// Reason why a name or value is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidHeader {
    /// The name is not a field name of RFC 5322.
    #[error("the header name must be 1 to 76 printable ASCII characters without spaces or colons")]
    Name,
    /// The value has over 998 characters.
    #[error("the header value must be at most 998 characters long")]
    TooLong,
    /// A control character in the value.
    #[error("the header value must not have control characters, such as line breaks or tabs")]
    Control,
    /// A name that callers must not set.
    #[error("this header is written by the service and cannot be set")]
    Refused,
    /// A list header together with `unsubscribe_url`.
    #[error("this header cannot be set together with unsubscribe_url, which writes it")]
    Unsubscribe,
}

impl HeaderName {
    /// Checks that `text` is a field name that callers may set.
    ///
    /// # Errors
    /// [`InvalidHeader::Name`] if it is not a field name, otherwise the reason for its refusal.
    pub fn parse(text: &str, unsubscribe: Unsubscribe) -> Result<Self, InvalidHeader> {
        let printable = text.bytes().all(|c| c.is_ascii_graphic() && c != b':');
        if text.is_empty() || text.len() > HEADER_NAME_CHARACTERS || !printable {
            return Err(InvalidHeader::Name);
        }
        let lower = text.to_ascii_lowercase();
        let is_ours = REFUSED_NAMES.contains(&lower.as_str())
            || REFUSED_PREFIXES.iter().any(|begin| lower.starts_with(begin))
            || FEEDBACK_NAMES.iter().any(|name| name.eq_ignore_ascii_case(text));
        if is_ours {
            return Err(InvalidHeader::Refused);
        }
        if unsubscribe == Unsubscribe::Ours && UNSUBSCRIBE_NAMES.contains(&lower.as_str()) {
            return Err(InvalidHeader::Unsubscribe);
        }
        Ok(Self(text.to_owned()))
    }

    /// Returns the name as given.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl HeaderValue {
    /// Checks that `text` is a field body.
    ///
    /// # Errors
    /// [`InvalidHeader::TooLong`] or [`InvalidHeader::Control`].
    pub fn parse(text: String) -> Result<Self, InvalidHeader> {
        if is_longer(&text, HEADER_VALUE_CHARACTERS) {
            Err(InvalidHeader::TooLong)
        } else if has_control(&text) {
            Err(InvalidHeader::Control)
        } else {
            Ok(Self(text))
        }
    }

    /// Returns the value as given.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl CustomHeaders {
    /// Parses the `headers` object. Violations are added under `headers` and `headers.<name>`.
    pub fn lift(object: Map<String, Value>, unsubscribe: Unsubscribe, violations: &mut Violations) -> Self {
        if object.len() > HEADERS_COUNT {
            violations.add("headers", format!("must have at most {HEADERS_COUNT} headers"));
        }
        let mut seen = HashSet::new();
        let mut bytes = 0;
        let mut list = Vec::with_capacity(object.len().min(HEADERS_COUNT));
        for (name, value) in object {
            let field = format!("headers.{name}");
            let Value::String(value) = value else {
                violations.add(field, "must be a string");
                continue;
            };
            bytes += name.len() + value.len();
            if !seen.insert(name.to_ascii_lowercase()) {
                violations.add(field.as_str(), "is given twice; header names do not differ by case");
            }
            let name = violations.check(&field, HeaderName::parse(&name, unsubscribe));
            let value = violations.check(&field, HeaderValue::parse(value));
            list.extend(name.zip(value));
        }
        if bytes > HEADERS_BYTES {
            violations.add("headers", "must be at most 16 KiB in all");
        }
        Self(list)
    }

    /// Returns name and value of each header, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Returns whether there are no headers.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lift(headers: Value, unsubscribe: Unsubscribe) -> Result<CustomHeaders, Violations> {
        let Value::Object(object) = headers else { panic!("an object") };
        let mut violations = Violations::new();
        let lifted = CustomHeaders::lift(object, unsubscribe, &mut violations);
        violations.or(|| Some(lifted))
    }

    #[test]
    fn reserved_names_are_refused_in_any_case_and_never_dropped() {
        for name in [
            "From",
            "TO",
            "cc",
            "Bcc",
            "Resent-Bcc",
            "Sender",
            "subject",
            "Date",
            "Message-ID",
            "MIME-Version",
            "Content-Type",
            "content-anything",
            "DKIM-Signature",
            "ARC-Seal",
            "Received",
            "Return-Path",
            "Authentication-Results",
            "X-Service-Event",
            "Feedback-ID",
            "CFBL-Address",
            "cfbl-feedback-id",
        ] {
            assert_eq!(HeaderName::parse(name, Unsubscribe::Callers), Err(InvalidHeader::Refused), "{name}");
        }
        assert!(HeaderName::parse("Reply-To", Unsubscribe::Ours).is_ok());
        assert!(HeaderName::parse("List-Unsubscribe", Unsubscribe::Callers).is_ok());
        assert_eq!(HeaderName::parse("list-UNSUBSCRIBE-post", Unsubscribe::Ours), Err(InvalidHeader::Unsubscribe));
    }

    #[test]
    fn names_and_values_cannot_start_another_header() {
        let long = "a".repeat(77);
        for name in ["", " X", "X:", "X Y", "X\r\nBcc", "X\n", "Ünïcode", "\u{7f}", &long] {
            assert_eq!(HeaderName::parse(name, Unsubscribe::Callers), Err(InvalidHeader::Name), "{name:?}");
        }
        for value in ["a\r\nBcc: x@example.com", "a\n b", "a\rb", "a\tb", "a\0", "\u{7f}", "\u{85}"] {
            assert_eq!(HeaderValue::parse(value.to_owned()), Err(InvalidHeader::Control), "{value:?}");
        }
        assert!(HeaderValue::parse("é".repeat(998)).is_ok());
        assert_eq!(HeaderValue::parse("é".repeat(999)), Err(InvalidHeader::TooLong));
    }

    #[test]
    fn all_errors_of_all_headers_are_reported_at_once() {
        let faults = lift(
            serde_json::json!({"X-A": 1, "X-B": "a\nb", "x y": "ok", "X-C": "1", "x-c": "2", "Bcc": "x@y.zz"}),
            Unsubscribe::Callers,
        )
        .unwrap_err();
        let fields: Vec<_> = faults.by_field().keys().map(String::as_str).collect();
        assert_eq!(fields, ["headers.Bcc", "headers.X-A", "headers.X-B", "headers.x y", "headers.x-c"]);
    }

    #[test]
    fn the_limit_is_50_headers_and_16_kib() {
        let many = |count: usize, size: usize| {
            Value::Object((0..count).map(|n| (format!("X-{n:02}"), "a".repeat(size).into())).collect())
        };
        assert!(lift(many(50, 10), Unsubscribe::Callers).is_ok());
        assert!(lift(many(51, 10), Unsubscribe::Callers).unwrap_err().by_field().contains_key("headers"));
        assert!(lift(many(16, 998), Unsubscribe::Callers).is_ok());
        assert!(lift(many(17, 998), Unsubscribe::Callers).unwrap_err().by_field().contains_key("headers"));
    }
}
