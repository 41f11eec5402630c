//! A webhook delivery, one event owed to one endpoint, and its attempts (contract 5).

use serde::{Deserialize, Serialize};

use super::Row;
use crate::base::id::{AttemptId, EndpointId, EventId, MessageId};
use crate::base::time::Timestamp;
use crate::domain::event::EventType;
use crate::machine::delivery;
use crate::store::schema::Table;

/// A delivery; its key names account and delivery.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DeliveryRow {
    /// To whom.
    pub endpoint: EndpointId,
    /// Which event.
    pub event: EventId,
    /// Whose timeline has the event's bytes.
    pub message: MessageId,
    /// The event's type.
    pub kind: EventType,
    /// How far it is.
    pub state: delivery::State,
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
    /// How long it took, in milliseconds.
    pub duration_ms: u64,
    /// Who answered.
    pub peer: Option<String>,
    /// The first 4 KiB of the answer's body.
    pub response_body: Option<String>,
}

impl Row for AttemptRow {
    const TABLE: Table = Table::Attempts;
}
