//! Resend's view of an email.

use serde::Serialize;

use crate::base::id::{self, MessageId};
use crate::base::time::{Timestamp, iso};
use crate::engine::messages::MessageRecord;
use crate::http::compat::mailbox::{Mailbox, split};
use crate::http::compat::shown_message::{Content, sender};
use crate::machine::transfer::Status;

/// An email.
#[derive(Serialize)]
pub(super) struct Email<'a> {
    object: &'static str,
    #[serde(serialize_with = "id::as_text")]
    id: MessageId,
    message_id: String,
    to: [&'a str; 1],
    from: String,
    #[serde(serialize_with = "iso::serialize")]
    created_at: Timestamp,
    subject: Option<&'a str>,
    html: Option<&'a str>,
    text: Option<&'a str>,
    cc: Option<()>,
    bcc: Option<()>,
    reply_to: Option<Vec<String>>,
    tags: Vec<Tag<'a>>,
    scheduled_at: Option<()>,
    last_event: &'static str,
}

/// A metadata pair.
#[derive(Serialize)]
struct Tag<'a> {
    name: &'a str,
    value: &'a str,
}

impl<'a> Email<'a> {
    pub(super) fn of(record: &'a MessageRecord, content: Option<&'a Content>) -> Self {
        let MessageRecord { id, row, transfer, .. } = record;
        let headers = content.map(|content| content.parts.headers.iter());
        let reply_to = headers.and_then(|mut all| all.find(|(name, _)| name.eq_ignore_ascii_case("reply-to")));
        Self {
            object: "email",
            id: *id,
            message_id: row.message_id_header(*id),
            to: [row.to.as_given()],
            from: sender(record),
            created_at: row.created_at,
            subject: row.subject.as_deref(),
            html: content.and_then(|content| content.parts.html.as_deref()),
            text: content.and_then(|content| content.parts.text.as_deref()),
            cc: None,
            bcc: None,
            reply_to: reply_to.map(|(_, value)| split(value).into_iter().map(plain).collect()),
            tags: row.metadata.iter().map(|(name, value)| Tag { name, value }).collect(),
            scheduled_at: None,
            last_event: last_event(transfer.state.status()),
        }
    }
}

/// Returns Resend's word for our status.
const fn last_event(status: Status) -> &'static str {
    match status {
        Status::Deferred => "delivery_delayed",
        other => other.as_str(),
    }
}

/// Returns one Reply-To address as it was submitted.
fn plain(entry: &str) -> String {
    Mailbox::parse(entry).map_or_else(|| entry.to_owned(), |mailbox| mailbox.to_text())
}
