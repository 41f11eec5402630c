//! View of a message (contract 3). A single message has its content and timeline, a message in a list has neither.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;

use crate::base::id::{self, MessageId};
use crate::base::time::{Timestamp, iso};
use crate::domain::event::{EventRecord, TlsFacts};
use crate::domain::stream::Stream;
use crate::engine::messages::MessageRecord;
use crate::engine::wait_reason::{Wait, WaitReason};
use crate::http::openapi::shape::describe;
use crate::http::view::submission::SubmissionView;
use crate::machine::transfer::Status;
use crate::mail::read::{self, AttachedFile, ListFields};
use crate::store::row::message::MessageRow;

/// Content of a message, read from the stored message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::http) struct ContentView {
    parts: read::ReadParts,
    raw: Option<String>,
}

impl ContentView {
    /// Reads the content of `signed`. `raw` is set only if the caller sent a whole message; it is base64 if it is not
    /// UTF-8.
    pub(in crate::http) fn of(signed: Vec<u8>, row: &MessageRow, list_fields: ListFields) -> Self {
        let mut parts = read::parts_of(&signed, list_fields);
        for (body, ends_line) in [(&mut parts.text, row.text_ends_line), (&mut parts.html, row.html_ends_line)] {
            if ends_line && let Some(body) = body {
                body.push('\n');
            }
        }
        let raw = row
            .is_raw
            .then(|| String::from_utf8(signed).unwrap_or_else(|not_text| STANDARD.encode(not_text.as_bytes())));
        Self { parts, raw }
    }

    /// Returns the content.
    pub(in crate::http) fn into_parts(self) -> read::ReadParts {
        self.parts
    }
}

/// A member of the content: absent in lists (`None`), null once the content is gone (`Some(None)`).
type OfContent<T> = Option<Option<T>>;

/// A message. The serialised `events` are appended.
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
    waiting: Option<WaitView<'a>>,
    #[serde(serialize_with = "iso::option::serialize")]
    delivered_at: Option<Timestamp>,
    relay: Option<&'a str>,
    mx_host: Option<&'a str>,
    smtp_code: Option<u16>,
    smtp_enhanced_code: Option<&'a str>,
    smtp_response: Option<&'a str>,
    tls: Option<&'a TlsFacts>,
    submission: Option<SubmissionView<'a>>,
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

/// The reason for which a message waits.
#[derive(Serialize)]
pub(in crate::http) struct WaitView<'a> {
    reason: WaitReason,
    #[serde(serialize_with = "iso::serialize")]
    since: Timestamp,
    #[serde(serialize_with = "iso::option::serialize")]
    until: Option<Timestamp>,
    detail: &'a str,
}

impl<'a> WaitView<'a> {
    fn new(wait: &'a Wait) -> Self {
        Self { reason: wait.reason, since: wait.since, until: wait.until, detail: &wait.detail }
    }
}

impl<'a> MessageView<'a> {
    /// Returns the record as shown in lists.
    pub(in crate::http) fn in_list(record: &'a MessageRecord, now: Timestamp) -> Self {
        let MessageRecord { id, row, transfer, next_attempt_at, waiting } = record;
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
            size_bytes: row.size_bytes,
            status_at: transfer.status_at,
            attempts: transfer.attempts,
            next_attempt_at: *next_attempt_at,
            waiting: waiting.as_ref().map(WaitView::new),
            delivered_at: transfer.delivered_at,
            relay: last.relay.as_deref(),
            mx_host: last.mx_host.as_deref(),
            smtp_code: last.smtp_code,
            smtp_enhanced_code: last.smtp_enhanced_code.as_deref(),
            smtp_response: last.smtp_response.as_deref(),
            tls: last.tls.as_ref(),
            submission: row.submission.as_deref().map(SubmissionView::new),
            expires_at: row.expires_at,
            text: None,
            html: None,
            raw: None,
            attachments: None,
            content_expires_at: row.content_expires_at,
            content_deleted_at: (bucket <= now).then_some(bucket),
        }
    }

    /// Returns the record with its content, or with nulls if the content is gone.
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

    /// Returns the record as JSON, with the stored bytes of `events` inserted.
    pub(in crate::http) fn with_events(&self, events: &[Vec<u8>]) -> Result<Vec<u8>, serde_json::Error> {
        let mut json = serde_json::to_vec(self)?;
        json.pop();
        json.extend_from_slice(b",\"events\":[");
        json.extend_from_slice(&events.join(&b','));
        json.extend_from_slice(b"]}");
        Ok(json)
    }
}

describe! {
    WaitView<'_> as "Waiting", "The reason why a message waits."
    {
        reason: "The kind of obstacle.",
        since: "The start of the obstacle, if it is known.",
        until: "The end of the obstacle; null if it is unknown." => |schema| schema.example(()),
        detail: "The obstacle in one sentence, for people. The wording may change."
            => |schema| schema.example("mx1.example.org is throttled since it answered 421 4.7.28."),
    }
}

describe! {
    MessageView<'_> as "Message", "A message as lists show it."
    {
        id: "The message's identifier.",
        message_id_header: "The message's Message-ID, in angle brackets."
            => |schema| schema.example("<msg_01M7XS2DXANT70XBRCN1YAAC4B@example.test>"),
        status: "The message's status." => |schema| schema.example("delivered"),
        stream: "The message's stream, which is the stream of its domain.",
        from: "The sender, as sent." => |schema| schema.example("hello@example.test"),
        to: "The recipient, as sent." => |schema| schema.example("you@example.org"),
        subject: "The subject; null without one." => |schema| schema.example("Hello"),
        created_at: "Time of acceptance.",
        from_name: "The sender's display name." => |schema| schema.example("Example Ltd"),
        metadata: "The sender's own data." => |schema| schema.example(serde_json::json!({"order": "1001"})),
        unsubscribe_url: "The unsubscribe URL." => |schema| schema.example(()),
        size_bytes: "The size of the signed message." => |schema| schema.example(1_874),
        status_at: "Time of the last change of status.",
        attempts: "Attempts so far." => |schema| schema.example(1),
        next_attempt_at: "Time of the next attempt, or the earliest one while the receiver is throttled."
            => |schema| schema.example(()),
        waiting: "The reason why it waits; null once it is finished." => |schema| schema.example(()),
        delivered_at: "Time at which the receiver's server accepted it.",
        relay: "The relay of the last attempt." => |schema| schema.example("direct"),
        mx_host: "The mail server of the last attempt." => |schema| schema.example("mx1.example.org"),
        smtp_code: "Reply code of the last attempt's server." => |schema| schema.example(250),
        smtp_enhanced_code: "Enhanced code of the reply (RFC 3463)." => |schema| schema.example("2.0.0"),
        smtp_response: "The full reply as received."
            => |schema| schema.example("250 2.0.0 Ok: queued as 4XyZ12"),
        tls: "TLS of the last attempt's connection; null without TLS.",
        submission: "Facts about the SMTP submission; null for a message submitted by HTTP." =>
            |schema| schema.example(()),
        expires_at: "Time at which delivery attempts end." => |schema| schema.example(()),
        content_expires_at: "Time at which its content is deleted." =>
            |schema| schema.example("2026-12-20T15:04:05.123+00:00"),
        content_deleted_at: "Time at which its content was deleted; null while it is kept."
            => |schema| schema.example(()),
    }
    whole "MessageRecord",
    "A message with its timeline. `text`, `html`, `raw`, `headers` and `attachments` are null once the content is gone."
    {
        headers: "Custom headers." => |schema| schema.example(serde_json::json!({"Reply-To": "help@example.test"})),
        text: "The plain text." => |schema| schema.example("It works."),
        html: "The HTML." => |schema| schema.example(()),
        raw: "The whole message, if it was submitted as one; base64 if it is not UTF-8."
            => |schema| schema.example(()),
        attachments: "The files." => |schema| schema.example(serde_json::json!([])),
    }
    plus { "events": Vec<EventRecord<'_>>, "Timeline, oldest event first." }
}
