//! A webhook delivery, one event owed to one endpoint, and its attempts (contract 5).

use serde::{Deserialize, Serialize};

use super::Row;
use super::endpoint::EndpointRow;
use crate::base::id::{AttemptId, EndpointId, EventId, MessageId};
use crate::base::time::Timestamp;
use crate::domain::event::{EventType, TEST_TYPE};
use crate::machine::delivery;
use crate::store::schema::Table;

/// A delivery. Row key: account and delivery.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DeliveryRow {
    /// Endpoint of the delivery.
    pub endpoint: EndpointId,
    /// Event of the delivery.
    pub event: EventId,
    /// Payload of the delivery.
    pub owed: DeliveryPayload,
    /// Progress of the delivery.
    pub state: delivery::State,
}

/// Payload of a delivery.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DeliveryPayload {
    /// An event of a message.
    Event {
        /// Message whose timeline has the event's bytes.
        message: MessageId,
        /// The event's type.
        kind: EventType,
    },
    /// An event of type `test`. It is in no timeline and is not counted.
    Test {
        /// Bytes of the event.
        body: Vec<u8>,
    },
}

impl DeliveryPayload {
    /// Returns the event's type on every interface.
    pub const fn event_type(&self) -> &'static str {
        match self {
            Self::Event { kind, .. } => kind.as_str(),
            Self::Test { .. } => TEST_TYPE,
        }
    }

    /// Returns the message of the event.
    pub const fn message(&self) -> Option<MessageId> {
        match self {
            Self::Event { message, .. } => Some(*message),
            Self::Test { .. } => None,
        }
    }

    /// Returns whether a replay sends the event to `endpoint`.
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

/// An attempt. Row key: account, delivery and number.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AttemptRow {
    /// Identifier.
    pub id: AttemptId,
    /// Start of the attempt.
    pub at: Timestamp,
    /// HTTP status, if there was an answer.
    pub status: Option<u16>,
    /// Name of the failure (contract 5).
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
