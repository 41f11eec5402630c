//! A webhook delivery, one event owed to one endpoint, and its attempts (contract 5).

use serde::{Deserialize, Serialize};

use super::Row;
use super::endpoint::EndpointRow;
use crate::base::id::{AttemptId, EndpointId, EventId, MessageId};
use crate::base::time::Timestamp;
use crate::domain::event::{EventType, TEST_TYPE};
use crate::machine::delivery;
use crate::store::schema::Table;

/// A delivery; its key names account and delivery.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DeliveryRow {
    /// To whom.
    pub endpoint: EndpointId,
    /// Which event.
    pub event: EventId,
    /// Payload of the delivery.
    pub owed: Owed,
    /// Progress of the delivery.
    pub state: delivery::State,
}

/// Payload of a delivery.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Owed {
    /// An event of a message.
    Event {
        /// Message whose timeline has the event's bytes.
        message: MessageId,
        /// The event's type.
        kind: EventType,
    },
    /// An event of type `test`, which stands in no timeline and counts for nothing.
    Test {
        /// Its bytes.
        body: Vec<u8>,
    },
}

impl Owed {
    /// The event's type on every interface.
    pub const fn event_type(&self) -> &'static str {
        match self {
            Self::Event { kind, .. } => kind.as_str(),
            Self::Test { .. } => TEST_TYPE,
        }
    }

    /// The message that the event is about.
    pub const fn message(&self) -> Option<MessageId> {
        match self {
            Self::Event { message, .. } => Some(*message),
            Self::Test { .. } => None,
        }
    }

    /// Whether a replay sends it to `endpoint`.
    pub fn is_taken_by(&self, endpoint: &EndpointRow) -> bool {
        match self {
            Self::Event { kind, .. } => endpoint.takes(*kind),
            Self::Test { .. } => false,
        }
    }
}

impl Row for DeliveryRow {
    const TABLE: Table = Table::Deliveries;
}

/// An attempt; its key names account, delivery and number.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AttemptRow {
    /// Its identifier.
    pub id: AttemptId,
    /// When it began.
    pub at: Timestamp,
    /// The status, where one came.
    pub status: Option<u16>,
    /// The failure's name (contract 5).
    pub error: Option<String>,
    /// Duration in milliseconds.
    pub duration_ms: u64,
    /// Address of the receiver that answered.
    pub peer: Option<String>,
    /// The first 4 KiB of the answer's body.
    pub response_body: Option<String>,
}

impl Row for AttemptRow {
    const TABLE: Table = Table::Attempts;
}
