//! The caller's own message (contract 3, `raw`): parsed strictly, changed only as specified in the contract, and
//! otherwise kept byte for byte.
//!
//! The result has only CRLF line ends. Two servers therefore never disagree about its line ends, so a message can't
//! smuggle in another one.

use std::collections::BTreeSet;

use mail_parser::MessageParser;
use memchr::{memchr, memchr_iter};

use super::compose::{ComposeFacts, ComposedMessage, TLS_REQUIRED, message_id_header, waives_tls, write_unsubscribe};
use super::field;
use super::mailbox;
use super::section::{self, Field, line_length};
use super::structure;
use crate::domain::address::Address;
use crate::domain::header::FEEDBACK_NAMES;
use crate::domain::limits::{LINE_BYTES, MESSAGE_BYTES, RAW_HEADER_SECTION_BYTES};
use crate::domain::submission::Submission;
use crate::domain::violation::Violations;

/// Fields that a message may have at most once (RFC 5322 3.6). Receivers differ in which of two they show.
const SINGLE_FIELDS: [&str; 7] = ["From", "To", "Subject", "Date", "Message-ID", "Sender", "Reply-To"];
/// Fields that must not be sent: Bcc and Resent-Bcc name other recipients, and only the last server writes Return-Path.
pub(super) const REMOVED_FIELDS: [&str; 3] = ["Bcc", "Resent-Bcc", "Return-Path"];
/// Fields that `unsubscribe_url` replaces.
pub(super) const REPLACED_FIELDS: [&str; 2] = ["List-Unsubscribe", "List-Unsubscribe-Post"];
/// New name of the caller's Message-ID.
const ORIGINAL_ID: &str = "X-Original-Message-ID";

/// The violations of `raw` by sentence, without duplicates.
pub(super) type Faults = BTreeSet<&'static str>;

/// Checks `message` and applies our changes: our own Message-ID, a Date, List-Unsubscribe, no Bcc.
///
/// # Errors
/// All violations of the message under `raw`; a From domain that differs from that of `from` under `from`.
pub fn rewrite(
    message: &[u8],
    submission: &Submission,
    facts: &ComposeFacts<'_>,
) -> Result<ComposedMessage, Violations> {
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
        Some(ComposedMessage {
            subject: decoded_subject(&fields),
            eight_bit: !bytes.is_ascii(),
            smtputf8: local_parts || !bytes[..bytes.len() - body.len()].is_ascii(),
            received_count: fields.iter().filter(|field| field.is("Received")).count(),
            waives_tls: waives_tls(fields.iter().filter(|field| field.is(TLS_REQUIRED)).map(Field::unfolded)),
            bytes,
        })
    })
}

/// Returns the violations of `message` that can be found without the rest of the submission, when that has violations
/// too.
pub fn faults(message: &[u8], from: Option<&Address>) -> Violations {
    let (_, faults, mut violations) = examine(message, from);
    for sentence in faults {
        violations.add("raw", sentence);
    }
    violations
}

/// Returns the message with CRLF line ends, its violations, and those under other names. A header section that is too
/// long is not parsed further: megabytes of fields would use much memory, only to be refused.
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
    faults.extend(structure::fault(&message));
    (message, faults, violations)
}

/// Converts LF to CRLF and ends the last line. Line ends that can't be converted are violations.
pub(super) fn with_crlf(message: &[u8], faults: &mut Faults) -> Vec<u8> {
    let mut out = Vec::with_capacity(message.len() + message.len() / 32 + 2);
    for line in lines(message) {
        check_line(line, faults);
        out.extend_from_slice(line);
        out.extend_from_slice(b"\r\n");
    }
    out
}

/// Converts the line ends of a message that usually has CRLF already. In that case it is not copied.
pub(super) fn into_crlf(message: Vec<u8>, faults: &mut Faults) -> Vec<u8> {
    let is_ended = message.is_empty() || message.ends_with(b"\r\n");
    let has_bare_lf = memchr_iter(b'\n', &message).any(|place| place == 0 || message[place - 1] != b'\r');
    if !is_ended || has_bare_lf {
        return with_crlf(&message, faults);
    }
    lines(&message).for_each(|line| check_line(line, faults));
    message
}

/// Splits a message into lines without their line ends, CRLF or LF.
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
            // `From : x` is obsolete syntax (RFC 5322 4.5) that only some programs read as a From.
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

/// Checks that the one From mailbox is at the domain that was verified as the account's (contract 3).
fn check_from(fields: &[Field<'_>], sender: Option<&Address>, faults: &mut Faults, violations: &mut Violations) {
    let Some(from) = fields.iter().find(|field| field.is("From")) else {
        faults.insert("must have a From header");
        return;
    };
    let list = mailbox::list(&from.unfolded()).unwrap_or_default();
    let [named] = list.as_slice() else {
        faults.insert("the From header must have exactly one mailbox, at a domain such as example.com");
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

/// Writes the caller's Message-ID under its new, longer name. A line that becomes too long is folded.
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

/// Returns the Subject as shown to a reader. Control characters hidden in an encoded word become spaces.
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
        fn converting_without_a_copy_gives_the_same_message(message in "[ab\r\n\0]{0,40}(\r\n)?") {
            let (mut faults, mut other_faults) = (Faults::new(), Faults::new());
            let copied = with_crlf(message.as_bytes(), &mut faults);
            prop_assert_eq!(into_crlf(message.into_bytes(), &mut other_faults), copied);
            prop_assert_eq!(faults, other_faults);
        }
    }
}
