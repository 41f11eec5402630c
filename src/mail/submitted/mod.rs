//! A message submitted by a program over SMTP: parsed once for all recipients, and written once per recipient.
//!
//! The rules are those of `raw`: line ends become CRLF, Bcc is removed, and everything else stays byte for byte. In
//! addition, `X-Service-*` headers set options and are removed, and the client's Message-ID remains searchable. The
//! copies differ only in their header section, so the body is hashed and compressed once.

mod fingerprint;
mod identity;
mod steering;
#[cfg(test)]
mod tests;

pub use steering::Steering;

use std::ops::Range;

use super::compose::{ComposedMessage, TLS_REQUIRED, waives_tls, write_list_headers};
use super::field;
use super::mailbox::{self, Mailbox};
use super::raw::{self, Faults, REMOVED_FIELDS, REPLACED_FIELDS};
use super::read::decoded_text;
use super::section::{self, Field};
use super::structure;
use crate::base::id::MessageId;
use crate::base::time::Timestamp;
use crate::domain::address::Address;
use crate::domain::limits::{MESSAGE_BYTES, RAW_HEADER_SECTION_BYTES, RECEIVED_HEADERS_COUNT};
use crate::domain::submission::SubmissionLimits;
use crate::domain::unsubscribe_url::UnsubscribeUrl;
use crate::domain::violation::Violations;

/// Reasons for not accepting a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unsubmitted {
    /// The header section is longer than 64 KiB.
    HeaderTooLong,
    /// The message is longer than 20 MiB, before or after our changes.
    TooLong,
    /// Violations by header; those of the message as a whole are under `message`.
    Invalid(Violations),
}

/// Facts for reading a message.
#[derive(Clone, Copy, Debug)]
pub struct ReadingFacts<'a> {
    /// The path of MAIL FROM, which becomes From if that is missing.
    pub mail_from: &'a str,
    /// The configured limits.
    pub limits: SubmissionLimits,
}

/// Facts for writing one recipient's copy.
#[derive(Clone, Copy, Debug)]
pub struct CopyFacts<'a> {
    /// Reserved message ID.
    pub id: MessageId,
    /// Time of acceptance.
    pub at: Timestamp,
    /// Whether a valid Message-ID of the client is kept.
    pub keeps_message_id: bool,
    /// Our hosted link that replaces the client's list headers.
    pub hosted_unsubscribe: Option<&'a UnsubscribeUrl>,
}

/// A complete, checked message.
#[derive(Debug)]
pub struct SubmittedMessage {
    /// The message with only CRLF line ends.
    message: Vec<u8>,
    body: Range<usize>,
    has_from: bool,
    /// The sender.
    pub from: Address,
    /// The sender's decoded display name.
    pub from_name: Option<String>,
    /// The decoded subject.
    pub subject: Option<String>,
    /// The first https URL of List-Unsubscribe.
    pub unsubscribe_url: Option<UnsubscribeUrl>,
    /// The values of the `X-Service-*` headers.
    pub steering: Steering,
    /// The unfolded Message-ID of the client.
    pub original_message_id: Option<String>,
    /// Whether that Message-ID is valid.
    pub has_valid_message_id: bool,
    waives_tls: bool,
    body_is_ascii: bool,
}

impl SubmittedMessage {
    /// Parses and checks a message.
    ///
    /// # Errors
    /// [`Unsubmitted`], with all violations at once.
    pub fn read(message: Vec<u8>, facts: &ReadingFacts<'_>) -> Result<Self, Unsubmitted> {
        let mut faults = Faults::new();
        let message = raw::into_crlf(message, &mut faults);
        if section::header_length(&message) > RAW_HEADER_SECTION_BYTES {
            return Err(Unsubmitted::HeaderTooLong);
        }
        if message.len() > MESSAGE_BYTES {
            return Err(Unsubmitted::TooLong);
        }
        let (fields, body) = section::split(&message);
        raw::check_fields(&fields, &mut faults);
        check_shape(&message, &fields, &mut faults);
        let mut violations = Violations::new();
        let from = sender(&fields, facts.mail_from, &mut faults);
        let steering = Steering::read(&fields, facts, &mut violations);
        faults.into_iter().for_each(|sentence| violations.add("message", sentence));
        let (Some(from), Some(steering), true) = (from, steering, violations.is_empty()) else {
            return Err(Unsubmitted::Invalid(violations));
        };
        let original_message_id = fields.iter().find(|field| field.is("Message-ID")).map(Field::unfolded);
        let required = fields.iter().filter(|field| field.is(TLS_REQUIRED)).map(Field::unfolded);
        let body = message.len() - body.len()..message.len();
        let read = Self {
            has_from: fields.iter().any(|field| field.is("From")),
            from_name: from.display.as_deref().map(shown).filter(|name| !name.trim().is_empty()),
            from: from.address,
            subject: raw::decoded_subject(&fields),
            unsubscribe_url: unsubscribe_url(&fields),
            steering,
            has_valid_message_id: original_message_id.as_deref().is_some_and(identity::is_valid),
            original_message_id: original_message_id.filter(|id| !id.is_empty()),
            waives_tls: waives_tls(required),
            body_is_ascii: message[body.clone()].is_ascii(),
            body,
            message,
        };
        // The header section of every copy has the same length.
        let facts = CopyFacts {
            id: MessageId::default(),
            at: facts.limits.now,
            keeps_message_id: false,
            hosted_unsubscribe: None,
        };
        let length = read.head(&facts).len() + read.body.len();
        if length > MESSAGE_BYTES { Err(Unsubmitted::TooLong) } else { Ok(read) }
    }

    /// Returns the body, with only CRLF line ends.
    pub fn body(&self) -> &[u8] {
        &self.message[self.body.clone()]
    }

    /// Returns the digest that is equal for submissions of the same message, even if dates, boundaries or encodings
    /// differ.
    pub fn fingerprint(&self) -> [u8; 32] {
        fingerprint::of(&self.message, &self.from, self.subject.as_deref())
    }

    /// Returns the header section of a copy, including the empty line at its end.
    pub fn head(&self, facts: &CopyFacts<'_>) -> Vec<u8> {
        let (fields, _) = section::split(&self.message[..self.body.start]);
        let mut out = Vec::with_capacity(self.body.start + 2048);
        let keeps_id = facts.keeps_message_id && self.has_valid_message_id;
        if !keeps_id {
            field::plain(&mut out, "Message-ID", &super::compose::message_id_header(facts.id, &self.from));
        }
        if !fields.iter().any(|field| field.is("Date")) {
            field::plain(&mut out, "Date", &facts.at.to_rfc5322());
        }
        if !self.has_from {
            field::plain(&mut out, "From", &self.from.to_wire());
        }
        if let Some(url) = facts.hosted_unsubscribe {
            write_list_headers(&mut out, url);
        }
        let threaded = (!keeps_id).then(|| identity::references(&fields)).flatten();
        let named = |field: &Field<'_>, names: &[&str]| names.iter().any(|name| field.is(name));
        for field in &fields {
            let is_replaced = facts.hosted_unsubscribe.is_some() && named(field, &REPLACED_FIELDS)
                || threaded.is_some() && field.is("References");
            if field.is("Message-ID") && !keeps_id {
                raw::keep_original_id(&mut out, field);
            } else if !is_replaced && !named(field, &REMOVED_FIELDS) && !steering::is_steering(field) {
                out.extend_from_slice(field.whole);
            }
        }
        out.extend_from_slice(&threaded.unwrap_or_default());
        out.extend_from_slice(b"\r\n");
        out
    }

    /// Returns the properties of the copy with this header section, without its bytes.
    pub fn composed(&self, head: &[u8], to: &Address) -> ComposedMessage {
        let local_parts = self.from.needs_smtputf8() || to.needs_smtputf8();
        ComposedMessage {
            bytes: Vec::new(),
            subject: self.subject.clone(),
            eight_bit: !self.body_is_ascii || !head.is_ascii(),
            smtputf8: local_parts || !head.is_ascii(),
            received_count: 0,
            waives_tls: self.waives_tls,
        }
    }
}

/// Returns the unfolded From header of a message that may be refused; empty if there is none.
pub fn from_text(message: &[u8]) -> String {
    let head = &message[..message.len().min(RAW_HEADER_SECTION_BYTES)];
    let head = raw::with_crlf(head, &mut Faults::new());
    let (fields, _) = section::split(&head);
    fields.iter().find(|field| field.is("From")).map(Field::unfolded).unwrap_or_default()
}

/// Returns the trace field of a copy (RFC 5321 4.4). It reveals nothing about the client.
pub fn received(hostname: &str, id: MessageId, at: Timestamp) -> Vec<u8> {
    let mut out = Vec::new();
    field::plain(&mut out, "Received", &format!("by {hostname} with ESMTPSA id {id}; {}", at.to_rfc5322()));
    out
}

fn check_shape(message: &[u8], fields: &[Field<'_>], faults: &mut Faults) {
    faults.extend(structure::fault(message));
    if fields.iter().filter(|field| field.is("Received")).count() > RECEIVED_HEADERS_COUNT {
        faults.insert("has more than 50 Received headers: possible mail loop");
    }
}

/// Returns the one mailbox of From, or that of MAIL FROM if there is no From.
fn sender(fields: &[Field<'_>], mail_from: &str, faults: &mut Faults) -> Option<Mailbox> {
    let Some(from) = fields.iter().find(|field| field.is("From")) else {
        let address = mail_from.parse().ok();
        if address.is_none() {
            faults.insert("must have a From header, because MAIL FROM is not an address that could replace it");
        }
        return address.map(|address| Mailbox { display: None, address });
    };
    let mut list = mailbox::list(&from.unfolded()).unwrap_or_default();
    if list.len() != 1 {
        faults.insert("the From header must have exactly one mailbox, at a domain such as example.com");
        return None;
    }
    list.pop()
}

/// Returns a display name as shown to a reader. Control characters hidden in an encoded word become spaces.
fn shown(display: &str) -> String {
    decoded_text(display).chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Returns the first https URL in angle brackets (RFC 2369 2: white space inside them is ignored).
fn unsubscribe_url(fields: &[Field<'_>]) -> Option<UnsubscribeUrl> {
    let value = fields.iter().find(|field| field.is("List-Unsubscribe"))?.unfolded();
    let bracketed = value.split('<').skip(1).filter_map(|rest| Some(rest.split_once('>')?.0));
    let urls = bracketed.filter_map(|url| url.split_whitespace().collect::<String>().parse::<UnsubscribeUrl>().ok());
    urls.into_iter().find(UnsubscribeUrl::is_https)
}
