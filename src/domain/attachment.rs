//! One attachment of a submission (contract 3): decoded content, a file name without a path, a parsed type.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::fields::Fields;
use super::limits::{CONTENT_ID_CHARACTERS, CONTENT_TYPE_CHARACTERS, FILENAME_CHARACTERS};
use super::text::{has_control, is_deceptive, is_longer};
use super::violation::Violations;

/// A file sent with the message.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Attachment {
    /// Name, without any path.
    pub filename: String,
    /// Type; `application/octet-stream` if none was given.
    pub content_type: ContentType,
    /// Identifier for `cid:` links. A part with one is inline.
    pub content_id: Option<ContentId>,
    /// Content of the file.
    #[serde(with = "serde_bytes_vec")]
    pub content: Vec<u8>,
}

/// A media type with its parameters (RFC 2045 5.1), in ASCII, never `multipart` or `message`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ContentType(String);

/// Text between the angle brackets of a Content-ID: graphic ASCII without brackets.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct ContentId(String);

/// Error: the text is not a media type for attachments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be a media type, such as application/pdf, and not multipart or message")]
pub struct InvalidContentType;

/// Error: the text is not a content ID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be 1 to 255 printable ASCII characters without spaces or angle brackets")]
pub struct InvalidContentId;

impl Attachment {
    /// Parses one element of `attachments`. Violations are added under `path` and its members.
    pub fn lift(value: Value, path: &str, violations: &mut Violations) -> Option<Self> {
        let Value::Object(object) = value else {
            violations.add(path, "must be an object");
            return None;
        };
        let mut fields = Fields::nested(object, path, violations);
        let filename = fields.required_text("filename");
        let filename = filename.and_then(|name| fields.check("filename", checked_filename(name)));
        let content = fields.required_text("content");
        let content = content.and_then(|text| {
            let decoded = STANDARD.decode(text).map_err(|_| "must be base64 with padding, without line breaks");
            fields.check("content", decoded)
        });
        let content_type = match fields.text("content_type") {
            Some(text) => fields.check("content_type", text.parse()),
            None => Some(ContentType("application/octet-stream".to_owned())),
        };
        let content_id = fields.text("content_id").and_then(|text| fields.check("content_id", text.parse()));
        fields.finish();
        Some(Self { filename: filename?, content_type: content_type?, content_id, content: content? })
    }
}

/// Checks a bare file name, under which a mail program may save the file.
fn checked_filename(name: String) -> Result<String, &'static str> {
    if name.trim().is_empty() || is_longer(&name, FILENAME_CHARACTERS) {
        Err("must be 1 to 255 characters long")
    } else if has_control(&name) || name.chars().any(is_deceptive) {
        Err("must not have control characters, line separators or bidirectional controls")
    } else if name.contains(['/', '\\']) || name == "." || name == ".." {
        Err("must be a file name without a path")
    } else {
        Ok(name)
    }
}

impl ContentType {
    /// Returns the type as in the header.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ContentType {
    type Err = InvalidContentType;
    fn from_str(text: &str) -> Result<Self, InvalidContentType> {
        let plain = text.bytes().all(|c| c == b' ' || c.is_ascii_graphic());
        if !plain || text.len() > CONTENT_TYPE_CHARACTERS {
            return Err(InvalidContentType);
        }
        let (essence, mut rest) = text.split_at(text.find(';').unwrap_or(text.len()));
        let (kind, subtype) = essence.trim().split_once('/').ok_or(InvalidContentType)?;
        let composite = kind.eq_ignore_ascii_case("multipart") || kind.eq_ignore_ascii_case("message");
        if !is_token(kind) || !is_token(subtype) || composite {
            return Err(InvalidContentType);
        }
        let mut checked = format!("{kind}/{subtype}").to_ascii_lowercase();
        while let Some(after) = rest.strip_prefix(';') {
            let (name, value, after) = parameter(after.trim_start()).ok_or(InvalidContentType)?;
            checked.push_str("; ");
            checked.push_str(name);
            checked.push('=');
            checked.push_str(value);
            rest = after.trim_start();
        }
        if rest.is_empty() { Ok(Self(checked)) } else { Err(InvalidContentType) }
    }
}

/// Returns name, value (with quotes) and the rest after one parameter.
fn parameter(text: &str) -> Option<(&str, &str, &str)> {
    let (name, rest) = text.split_once('=')?;
    let length = match rest.strip_prefix('"') {
        Some(inside) => 2 + quoted_inside_length(inside)?,
        None => rest.find([';', ' ']).unwrap_or(rest.len()),
    };
    let (value, rest) = rest.split_at(length);
    (is_token(name) && (value.starts_with('"') || is_token(value))).then_some((name, value, rest))
}

/// Returns the number of bytes before the closing quote.
fn quoted_inside_length(inside: &str) -> Option<usize> {
    let mut escaped = false;
    inside.bytes().position(|c| {
        let closes = c == b'"' && !escaped;
        escaped = c == b'\\' && !escaped;
        closes
    })
}

/// Returns whether the text is a token of RFC 2045 5.1: graphic ASCII without tspecials.
fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|c| c.is_ascii_graphic() && !b"()<>@,;:\\\"/[]?=".contains(&c))
}

impl ContentId {
    /// Returns the identifier without angle brackets.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ContentId {
    type Err = InvalidContentId;
    fn from_str(text: &str) -> Result<Self, InvalidContentId> {
        // Callers may write the brackets or omit them.
        let bare = text.strip_prefix('<').and_then(|rest| rest.strip_suffix('>')).unwrap_or(text);
        let good = bare.bytes().all(|c| c.is_ascii_graphic() && c != b'<' && c != b'>');
        if good && !bare.is_empty() && bare.len() <= CONTENT_ID_CHARACTERS {
            Ok(Self(bare.to_owned()))
        } else {
            Err(InvalidContentId)
        }
    }
}

impl fmt::Display for ContentType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Serialises bytes as a whole instead of a sequence of numbers: rows with megabytes are copied once.
mod serde_bytes_vec {
    use serde::de::{Deserializer, Error, Visitor};

    pub(super) fn serialize<S: serde::Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(bytes)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        struct Bytes;
        impl Visitor<'_> for Bytes {
            type Value = Vec<u8>;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("bytes")
            }
            fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Vec<u8>, E> {
                Ok(bytes.to_vec())
            }
        }
        from.deserialize_bytes(Bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_a_media_type_and_rejects_a_composite_one() {
        for (given, kept) in [
            ("application/pdf", "application/pdf"),
            ("Text/Calendar;method=REQUEST", "text/calendar; method=REQUEST"),
            ("text/csv; charset=\"utf-8\" ; header=present", "text/csv; charset=\"utf-8\"; header=present"),
            ("application/vnd.ms-excel", "application/vnd.ms-excel"),
        ] {
            assert_eq!(given.parse::<ContentType>().unwrap().as_str(), kept);
        }
        for bad in [
            "",
            "pdf",
            "a/",
            "/b",
            "a/b;",
            "a/b;c",
            "a/b;c=",
            "a/b; c=\"x",
            "a/b c",
            "a/b\r\nX: y",
            "é/b",
            "a/b; c=\"é\"",
            "multipart/mixed",
            "message/rfc822",
            "a/b;c=d e",
            "a/b/c",
        ] {
            assert!(bad.parse::<ContentType>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_content_id_may_have_its_brackets_but_no_others() {
        assert_eq!("<logo@x>".parse::<ContentId>().unwrap().as_str(), "logo@x");
        assert_eq!("logo".parse::<ContentId>().unwrap().as_str(), "logo");
        for bad in ["", "<>", "a b", "a>b", "a\r\nb", "é", "a\0"] {
            assert!(bad.parse::<ContentId>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn every_error_of_an_attachment_is_reported_under_its_path() {
        let mut faults = Violations::new();
        let bad = serde_json::json!({"filename": "../x", "content": "a b", "content_type": "x", "content_id": " ", "size": 3});
        assert_eq!(Attachment::lift(bad, "attachments.1", &mut faults), None);
        let fields: Vec<_> = faults.by_field().keys().map(String::as_str).collect();
        assert_eq!(
            fields,
            [
                "attachments.1.content",
                "attachments.1.content_id",
                "attachments.1.content_type",
                "attachments.1.filename",
                "attachments.1.size"
            ]
        );
    }
}
