//! The caller's own message (contract 3, `raw`): scanned strictly, changed only where the contract says so, and left
//! byte for byte elsewhere.
//!
//! What comes out has CRLF line ends only: there is no sequence in it that one server takes for a line end and the
//! next does not, so no message can smuggle another one in.

use std::collections::BTreeSet;

use mail_parser::MessageParser;
use memchr::{memchr, memchr_iter};

use super::compose::{ComposeFacts, Composed, TLS_REQUIRED, message_id_header, waives_tls, write_unsubscribe};
use super::field;
use super::mailbox;
use super::section::{self, Field, line_length};
use super::structure;
use crate::domain::address::Address;
use crate::domain::header::FEEDBACK_NAMES;
use crate::domain::limits::{LINE_BYTES, MESSAGE_BYTES, MIME_DEPTH_COUNT, RAW_HEADER_SECTION_BYTES};
use crate::domain::submission::Submission;
use crate::domain::violation::Violations;

/// Fields that a message has at most once (RFC 5322 3.6); receivers differ over which of two they show.
const SINGLE_FIELDS: [&str; 7] = ["From", "To", "Subject", "Date", "Message-ID", "Sender", "Reply-To"];
/// Fields that must not travel: Bcc and Resent-Bcc name other recipients, Return-Path is the last server's to write.
pub(super) const REMOVED_FIELDS: [&str; 3] = ["Bcc", "Resent-Bcc", "Return-Path"];
/// Fields that `unsubscribe_url` replaces.
pub(super) const REPLACED_FIELDS: [&str; 2] = ["List-Unsubscribe", "List-Unsubscribe-Post"];
/// The name under which the caller's Message-ID stays.
const ORIGINAL_ID: &str = "X-Original-Message-ID";

/// The faults of `raw` by sentence, each once however often it occurs.
pub(super) type Faults = BTreeSet<&'static str>;

/// Checks `message` and makes it ours: own Message-ID, a Date, List-Unsubscribe, no Bcc.
///
/// # Errors
/// Every fault of the message under `raw`; a From of another domain than that of `from` under `from`.
pub fn rewrite(message: &[u8], submission: &Submission, facts: &ComposeFacts<'_>) -> Result<Composed, Violations> {
    let (message, mut faults, mut violations) = examine(message, Some(&submission.from));
    if violations.by_field().contains_key("raw") {
        return Err(violations);
    }
    let (fields, body) = section::split(&message);
    let bytes = rewritten(&fields, body, submission, facts);
    if bytes.len() > MESSAGE_BYTES {
        faults.insert("makes the message larger than 20 MiB");
    }
    for sentence in faults {
        violations.add("raw", sentence);
    }
    let local_parts = submission.from.needs_smtputf8() || submission.to.needs_smtputf8();
    violations.or(|| {
        Some(Composed {
            subject: decoded_subject(&fields),
            eight_bit: !bytes.is_ascii(),
            smtputf8: local_parts || !bytes[..bytes.len() - body.len()].is_ascii(),
            received_count: fields.iter().filter(|field| field.is("Received")).count(),
            waives_tls: waives_tls(fields.iter().filter(|field| field.is(TLS_REQUIRED)).map(Field::unfolded)),
            bytes,
        })
    })
}

/// The faults of `message` as far as it and its sender tell them, where the submission has others beside.
pub fn faults(message: &[u8], from: Option<&Address>) -> Violations {
    let (_, faults, mut violations) = examine(message, from);
    for sentence in faults {
        violations.add("raw", sentence);
    }
    violations
}

/// The message with CRLF line ends, its faults, and those under other names. A header section that is too long is not
/// read any further: megabytes of fields would cost much memory, only to be refused.
fn examine(message: &[u8], from: Option<&Address>) -> (Vec<u8>, Faults, Violations) {
    let (mut faults, mut violations) = (Faults::new(), Violations::new());
    let message = with_crlf(message, &mut faults);
    if section::header_length(&message) > RAW_HEADER_SECTION_BYTES {
        violations.add("raw", "the header section must be at most 64 KiB");
        return (message, Faults::new(), violations);
    }
    let (fields, _) = section::split(&message);
    check_fields(&fields, &mut faults);
    check_from(&fields, from, &mut faults, &mut violations);
    if structure::is_deeper_than(&message, MIME_DEPTH_COUNT) {
        faults.insert("MIME parts must be nested at most 20 deep");
    }
    (message, faults, violations)
}

/// The message with CRLF for LF, its last line ended. What can't be mended is a fault.
pub(super) fn with_crlf(message: &[u8], faults: &mut Faults) -> Vec<u8> {
    let mut out = Vec::with_capacity(message.len() + message.len() / 32 + 2);
    for line in lines(message) {
        check_line(line, faults);
        out.extend_from_slice(line);
        out.extend_from_slice(b"\r\n");
    }
    out
}

/// The same for a message that has them already in most cases: then it is not copied.
pub(super) fn into_crlf(message: Vec<u8>, faults: &mut Faults) -> Vec<u8> {
    let is_ended = message.is_empty() || message.ends_with(b"\r\n");
    let has_bare_lf = memchr_iter(b'\n', &message).any(|place| place == 0 || message[place - 1] != b'\r');
    if !is_ended || has_bare_lf {
        return with_crlf(&message, faults);
    }
    lines(&message).for_each(|line| check_line(line, faults));
    message
}

/// The lines of a message without their line ends, be they CRLF or LF.
fn lines(message: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = message;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (whole, after) = rest.split_at(line_length(rest));
        rest = after;
        Some(match whole.strip_suffix(b"\n") {
            Some(line) => line.strip_suffix(b"\r").unwrap_or(line),
            None => whole,
        })
    })
}

fn check_line(line: &[u8], faults: &mut Faults) {
    if memchr(b'\r', line).is_some() {
        faults.insert("must not have a CR without LF");
    }
    if memchr(0, line).is_some() {
        faults.insert("must not have NUL characters");
    }
    if line.len() > LINE_BYTES {
        faults.insert("must not have lines of more than 998 bytes");
    }
}

pub(super) fn check_fields(fields: &[Field<'_>], faults: &mut Faults) {
    for field in fields {
        if field.value.is_none() {
            faults.insert("every header line must have a name and a colon; an empty line ends the headers");
        } else if field.name.is_empty() || !field.name.iter().all(u8::is_ascii_graphic) {
            // `From : x` is obsolete syntax (RFC 5322 4.5) that only some readers take for a From.
            faults.insert("header names must be printable ASCII, without a space before the colon");
        }
    }
    for name in SINGLE_FIELDS {
        if fields.iter().filter(|field| field.is(name)).count() > 1 {
            faults.insert("must not have a second From, To, Subject, Date, Message-ID, Sender or Reply-To");
        }
    }
    if fields.iter().any(|field| FEEDBACK_NAMES.iter().any(|name| field.is(name))) {
        faults.insert("must not have Feedback-ID, CFBL-Address or CFBL-Feedback-ID: the service writes them");
    }
}

/// The one From mailbox stands at the domain that was checked to be the account's (contract 3).
fn check_from(fields: &[Field<'_>], sender: Option<&Address>, faults: &mut Faults, violations: &mut Violations) {
    let Some(from) = fields.iter().find(|field| field.is("From")) else {
        faults.insert("must have a From header");
        return;
    };
    let list = mailbox::list(&from.unfolded()).unwrap_or_default();
    let [named] = list.as_slice() else {
        faults.insert("the From header must have exactly one mailbox");
        return;
    };
    if sender.is_some_and(|sender| sender.domain() != named.address.domain()) {
        violations.add("from", "must have the same domain as the From header of raw");
    }
}

fn rewritten(fields: &[Field<'_>], body: &[u8], submission: &Submission, facts: &ComposeFacts<'_>) -> Vec<u8> {
    let length: usize = fields.iter().map(|field| field.whole.len()).sum();
    let mut out = Vec::with_capacity(length + body.len() + 4096);
    field::plain(&mut out, "Message-ID", &message_id_header(facts.message_id, &submission.from));
    if !fields.iter().any(|field| field.is("Date")) {
        field::plain(&mut out, "Date", &facts.at.to_rfc5322());
    }
    write_unsubscribe(&mut out, submission, facts);
    let named = |field: &Field<'_>, names: &[&str]| names.iter().any(|name| field.is(name));
    for field in fields {
        let replaced = submission.unsubscribe_url.is_some() && named(field, &REPLACED_FIELDS);
        if field.is("Message-ID") {
            keep_original_id(&mut out, field);
        } else if !replaced && !named(field, &REMOVED_FIELDS) {
            out.extend_from_slice(field.whole);
        }
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(body);
    out
}

/// The caller's Message-ID under its new name, which is longer: a line that it makes too long is folded.
pub(super) fn keep_original_id(out: &mut Vec<u8>, field: &Field<'_>) {
    let value = field.value.unwrap_or(b"\r\n");
    out.extend_from_slice(ORIGINAL_ID.as_bytes());
    out.push(b':');
    let first = line_length(value);
    if ORIGINAL_ID.len() + 1 + first > LINE_BYTES && !value[..first].trim_ascii().is_empty() {
        out.extend_from_slice(b"\r\n ");
        out.extend_from_slice(value.trim_ascii_start());
    } else {
        out.extend_from_slice(value);
    }
}

/// The Subject as a reader sees it. Control characters that an encoded word hid become spaces.
pub(super) fn decoded_subject(fields: &[Field<'_>]) -> Option<String> {
    let subject = fields.iter().find(|field| field.is("Subject"))?;
    let parsed = MessageParser::default().parse_headers(subject.whole);
    let text = parsed.as_ref().and_then(|message| message.subject()).unwrap_or_default();
    Some(text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_message_that_is_not_copied_is_the_one_that_would_be(message in "[ab\r\n\0]{0,40}(\r\n)?") {
            let (mut faults, mut other_faults) = (Faults::new(), Faults::new());
            let copied = with_crlf(message.as_bytes(), &mut faults);
            prop_assert_eq!(into_crlf(message.into_bytes(), &mut other_faults), copied);
            prop_assert_eq!(faults, other_faults);
        }
    }
}
