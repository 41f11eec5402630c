//! Entries of the event log. They refer to the timeline, which has the event's bytes.

use serde::{Deserialize, Serialize};

use super::Row;
use crate::base::id::MessageId;
use crate::domain::event::EventType;
use crate::store::schema::Table;

/// An entry of the event log. Row key: account and event.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct EventLogRow {
    /// The message whose timeline has the bytes.
    pub message: MessageId,
    /// Type of the event.
    pub kind: EventType,
}

impl Row for EventLogRow {
    const TABLE: Table = Table::EventLog;
}

/// An entry of the event log by type. Row key: account, type and event.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct EventOfTypeRow {
    /// The message whose timeline has the bytes.
    pub message: MessageId,
}

impl Row for EventOfTypeRow {
    const TABLE: Table = Table::EventLogByType;
}
