//! The event record (contract 4): one object in the list, in the timeline and in a webhook's body.
//!
//! The writer serialises it once, when its identifier is known. Its bytes are then fixed and used everywhere.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::stream::Stream;
use crate::base::id::{self, EventId, MessageId};
use crate::base::time::{Timestamp, iso};

/// The type of test events, sent only by a test of an endpoint (contract 5).
pub const TEST_TYPE: &str = "test";

/// Type of an event of a message.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EventType {
    /// Accepted and durable.
    Queued,
    /// An attempt had a transient failure; another follows.
    Deferred,
    /// The receiver's server accepted the message.
    Delivered,
    /// The receiver's server refused the message permanently.
    Bounced,
    /// Given up without a permanent refusal.
    Failed,
    /// The recipient reported the message as spam.
    Complained,
    /// The message was not sent, because its address became suppressed.
    Suppressed,
    /// The recipient used the hosted unsubscribe link.
    Unsubscribed,
    /// The sender canceled the message.
    Canceled,
}

/// Error: the text is not an event type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be one of queued, deferred, delivered, bounced, failed, complained, suppressed, unsubscribed, canceled")]
pub struct InvalidEventType;

impl EventType {
    /// All types, in the contract's order.
    pub const ALL: [Self; 9] = [
        Self::Queued,
        Self::Deferred,
        Self::Delivered,
        Self::Bounced,
        Self::Failed,
        Self::Complained,
        Self::Suppressed,
        Self::Unsubscribed,
        Self::Canceled,
    ];

    /// Returns the name on every interface.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Deferred => "deferred",
            Self::Delivered => "delivered",
            Self::Bounced => "bounced",
            Self::Failed => "failed",
            Self::Complained => "complained",
            Self::Suppressed => "suppressed",
            Self::Unsubscribed => "unsubscribed",
            Self::Canceled => "canceled",
        }
    }

    /// Returns the byte for storage keys, which is never reused for another type.
    pub const fn code(self) -> u8 {
        self as u8
    }
}

impl fmt::Display for EventType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for EventType {
    type Err = InvalidEventType;
    fn from_str(text: &str) -> Result<Self, InvalidEventType> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text).ok_or(InvalidEventType)
    }
}

/// TLS of an attempt, as the event and the message record show it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TlsFacts {
    /// Protocol version, such as `TLSv1.3`.
    pub version: String,
    /// Cipher suite by its IANA name.
    pub cipher: String,
    /// Verification of the server's identity.
    pub authenticated: Authenticated,
    /// The policy that applied.
    pub policy: TlsPolicy,
}

/// Verification of a mail server's identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Authenticated {
    /// No verification.
    None,
    /// A certificate that is valid for the server's name.
    Pkix,
    /// DANE (RFC 7672).
    Dane,
}

/// The policy under which a connection was secured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TlsPolicy {
    /// Encrypt if the server offers it (RFC 7435).
    #[serde(rename = "opportunistic")]
    Opportunistic,
    /// MTA-STS (RFC 8461).
    #[serde(rename = "mta-sts")]
    MtaSts,
    /// DANE (RFC 7672).
    #[serde(rename = "dane")]
    Dane,
}

/// Finality of a refusal, and the side that it concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BounceKind {
    /// The address or its domain can't receive.
    Hard,
    /// A later or smaller message may be accepted.
    Soft,
    /// The sender, not the recipient, is refused.
    Block,
    /// The cause is unclear.
    Undetermined,
}

impl BounceKind {
    /// All kinds, in the contract's order.
    pub const ALL: [Self; 4] = [Self::Hard, Self::Soft, Self::Block, Self::Undetermined];

    /// Returns the name on every interface.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hard => "hard",
            Self::Soft => "soft",
            Self::Block => "block",
            Self::Undetermined => "undetermined",
        }
    }
}

/// Source of the report of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BounceSource {
    /// The receiver's server, in the SMTP session.
    Smtp,
    /// A delivery status notification.
    Dsn,
    /// The domain name system.
    Dns,
    /// Postrider itself, before contacting a server.
    Local,
}

/// Meaning of a failure, and the evidence for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bounce {
    /// Finality of the failure.
    pub kind: BounceKind,
    /// The category, such as `invalid_recipient`.
    pub category: String,
    /// The enhanced status code that applies: the server's, or Postrider's if no server answered.
    pub status: Option<String>,
    /// Source of the report.
    pub source: BounceSource,
    /// The rule that matched.
    pub rule: String,
    /// One plain sentence of advice.
    pub advice: String,
    /// Whether the recipient's address was suppressed because of the bounce.
    pub suppressed: bool,
}

/// Content of a complaint report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Complaint {
    /// The report's `Feedback-Type` (RFC 5965).
    pub feedback_type: Option<String>,
    /// Name of the reporter.
    pub reporter: Option<String>,
}

/// Facts of an attempt in an event; all `None` without an attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptFacts {
    /// The attempt's number, from 1.
    pub attempt: Option<u32>,
    /// SMTP code of the reply.
    pub smtp_code: Option<u16>,
    /// Enhanced code of the reply (RFC 3463).
    pub smtp_enhanced_code: Option<String>,
    /// The reply as received, all lines.
    pub smtp_response: Option<String>,
    /// The contacted mail server.
    pub mx_host: Option<String>,
    /// Address of the mail server.
    pub mx_ip: Option<String>,
    /// The relay used.
    pub relay: Option<String>,
    /// Security of the connection.
    pub tls: Option<TlsFacts>,
    /// Duration of the attempt, in milliseconds.
    pub duration_ms: Option<u64>,
}

/// The event record. Its JSON has exactly the members of contract 4; missing facts are null.
#[derive(Clone, Debug, Serialize)]
pub struct EventRecord<'a> {
    /// Identifier of the event.
    #[serde(serialize_with = "id::as_text")]
    pub id: EventId,
    /// Type of the event.
    #[serde(rename = "type")]
    pub kind: EventType,
    /// Message of the event.
    #[serde(serialize_with = "id::as_text")]
    pub message_id: MessageId,
    /// Message-ID of the message, in angle brackets.
    pub message_id_header: &'a str,
    /// Stream of the message.
    pub stream: Stream,
    /// Sender as given.
    pub from: &'a str,
    /// Recipient as given.
    pub to: &'a str,
    /// Subject as given.
    pub subject: Option<&'a str>,
    /// Metadata as given.
    pub metadata: &'a BTreeMap<String, String>,
    /// Time at which the event was recorded.
    #[serde(serialize_with = "iso::serialize")]
    pub created_at: Timestamp,
    /// Facts of the attempt.
    #[serde(flatten)]
    pub facts: &'a AttemptFacts,
    /// Due time of the next attempt.
    #[serde(serialize_with = "iso::option::serialize")]
    pub next_attempt_at: Option<Timestamp>,
    /// The failure, for events that report one.
    pub bounce: Option<&'a Bounce>,
    /// The complaint, for events that report one.
    pub complaint: Option<&'a Complaint>,
}

/// The event record of a test: the members of any other, without data (contract 5).
#[derive(Clone, Debug, Serialize)]
pub struct TestRecord {
    #[serde(serialize_with = "id::as_text")]
    id: EventId,
    #[serde(rename = "type")]
    kind: &'static str,
    message_id: Option<MessageId>,
    message_id_header: Option<String>,
    stream: Option<Stream>,
    from: Option<String>,
    to: Option<String>,
    subject: Option<String>,
    metadata: BTreeMap<String, String>,
    #[serde(serialize_with = "iso::serialize")]
    created_at: Timestamp,
    #[serde(flatten)]
    facts: AttemptFacts,
    #[serde(serialize_with = "iso::option::serialize")]
    next_attempt_at: Option<Timestamp>,
    bounce: Option<Bounce>,
    complaint: Option<Complaint>,
}

impl TestRecord {
    /// Creates a test at `now`.
    pub fn new(id: EventId, now: Timestamp) -> Self {
        Self {
            id,
            kind: TEST_TYPE,
            message_id: None,
            message_id_header: None,
            stream: None,
            from: None,
            to: None,
            subject: None,
            metadata: BTreeMap::new(),
            created_at: now,
            facts: AttemptFacts::default(),
            next_attempt_at: None,
            bounce: None,
            complaint: None,
        }
    }

    /// Returns the bytes that every attempt sends.
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_else(|error| unreachable!("a test is plain JSON: {error}"))
    }
}
