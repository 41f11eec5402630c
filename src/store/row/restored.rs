//! Where a restored store comes from, and whether what its queues held then still stands still (contract 8).

use serde::{Deserialize, Serialize};

use super::Row;
use crate::base::id::Ulid;
use crate::base::time::Timestamp;
use crate::store::op::tls_report::day_of;
use crate::store::schema::{self, Table};
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
                // The report of a day that had begun: its identifier begins with the day.
                TimerKind::TlsReport => timer.id.0[..4] <= schema::tls_report_day(day_of(self.backup_at))[..],
                TimerKind::Unpark
                | TimerKind::DomainCheck
                | TimerKind::Idempotency
                | TimerKind::Content
                | TimerKind::EventLog
                | TimerKind::EndpointEnd
                | TimerKind::Deliveries
                | TimerKind::StsPolicy
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::AccountId;
    use crate::domain::hostname::DomainName;

    #[test]
    fn a_report_of_tls_stands_still_where_its_day_had_begun_when_the_backup_was_taken() {
        let backup_at = Timestamp::from_millis(1_700_049_600_000);
        let (last_message, last_id) = (Ulid::default(), Ulid::default());
        let restored = Restored { backup_at, has_content: true, last_message, last_id, stands_still: true };
        let domain: DomainName = "a.example".parse().unwrap();
        let holds = |restored: &Restored, day| {
            let id = Ulid(schema::tls_reports_of(day, &domain));
            restored.holds(&Timer::new(backup_at, TimerKind::TlsReport, AccountId::default(), id))
        };
        let today = day_of(backup_at);
        assert!(holds(&restored, today - 1) && holds(&restored, today) && !holds(&restored, today + 1));
        assert!(!holds(&Restored { stands_still: false, ..restored }, today));
    }
}
