//! A message: what was accepted, written once, and how far its transfer is, written at every outcome.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Row;
use crate::base::id::{DomainId, KeyId, MessageId};
use crate::base::time::Timestamp;
use crate::domain::address::Address;
use crate::domain::event::AttemptFacts;
use crate::domain::stream::Stream;
use crate::machine::transfer;
use crate::mail::read::ListFields;
use crate::store::content::Place;
use crate::store::schema::Table;

/// An accepted message. Never changes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MessageRow {
    /// The sending domain.
    pub domain: DomainId,
    /// That domain's stream at the time.
    pub stream: Stream,
    /// The sender.
    pub from: Address,
    /// The sender's display name.
    pub from_name: Option<String>,
    /// The recipient.
    pub to: Address,
    /// The subject, decoded where the message was raw.
    pub subject: Option<String>,
    /// The sender's own notes.
    pub metadata: BTreeMap<String, String>,
    /// Where the recipient may unsubscribe.
    pub unsubscribe_url: Option<String>,
    /// When it was created; its `Date`.
    pub created_at: Timestamp,
    /// When the sender wants it given up.
    pub expires_at: Option<Timestamp>,
    /// When it ends `failed` at the latest.
    pub give_up_at: Timestamp,
    /// When its content is no longer shown.
    pub content_expires_at: Timestamp,
    /// The key that it was sent with; none where the operator sent it.
    pub key: Option<KeyId>,
    /// The selectors of the domain's DKIM keys that signed it.
    pub selectors: Vec<String>,
    /// Bytes of the signed message.
    pub size_bytes: u32,
    /// Where the signed message stands.
    pub place: Place,
    /// MAIL FROM.
    pub return_path: String,
    /// Whether it has bytes above 127.
    pub eight_bit: bool,
    /// Whether it needs SMTPUTF8.
    pub smtputf8: bool,
    /// Whether it is to be delivered whatever TLS its receiver's policies ask for.
    pub waives_tls: bool,
    /// Whether the caller built it.
    pub is_raw: bool,
    /// Whether the text ended with a line end, which a message can't tell.
    pub text_ends_line: bool,
    /// Whether the HTML did.
    pub html_ends_line: bool,
    /// The SMTP submission; `None` for a message by HTTP.
    pub submission: Option<Box<SmtpFacts>>,
}

/// The SMTP submission of a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SmtpFacts {
    /// The path of MAIL FROM; empty for `<>`.
    pub mail_from: String,
    /// The name that the client gave in EHLO or HELO.
    pub client_name: String,
    /// The address that it connected from.
    pub client_address: String,
    /// The TLS version; none in the clear.
    pub tls_version: Option<String>,
    /// The beginning of the key's secret.
    pub key_prefix: String,
    /// The client's Message-ID.
    pub original_message_id: Option<String>,
    /// Whether that one stays the message's own.
    pub keeps_message_id: bool,
    /// Messages that were accepted with this one, itself included.
    pub recipients: u32,
    /// The first of them.
    pub first_id: MessageId,
}

impl Row for MessageRow {
    const TABLE: Table = Table::Messages;
    const VERSION: u8 = 2;

    /// Version 1 lacks the last field, whose absence is one zero byte.
    fn decode_earlier(version: u8, bytes: &[u8]) -> Option<postcard::Result<Self>> {
        (version == 1).then(|| postcard::from_bytes(&[bytes, &[0]].concat()))
    }
}

impl MessageRow {
    /// The Message-ID in angle brackets.
    pub fn message_id_header(&self, id: MessageId) -> String {
        let kept = self.submission.as_ref().filter(|facts| facts.keeps_message_id);
        let kept = kept.and_then(|facts| facts.original_message_id.clone());
        kept.unwrap_or_else(|| format!("<{id}@{}>", self.from.domain()))
    }

    /// The author of the list fields. By SMTP they stay as the client wrote them.
    pub fn list_fields(&self) -> ListFields {
        if self.unsubscribe_url.is_some() && self.submission.is_none() { ListFields::Ours } else { ListFields::Callers }
    }

    /// The Message-ID that the client gave by SMTP.
    pub fn original_message_id(&self) -> Option<&str> {
        self.submission.as_ref()?.original_message_id.as_deref()
    }
}

/// Progress of a message's transfer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TransferRow {
    /// The machine's state; its status is the message's.
    pub state: transfer::State,
    /// When the status last changed.
    pub status_at: Timestamp,
    /// Attempts that reached the wire or were told off by the DNS.
    pub attempts: u32,
    /// When its timer fires: the next attempt, or the end of its time. None once it has ended.
    pub due: Option<Timestamp>,
    /// When a server took it.
    pub delivered_at: Option<Timestamp>,
    /// The facts of the last attempt.
    pub last: AttemptFacts,
    /// Provider of the server that was asked last, by its name in the counts; `None` if none was asked.
    pub provider: Option<String>,
    /// Number of attempts that crashed. After the third the message is set aside.
    pub crashes: u8,
    /// Since when its content could not be read, where the last look failed for that.
    pub unreadable_since: Option<Timestamp>,
}

impl Row for TransferRow {
    const TABLE: Table = Table::Transfers;
    const VERSION: u8 = 2;

    /// Version 1 lacks the last field, whose absence is one zero byte.
    fn decode_earlier(version: u8, bytes: &[u8]) -> Option<postcard::Result<Self>> {
        (version == 1).then(|| postcard::from_bytes(&[bytes, &[0]].concat()))
    }
}

impl TransferRow {
    /// A message accepted at `now`, due at once.
    pub fn queued(now: Timestamp) -> Self {
        Self {
            state: transfer::State::default(),
            status_at: now,
            attempts: 0,
            due: Some(now),
            delivered_at: None,
            last: AttemptFacts::default(),
            provider: None,
            crashes: 0,
            unreadable_since: None,
        }
    }
}
