//! A message: the accepted facts, written once, and the state of its transfer, written at every outcome.

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
    /// Stream of that domain at acceptance.
    pub stream: Stream,
    /// The sender.
    pub from: Address,
    /// The sender's display name.
    pub from_name: Option<String>,
    /// The recipient.
    pub to: Address,
    /// The subject, decoded if the message was raw.
    pub subject: Option<String>,
    /// The sender's metadata.
    pub metadata: BTreeMap<String, String>,
    /// URL for unsubscribing.
    pub unsubscribe_url: Option<String>,
    /// Time of creation, and its `Date`.
    pub created_at: Timestamp,
    /// Expiry that the sender set.
    pub expires_at: Option<Timestamp>,
    /// Time at which the message's status becomes `failed` at the latest.
    pub give_up_at: Timestamp,
    /// Time after which the message's content is no longer shown.
    pub content_expires_at: Timestamp,
    /// The API key of the submission; `None` if the operator sent it.
    pub key: Option<KeyId>,
    /// The selectors of the domain's DKIM keys that signed the message.
    pub selectors: Vec<String>,
    /// Size of the signed message in bytes.
    pub size_bytes: u32,
    /// Place of the signed message.
    pub place: Place,
    /// Address of MAIL FROM.
    pub return_path: String,
    /// Whether the message contains bytes above 127.
    pub eight_bit: bool,
    /// Whether the message needs SMTPUTF8.
    pub smtputf8: bool,
    /// Whether the message is delivered even if the receiver's TLS policies can't be met.
    pub waives_tls: bool,
    /// Whether the caller submitted the message as raw MIME.
    pub is_raw: bool,
    /// Whether the text ended with a line end, which the message no longer shows.
    pub text_ends_line: bool,
    /// Whether the HTML ended with a line end.
    pub html_ends_line: bool,
    /// The SMTP submission; `None` for a message by HTTP.
    pub submission: Option<Box<SmtpFacts>>,
}

/// The SMTP submission of a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SmtpFacts {
    /// The path of MAIL FROM; empty for `<>`.
    pub mail_from: String,
    /// Name from the client's EHLO or HELO.
    pub client_name: String,
    /// Address of the client.
    pub client_address: String,
    /// TLS version; `None` without TLS.
    pub tls_version: Option<String>,
    /// Prefix of the key's secret.
    pub key_prefix: String,
    /// The client's Message-ID.
    pub original_message_id: Option<String>,
    /// Whether that Message-ID was kept.
    pub keeps_message_id: bool,
    /// Number of messages that were accepted together, including this one.
    pub recipients: u32,
    /// Identifier of the first message that was accepted together with this one, or of this one.
    pub first_id: MessageId,
}

impl Row for MessageRow {
    const TABLE: Table = Table::Messages;
    const VERSION: u8 = 2;

    /// Decodes version 1, which lacks the last field. One zero byte means that it is absent.
    fn decode_earlier(version: u8, bytes: &[u8]) -> Option<postcard::Result<Self>> {
        (version == 1).then(|| postcard::from_bytes(&[bytes, &[0]].concat()))
    }
}

impl MessageRow {
    /// Returns the Message-ID in angle brackets.
    pub fn message_id_header(&self, id: MessageId) -> String {
        let kept = self.submission.as_ref().filter(|facts| facts.keeps_message_id);
        let kept = kept.and_then(|facts| facts.original_message_id.clone());
        kept.unwrap_or_else(|| format!("<{id}@{}>", self.from.domain()))
    }

    /// Returns the author of the list fields. Messages by SMTP keep the client's.
    pub fn list_fields(&self) -> ListFields {
        if self.unsubscribe_url.is_some() && self.submission.is_none() { ListFields::Ours } else { ListFields::Callers }
    }

    /// Returns the client's Message-ID of a submission by SMTP.
    pub fn original_message_id(&self) -> Option<&str> {
        self.submission.as_ref()?.original_message_id.as_deref()
    }
}

/// Progress of a message's transfer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TransferRow {
    /// State of the machine; its status is the message's.
    pub state: transfer::State,
    /// Time of the last change of the status.
    pub status_at: Timestamp,
    /// Number of attempts that reached a server or were refused by the DNS.
    pub attempts: u32,
    /// Due time of its timer: the next attempt or the expiry. `None` once it has ended.
    pub due: Option<Timestamp>,
    /// Time at which a server accepted the message.
    pub delivered_at: Option<Timestamp>,
    /// Facts of the last attempt.
    pub last: AttemptFacts,
    /// Provider of the last contacted server, by its name in the counts; `None` if there was none.
    pub provider: Option<String>,
    /// Number of attempts that crashed. After the third the message is set aside.
    pub crashes: u8,
    /// Time since which the message's content could not be read, if the last read failed.
    pub unreadable_since: Option<Timestamp>,
}

impl Row for TransferRow {
    const TABLE: Table = Table::Transfers;
    const VERSION: u8 = 2;

    /// Decodes version 1, which lacks the last field. One zero byte means that it is absent.
    fn decode_earlier(version: u8, bytes: &[u8]) -> Option<postcard::Result<Self>> {
        (version == 1).then(|| postcard::from_bytes(&[bytes, &[0]].concat()))
    }
}

impl TransferRow {
    /// Returns the row of a message accepted at `now`, due at once.
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
