//! Composes a signed and sent message from a submission (contract 3).
//!
//! Deterministic: the same submission with the same facts gives the same bytes, including boundaries. The result has
//! only CRLF line ends and no line over 998 bytes, so no part of it can be mistaken for the end of the data.

use lettre::message::{MultiPart, MultiPartBuilder};

use super::field::{self, EncodedWordMeaning};
use super::order;
use super::part::{self, Node};
use super::raw;
use crate::base::id::MessageId;
use crate::base::time::Timestamp;
use crate::domain::address::Address;
use crate::domain::attachment::Attachment;
use crate::domain::limits::MESSAGE_BYTES;
use crate::domain::submission::{Content, Parts, Submission};
use crate::domain::unsubscribe_url::UnsubscribeUrl;
use crate::domain::violation::Violations;

/// The field that asks for delivery even against the receiver's TLS policies (RFC 8689 5).
pub(super) const TLS_REQUIRED: &str = "TLS-Required";

/// Facts that the service adds to a submission.
#[derive(Clone, Copy, Debug)]
pub struct ComposeFacts<'a> {
    /// The message's reserved identifier, used for its Message-ID and boundaries.
    pub message_id: MessageId,
    /// Time of acceptance, used for the Date field.
    pub at: Timestamp,
    /// Our hosted link that replaces the submission's `unsubscribe_url`.
    pub hosted_unsubscribe: Option<&'a UnsubscribeUrl>,
}

/// A complete message, ready to be signed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ComposedMessage {
    /// Header section, empty line and body, with only CRLF line ends, including the last line.
    pub bytes: Vec<u8>,
    /// The decoded subject; `None` if there is no Subject field.
    pub subject: Option<String>,
    /// Whether the message contains bytes above 127 (BODY=8BITMIME).
    pub eight_bit: bool,
    /// Whether an address or a header field needs SMTPUTF8 (RFC 6531).
    pub smtputf8: bool,
    /// Number of servers that the message has passed. More than
    /// [`RECEIVED_HEADERS_COUNT`](crate::domain::limits::RECEIVED_HEADERS_COUNT) indicate a mail loop.
    pub received_count: usize,
    /// Whether the message must be delivered even if the TLS required by its receiver's policies is not available (RFC
    /// 8689).
    pub waives_tls: bool,
}

/// Returns the Message-ID of a message (contract 3): `<msg_...@domain of from>`.
pub fn message_id_header(id: MessageId, from: &Address) -> String {
    format!("<{id}@{}>", from.domain())
}

/// Composes the message of `submission`.
///
/// # Errors
/// Violations that only the complete message shows: those of `raw`, or a size over 20 MiB, reported under the largest
/// field.
pub fn compose(submission: &Submission, facts: &ComposeFacts<'_>) -> Result<ComposedMessage, Violations> {
    match &submission.content {
        Content::Raw(message) => raw::rewrite(message, submission, facts),
        Content::Composed(parts) => compose_parts(parts, submission, facts),
    }
}

fn compose_parts(
    parts: &Parts,
    submission: &Submission,
    facts: &ComposeFacts<'_>,
) -> Result<ComposedMessage, Violations> {
    let tree = tree(parts, facts.message_id);
    let body = tree.formatted();
    let mut bytes = Vec::with_capacity(body.len() + 2048);
    write_header(&mut bytes, parts, submission, facts);
    let smtputf8 = !bytes.is_ascii();
    bytes.extend_from_slice(&body);
    if bytes.len() > MESSAGE_BYTES {
        return Err(Violations::of(largest_field(parts), "makes the message larger than 20 MiB"));
    }
    let eight_bit = smtputf8;
    let required = parts.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case(TLS_REQUIRED));
    let waives_tls = waives_tls(required.map(|(_, value)| value.to_owned()));
    Ok(ComposedMessage { bytes, subject: parts.subject.clone(), eight_bit, smtputf8, received_count: 0, waives_tls })
}

/// Returns whether the [`TLS_REQUIRED`] fields of a message waive TLS: the only valid value is `No`, and two fields are
/// ignored.
pub(super) fn waives_tls(values: impl Iterator<Item = String>) -> bool {
    let values: Vec<_> = values.take(2).collect();
    matches!(values.as_slice(), [only] if only.trim().eq_ignore_ascii_case("no"))
}

/// Writes the header section, up to but without the fields of the outermost part.
fn write_header(out: &mut Vec<u8>, parts: &Parts, submission: &Submission, facts: &ComposeFacts<'_>) {
    field::mailbox(out, "From", submission.from_name.as_deref(), &submission.from.to_wire());
    field::mailbox(out, "To", submission.to_name.as_deref(), &submission.to.to_wire());
    if let Some(subject) = &parts.subject {
        field::unstructured(out, "Subject", subject, EncodedWordMeaning::Literal);
    }
    field::plain(out, "Date", &facts.at.to_rfc5322());
    field::plain(out, "Message-ID", &message_id_header(facts.message_id, &submission.from));
    write_unsubscribe(out, submission, facts);
    for (name, value) in parts.headers.iter() {
        field::custom(out, name, value);
    }
    field::plain(out, "MIME-Version", "1.0");
}

/// Writes the list headers of `unsubscribe_url`. One-click unsubscription requires https (RFC 8058 3.1).
pub(super) fn write_unsubscribe(out: &mut Vec<u8>, submission: &Submission, facts: &ComposeFacts<'_>) {
    let Some(theirs) = &submission.unsubscribe_url else { return };
    let url = facts.hosted_unsubscribe.unwrap_or(theirs);
    match submission.list_unsubscribe.as_ref().filter(|_| facts.hosted_unsubscribe.is_none()) {
        Some(given) => {
            field::custom(out, "List-Unsubscribe", given.as_str());
            write_one_click(out, url);
        }
        None => write_list_headers(out, url),
    }
}

/// Writes the list headers of a URL.
pub(super) fn write_list_headers(out: &mut Vec<u8>, url: &UnsubscribeUrl) {
    field::bracketed_url(out, "List-Unsubscribe", url.to_wire());
    write_one_click(out, url);
}

fn write_one_click(out: &mut Vec<u8>, url: &UnsubscribeUrl) {
    if url.is_https() {
        field::plain(out, "List-Unsubscribe-Post", "List-Unsubscribe=One-Click");
    }
}

/// Builds the MIME tree: text before HTML, since the preferred version comes last (RFC 2046 5.1.4); inline files next
/// to the HTML that refers to them (RFC 2387); other files after all of these.
fn tree(parts: &Parts, id: MessageId) -> Node {
    let shown = |file: &&Attachment| file.content_id.is_some() && parts.html.is_some();
    let (inline, attached): (Vec<_>, Vec<_>) = parts.attachments.iter().partition(shown);
    let html = parts.html.as_deref().map(|html| with_files(part::html(html), MultiPart::related(), "rel", &inline, id));
    let text = parts.text.as_deref().map(part::text);
    let body = match (text, html) {
        (Some(text), Some(html)) => {
            let alternative = MultiPart::alternative().boundary(boundary("alt", id)).build();
            Node::Multi(html.join(text.join(alternative)))
        }
        (None, Some(html)) => html,
        (Some(text), None) => text,
        (None, None) => part::text(""),
    };
    let name = format!("mix{}", order::label(&parts.attachments.iter().map(|file| shown(&file)).collect::<Vec<_>>()));
    with_files(body, MultiPart::mixed(), &name, &attached, id)
}

fn with_files(body: Node, kind: MultiPartBuilder, name: &str, files: &[&Attachment], id: MessageId) -> Node {
    if files.is_empty() {
        return body;
    }
    let around = body.join(kind.boundary(boundary(name, id)).build());
    Node::Multi(files.iter().fold(around, |around, attachment| part::file(attachment).join(around)))
}

/// Returns a boundary that can't occur in a part: a sender would have to know an identifier that was chosen later, and
/// `=_` never occurs in quoted-printable or base64 text (RFC 2045 6.7).
fn boundary(name: &str, id: MessageId) -> String {
    format!("=_{name}_{id}")
}

fn largest_field(parts: &Parts) -> &'static str {
    let length = |body: &Option<String>| body.as_ref().map_or(0, String::len);
    let files = parts.attachments.iter().map(|file| file.content.len()).sum::<usize>();
    let sizes = [("attachments", files), ("html", length(&parts.html)), ("text", length(&parts.text))];
    sizes.into_iter().max_by_key(|(_, size)| *size).map_or("text", |(name, _)| name)
}
