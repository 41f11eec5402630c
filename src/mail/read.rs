//! Parses a stored message for its owner: texts, custom fields and attachments (contract 3, message record). It
//! reverses `compose`, except for details lost in composing: the kind of line ends, and the last one.

use std::collections::{BTreeMap, HashSet};

use mail_parser::{Encoding, Message, MessageParser, MessagePart, MimeHeaders as _, PartType};
use serde::Serialize;

use super::mailbox;
use super::order;
use super::section::{self, Field};
use crate::domain::header::FEEDBACK_NAMES;

/// Fields that we write or sign, in lower case.
const OWN_FIELDS: [&str; 7] = ["from", "to", "subject", "date", "message-id", "mime-version", "dkim-signature"];
/// Fields that we write if an unsubscribe URL was given.
const LIST_FIELDS: [&str; 2] = ["list-unsubscribe", "list-unsubscribe-post"];

/// The author of the message's list fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ListFields {
    /// Postrider, which wrote the fields for an unsubscribe URL.
    Ours,
    /// The caller.
    Callers,
}

/// Parts of a message.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ReadParts {
    /// The plain text.
    pub text: Option<String>,
    /// The HTML.
    pub html: Option<String>,
    /// The caller's own fields, decoded. The values of a repeated name are on separate lines.
    pub headers: BTreeMap<String, String>,
    /// The files, in their original order.
    pub attachments: Vec<AttachedFile>,
}

/// A file in a message.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct AttachedFile {
    /// File name, if the part has one.
    pub filename: Option<String>,
    /// Media type with parameters, as in the message.
    pub content_type: String,
    /// Size of the decoded content in bytes.
    pub size: usize,
}

/// Parses `message`. Unreadable parts are skipped, since raw messages may contain anything.
pub fn parts_of(message: &[u8], list_fields: ListFields) -> ReadParts {
    let (fields, _) = section::split(message);
    let headers = custom_fields(&fields, list_fields);
    let Some(parsed) = MessageParser::default().parse(message) else {
        return ReadParts { headers, ..ReadParts::default() };
    };
    let bodies = BodyParts::of(&parsed);
    let mut parts = ReadParts { headers, ..ReadParts::default() };
    for (place, part) in parsed.parts.iter().enumerate() {
        match &part.body {
            PartType::Multipart(_) => {}
            PartType::Text(text) if bodies.has(place, part) && parts.text.is_none() => {
                parts.text = Some(shown(text));
            }
            PartType::Html(html) if bodies.has(place, part) && parts.html.is_none() => {
                parts.html = Some(shown(html));
            }
            PartType::Text(_)
            | PartType::Html(_)
            | PartType::Binary(_)
            | PartType::InlineBinary(_)
            | PartType::Message(_) => parts.attachments.push(attached(message, part)),
        }
    }
    let boundary = parsed.content_type().and_then(|kind| kind.attribute("boundary")).unwrap_or_default();
    parts.attachments = order::restored(parts.attachments, boundary);
    parts
}

/// Returns the display name of a message's only recipient, if its To field has one.
pub fn recipient_name(message: &[u8]) -> Option<String> {
    let (fields, _) = section::split(message);
    let to = fields.iter().find(|field| field.is("To"))?;
    // Encoded words are decoded after the list is parsed: a name may contain commas and brackets.
    let [only] = mailbox::list(&to.unfolded())?.try_into().ok()?;
    only.display.map(|name| decoded_text(&name))
}

/// The parts that a mail program shows as the message itself. A set: a message has up to thousands of parts, and each
/// is looked up.
pub(super) struct BodyParts(HashSet<usize>);

impl BodyParts {
    pub(super) fn of(message: &Message<'_>) -> Self {
        let listed = message.text_body.iter().chain(&message.html_body);
        Self(listed.filter_map(|id| usize::try_from(*id).ok()).collect())
    }

    /// Returns whether the part in this place is a part of the body.
    pub(super) fn has(&self, place: usize, part: &MessagePart<'_>) -> bool {
        part.attachment_name().is_none() && self.0.contains(&place)
    }
}

/// Returns the text with LF line ends and without the last one, which composing adds if it is missing.
fn shown(text: &str) -> String {
    let mut text = text.replace("\r\n", "\n");
    if text.ends_with('\n') {
        text.pop();
    }
    text
}

fn attached(message: &[u8], part: &MessagePart<'_>) -> AttachedFile {
    let slice = |from: u32, to: u32| message.get(from as usize..to as usize).unwrap_or_default();
    let kind = part.headers.iter().find(|header| header.name.as_str().eq_ignore_ascii_case("Content-Type"));
    let content_type = kind.map(|header| unfolded(slice(header.offset_start, header.offset_end)));
    let size = match part.encoding {
        // The parser stores text as its own UTF-8 copy, so the size is counted from the encoded bytes.
        Encoding::Base64 => base64_bytes(slice(part.offset_body, part.offset_end)),
        Encoding::None | Encoding::QuotedPrintable => part.len(),
    };
    AttachedFile {
        filename: part.attachment_name().map(str::to_owned),
        content_type: content_type.unwrap_or_else(|| "text/plain".to_owned()),
        size,
    }
}

fn base64_bytes(text: &[u8]) -> usize {
    text.iter().filter(|c| c.is_ascii_alphanumeric() || matches!(c, b'+' | b'/')).count() * 3 / 4
}

fn unfolded(value: &[u8]) -> String {
    String::from_utf8_lossy(value).replace("\r\n", "").trim().to_owned()
}

fn custom_fields(fields: &[Field<'_>], list_fields: ListFields) -> BTreeMap<String, String> {
    let mut custom = BTreeMap::<String, String>::new();
    for field in fields {
        let name = String::from_utf8_lossy(field.name).into_owned();
        let lower = name.to_ascii_lowercase();
        let own = OWN_FIELDS.contains(&lower.as_str())
            || lower.starts_with("content-")
            || FEEDBACK_NAMES.iter().any(|name| field.is(name))
            || (list_fields == ListFields::Ours && LIST_FIELDS.contains(&lower.as_str()));
        if own || field.value.is_none() {
            continue;
        }
        let value = decoded(field);
        let twice = custom.get_mut(&name);
        match twice {
            Some(first) => {
                first.push('\n');
                first.push_str(&value);
            }
            None => drop(custom.insert(name, value)),
        }
    }
    custom
}

/// Returns the value with encoded words (RFC 2047) decoded.
pub(super) fn decoded(field: &Field<'_>) -> String {
    let plain = field.unfolded();
    if !plain.contains("=?") {
        return plain;
    }
    decoded_value(field.value.unwrap_or_default()).unwrap_or(plain)
}

/// Decodes the encoded words (RFC 2047) of an unfolded value.
pub fn decoded_text(value: &str) -> String {
    let decoded = if value.contains("=?") { decoded_value(format!(" {value}\r\n").as_bytes()) } else { None };
    decoded.unwrap_or_else(|| value.to_owned())
}

fn decoded_value(value: &[u8]) -> Option<String> {
    // The parser decodes an unstructured field only under a name of such a field.
    let line = [b"Subject:", value].concat();
    let parsed = MessageParser::default().parse_headers(&line);
    parsed.as_ref().and_then(|message| message.subject()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::MessageId;
    use crate::base::time::Timestamp;
    use crate::domain::submission::{Submission, SubmissionLimits};
    use crate::mail::compose::{ComposeFacts, compose};

    /// Composes a submission, parses the result and returns its parts.
    fn round(mut json: serde_json::Value) -> ReadParts {
        json["from"] = "a@example.com".into();
        json["to"] = "b@example.net".into();
        let serde_json::Value::Object(object) = json else { panic!("no object") };
        let limits = SubmissionLimits::at(Timestamp::ZERO, std::time::Duration::from_secs(172_800));
        let submission = Submission::lift(object, limits).unwrap();
        let facts = ComposeFacts { message_id: MessageId::default(), at: Timestamp::ZERO, hosted_unsubscribe: None };
        parts_of(&compose(&submission, &facts).unwrap().bytes, ListFields::Ours)
    }

    #[test]
    fn a_composed_message_parses_back() {
        for text in ["hello", "one\n\ntwo", "größe\nweiß", "漢字漢字漢字\n漢字"] {
            assert_eq!(round(serde_json::json!({ "text": text })).text.as_deref(), Some(text));
            let both = round(serde_json::json!({ "text": text, "html": format!("<p>{text}</p>") }));
            assert_eq!((both.text.as_deref(), both.html), (Some(text), Some(format!("<p>{text}</p>"))));
        }
        let html = round(serde_json::json!({ "html": "<p>x</p>" }));
        assert_eq!((html.text, html.html.as_deref()), (None, Some("<p>x</p>")));
    }

    #[test]
    fn returns_custom_fields_without_ours() {
        let parts = round(serde_json::json!({
            "text": "x", "subject": "s", "unsubscribe_url": "https://example.com/u",
            "headers": { "X-Tag": "a  b", "X-Long": "word ".repeat(60).trim_end(), "X-Name": "Grüße aus Wien",
                         "Reply-To": "c@example.com" },
        }));
        let names: Vec<_> = parts.headers.keys().map(String::as_str).collect();
        assert_eq!(names, ["Reply-To", "X-Long", "X-Name", "X-Tag"]);
        assert_eq!((parts.headers["X-Tag"].as_str(), parts.headers["X-Name"].as_str()), ("a  b", "Grüße aus Wien"));
        assert_eq!(parts.headers["X-Long"], "word ".repeat(60).trim_end());
    }

    #[test]
    fn parses_the_recipients_name_from_the_to_header() {
        let name = |to: &str| recipient_name(format!("From: a@example.com\r\nTo: {to}\r\n\r\n").as_bytes());
        assert_eq!(name("\"Lee, Ann\" <b@example.net>").as_deref(), Some("Lee, Ann"));
        assert_eq!(name("=?UTF-8?Q?J=C3=B6?=\r\n <b@example.net>").as_deref(), Some("Jö"));
        assert_eq!(name("b@example.net"), None);
        assert_eq!(name("Ann <b@example.net>, Bob <c@example.net>"), None);
        assert_eq!(decoded_text("=?utf-8?q?J=C3=B6rg?= =?utf-8?b?IEJhdW0=?="), "Jörg Baum");
        assert_eq!(decoded_text("a =? b"), "a =? b");
    }

    #[test]
    fn returns_files_with_their_decoded_size() {
        let parts = round(serde_json::json!({
            "text": "see there", "html": "<img src=\"cid:logo\">",
            "attachments": [
                { "filename": "ä.csv", "content": "w6TDtg==", "content_type": "text/csv" },
                { "filename": "logo.png", "content": "iVBORw==", "content_type": "image/png", "content_id": "logo" },
            ],
        }));
        assert_eq!(parts.text.as_deref(), Some("see there"));
        let files: Vec<_> = parts.attachments.iter().map(|f| (f.filename.as_deref(), f.size)).collect();
        assert_eq!(files, [(Some("ä.csv"), 4), (Some("logo.png"), 4)]);
        assert!(parts.attachments[1].content_type.starts_with("image/png"));
    }

    #[test]
    fn files_are_listed_in_their_original_order() {
        for inline in ["", "a", "b", "cd", "bd", "abd", "abcdefghijklmnopqrst", "t", "bdfhjlnprt"] {
            let given: Vec<String> = ('a'..='t').map(String::from).collect();
            let files: Vec<_> = given
                .iter()
                .map(|name| match inline.contains(name.as_str()) {
                    true => serde_json::json!({ "filename": name, "content": "eA==", "content_id": name }),
                    false => serde_json::json!({ "filename": name, "content": "eA==" }),
                })
                .collect();
            for body in [serde_json::json!({ "html": "<p>x</p>" }), serde_json::json!({ "text": "x", "html": "y" })] {
                let mut body = body;
                body["attachments"] = files.clone().into();
                let listed: Vec<_> = round(body).attachments.into_iter().filter_map(|file| file.filename).collect();
                assert_eq!(listed, given, "{inline}");
            }
        }
    }
}
