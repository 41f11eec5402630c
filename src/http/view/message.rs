//! A message's record (contract 3): alone with its content and timeline, in lists without both.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;

use crate::base::id::{self, MessageId};
use crate::base::time::{Timestamp, iso};
use crate::domain::event::TlsFacts;
use crate::domain::stream::Stream;
use crate::engine::messages::MessageRecord;
use crate::machine::transfer::Status;
use crate::mail::read::{self, AttachedFile, ListFields};

/// What was sent, taken out of the stored message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::http) struct ContentView {
    parts: read::Parts,
    raw: Option<String>,
}

impl ContentView {
    /// What `signed` holds; `raw` only where the caller sent a whole message, as base64 where that is not UTF-8.
    pub(in crate::http) fn of(signed: Vec<u8>, is_raw: bool, list_fields: ListFields) -> Self {
        let parts = read::parts_of(&signed, list_fields);
        let raw =
            is_raw.then(|| String::from_utf8(signed).unwrap_or_else(|not_text| STANDARD.encode(not_text.as_bytes())));
        Self { parts, raw }
    }
}

/// A member of the content: absent in lists (none), null once the content is gone (some none).
type OfContent<T> = Option<Option<T>>;

/// A message. `events` follow behind, as the bytes that they are.
#[derive(Serialize)]
pub(in crate::http) struct MessageView<'a> {
    #[serde(serialize_with = "id::as_text")]
    id: MessageId,
    message_id_header: String,
    status: Status,
    stream: Stream,
    from: &'a str,
    to: &'a str,
    subject: Option<&'a str>,
    #[serde(serialize_with = "iso::serialize")]
    created_at: Timestamp,
    from_name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    headers: OfContent<&'a BTreeMap<String, String>>,
    metadata: &'a BTreeMap<String, String>,
    unsubscribe_url: Option<&'a str>,
    size_bytes: u32,
    #[serde(serialize_with = "iso::serialize")]
    status_at: Timestamp,
    attempts: u32,
    #[serde(serialize_with = "iso::option::serialize")]
    next_attempt_at: Option<Timestamp>,
    #[serde(serialize_with = "iso::option::serialize")]
    delivered_at: Option<Timestamp>,
    relay: Option<&'a str>,
    mx_host: Option<&'a str>,
    smtp_code: Option<u16>,
    smtp_enhanced_code: Option<&'a str>,
    smtp_response: Option<&'a str>,
    tls: Option<&'a TlsFacts>,
    #[serde(serialize_with = "iso::option::serialize")]
    expires_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: OfContent<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    html: OfContent<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    raw: OfContent<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    attachments: OfContent<&'a [AttachedFile]>,
    #[serde(serialize_with = "iso::serialize")]
    content_expires_at: Timestamp,
    #[serde(serialize_with = "iso::option::serialize")]
    content_deleted_at: Option<Timestamp>,
}

impl<'a> MessageView<'a> {
    /// The record as lists show it.
    pub(in crate::http) fn in_list(record: &'a MessageRecord, now: Timestamp) -> Self {
        let MessageRecord { id, row, transfer } = record;
        let last = &transfer.last;
        let bucket = row.place.bucket;
        Self {
            id: *id,
            message_id_header: row.message_id_header(*id),
            status: transfer.state.status(),
            stream: row.stream,
            from: row.from.as_given(),
            to: row.to.as_given(),
            subject: row.subject.as_deref(),
            created_at: row.created_at,
            from_name: row.from_name.as_deref(),
            headers: None,
            metadata: &row.metadata,
            unsubscribe_url: row.unsubscribe_url.as_deref(),
            size_bytes: row.size_octets,
            status_at: transfer.status_at,
            attempts: transfer.attempts,
            // What is due at the very end is no attempt any more.
            next_attempt_at: transfer.due.filter(|due| *due < row.give_up_at),
            delivered_at: transfer.delivered_at,
            relay: last.relay.as_deref(),
            mx_host: last.mx_host.as_deref(),
            smtp_code: last.smtp_code,
            smtp_enhanced_code: last.smtp_enhanced_code.as_deref(),
            smtp_response: last.smtp_response.as_deref(),
            tls: last.tls.as_ref(),
            expires_at: row.expires_at,
            text: None,
            html: None,
            raw: None,
            attachments: None,
            content_expires_at: row.content_expires_at,
            content_deleted_at: (bucket <= now).then_some(bucket),
        }
    }

    /// The record with its content, or with nulls where that is gone.
    pub(in crate::http) fn alone(record: &'a MessageRecord, content: Option<&'a ContentView>, now: Timestamp) -> Self {
        Self {
            headers: Some(content.map(|content| &content.parts.headers)),
            text: Some(content.and_then(|content| content.parts.text.as_deref())),
            html: Some(content.and_then(|content| content.parts.html.as_deref())),
            raw: Some(content.and_then(|content| content.raw.as_deref())),
            attachments: Some(content.map(|content| content.parts.attachments.as_slice())),
            ..Self::in_list(record, now)
        }
    }

    /// The record as JSON, with `events` spliced in as the bytes that were written once.
    pub(in crate::http) fn with_events(&self, events: &[Vec<u8>]) -> Result<Vec<u8>, serde_json::Error> {
        let mut json = serde_json::to_vec(self)?;
        json.pop();
        json.extend_from_slice(b",\"events\":[");
        json.extend_from_slice(&events.join(&b','));
        json.extend_from_slice(b"]}");
        Ok(json)
    }
}
