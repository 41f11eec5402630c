//! Postmark's message details, with the message events.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::email::TAG;
use crate::base::id::{self, MessageId};
use crate::base::time::{Timestamp, iso};
use crate::domain::stream::Stream;
use crate::engine::messages::MessageRecord;
use crate::http::compat::shown_message::{Content, sender};
use crate::machine::transfer::Status;

/// Details of a message.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Details<'a> {
    #[serde(rename = "MessageID", serialize_with = "id::as_text")]
    message_id: MessageId,
    message_stream: &'static str,
    to: [Recipient<'a>; 1],
    cc: [&'a str; 0],
    bcc: [&'a str; 0],
    recipients: [&'a str; 1],
    #[serde(serialize_with = "iso::serialize")]
    received_at: Timestamp,
    from: String,
    subject: Option<&'a str>,
    attachments: Vec<&'a str>,
    status: &'static str,
    tag: Option<&'a str>,
    metadata: BTreeMap<&'a str, &'a str>,
    track_opens: bool,
    track_links: &'static str,
    sandboxed: bool,
    text_body: Option<&'a str>,
    html_body: Option<&'a str>,
    body: Option<&'a str>,
    message_events: Vec<MessageEvent>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Recipient<'a> {
    email: &'a str,
    name: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct MessageEvent {
    recipient: String,
    r#type: &'static str,
    received_at: String,
    details: EventDetails,
}

#[derive(Serialize)]
#[serde(untagged)]
enum EventDetails {
    #[serde(rename_all = "PascalCase")]
    Transfer {
        delivery_message: String,
        destination_server: String,
        #[serde(rename = "DestinationIP")]
        destination_ip: String,
    },
    #[serde(rename_all = "PascalCase")]
    Bounce {
        summary: String,
        #[serde(rename = "BounceID")]
        bounce_id: u64,
    },
}

/// Members of our event that Postmark's form shows.
#[derive(Deserialize)]
struct Event {
    r#type: String,
    to: String,
    created_at: String,
    smtp_response: Option<String>,
    mx_host: Option<String>,
    mx_ip: Option<String>,
    bounce: Option<Bounce>,
}

#[derive(Deserialize)]
struct Bounce {
    advice: String,
}

impl<'a> Details<'a> {
    /// Returns the details of a record. `events` are the JSON bytes of its timeline, oldest first.
    pub(super) fn of(record: &'a MessageRecord, content: Option<&'a Content>, events: &[Vec<u8>]) -> Self {
        let MessageRecord { id, row, transfer, .. } = record;
        let email = row.to.as_given();
        let parts = content.map(|content| &content.parts);
        let files = parts.map(|parts| parts.attachments.as_slice()).unwrap_or_default();
        let metadata = row.metadata.iter().filter(|(name, _)| *name != TAG);
        Self {
            message_id: *id,
            message_stream: stream(row.stream),
            to: [Recipient { email, name: content.and_then(|content| content.to_name.as_deref()) }],
            cc: [],
            bcc: [],
            recipients: [email],
            received_at: row.created_at,
            from: sender(record),
            subject: row.subject.as_deref(),
            attachments: files.iter().filter_map(|file| file.filename.as_deref()).collect(),
            status: status(transfer.state.status()),
            tag: row.metadata.get(TAG).map(String::as_str),
            metadata: metadata.map(|(name, value)| (name.as_str(), value.as_str())).collect(),
            track_opens: false,
            track_links: "None",
            sandboxed: false,
            text_body: parts.and_then(|parts| parts.text.as_deref()),
            html_body: parts.and_then(|parts| parts.html.as_deref()),
            body: content.map(|content| content.raw.as_str()),
            message_events: events.iter().filter_map(|event| message_event(event)).collect(),
        }
    }
}

const fn stream(stream: Stream) -> &'static str {
    match stream {
        Stream::Transactional => "outbound",
        Stream::Marketing => "broadcast",
    }
}

const fn status(status: Status) -> &'static str {
    match status {
        Status::Queued | Status::Deferred => "Queued",
        Status::Delivered
        | Status::Bounced
        | Status::Failed
        | Status::Complained
        | Status::Suppressed
        | Status::Canceled => "Sent",
    }
}

/// Converts an event to Postmark's form. Returns `None` for types that Postmark lacks.
fn message_event(event: &[u8]) -> Option<MessageEvent> {
    let event: Event = serde_json::from_slice(event).ok()?;
    let Event { smtp_response, bounce, .. } = event;
    // Without a server response, our advice explains the failure.
    let said = smtp_response.or_else(|| bounce.map(|bounce| bounce.advice)).unwrap_or_default();
    let transfer = |delivery_message| EventDetails::Transfer {
        delivery_message,
        destination_server: event.mx_host.unwrap_or_default(),
        destination_ip: event.mx_ip.unwrap_or_default(),
    };
    let (kind, details) = match event.r#type.as_str() {
        "delivered" => ("Delivered", transfer(said)),
        "deferred" => ("Transient", transfer(said)),
        "bounced" => ("Bounced", EventDetails::Bounce { summary: said, bounce_id: 0 }),
        _ => return None,
    };
    Some(MessageEvent { recipient: event.to, r#type: kind, received_at: event.created_at, details })
}
