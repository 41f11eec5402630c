//! Where a restored store comes from, and whether what its queues held then still stands still (contract 8).

use serde::{Deserialize, Serialize};

use super::Row;
use crate::base::id::Ulid;
use crate::base::time::Timestamp;
use crate::store::schema::Table;
use crate::store::timer::{Timer, TimerKind};

/// The backup that a store was restored from. One row of the facts about the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restored {
    /// When the backup was taken.
    pub backup_at: Timestamp,
    /// Whether message bodies were in it.
    pub has_content: bool,
    /// The greatest message identifier of then.
    pub last_message: Ulid,
    /// The greatest identifier of everything else.
    pub last_id: Ulid,
    /// Whether what waited then is not to be sent yet: it may have been sent since.
    pub stands_still: bool,
}

impl Row for Restored {
    const TABLE: Table = Table::Meta;
}

impl Restored {
    /// Whether `timer` would send what waited when the backup was taken.
    pub fn holds(&self, timer: &Timer) -> bool {
        self.stands_still
            && match timer.kind {
                TimerKind::Transfer => timer.id <= self.last_message,
                TimerKind::Delivery => timer.id <= self.last_id,
                TimerKind::Unpark
                | TimerKind::DomainCheck
                | TimerKind::Idempotency
                | TimerKind::Content
                | TimerKind::EventLog
                | TimerKind::EndpointEnd
                | TimerKind::Deliveries
                | TimerKind::StsPolicy
                | TimerKind::TlsReport
                | TimerKind::TlsReports
                | TimerKind::MessageIndex
                | TimerKind::Reputation => false,
            }
    }

    /// Whether the body of a message may be missing because the backup was taken without.
    pub fn lacks_content_of(&self, message: Ulid) -> bool {
        !self.has_content && message <= self.last_message
    }
}
