//! Origin of a restored store, and whether its queues at that time are still on hold (contract 8). A store that was
//! started on a damaged journal has the same hold.

use serde::{Deserialize, Serialize};

use super::Row;
use crate::base::id::Ulid;
use crate::base::time::Timestamp;
use crate::store::op::tls_report::day_of;
use crate::store::schema::{self, Table};
use crate::store::timer::{Timer, TimerKind};

/// Reason for the hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HoldCause {
    /// A restore from a backup: the queued mail may have been sent since.
    Restored,
    /// A damaged journal: the outcomes of the queued mail may be among the lost records.
    JournalDamaged {
        /// The greatest message identifier of a backup without bodies from which the store was restored earlier.
        lacks_content_to: Ulid,
    },
}

/// The backup from which a store was restored, or the start that accepted a damaged journal. One of the facts about the
/// store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestoreOrigin {
    /// Time at which the backup was taken or the damaged journal was accepted.
    pub backup_at: Timestamp,
    /// Whether the backup included message bodies.
    pub has_content: bool,
    /// The greatest message identifier at that time.
    pub last_message: Ulid,
    /// The greatest other identifier at that time.
    pub last_id: Ulid,
    /// Whether the mail queued then is on hold: it may have been sent since.
    pub is_on_hold: bool,
    /// Reason for the hold.
    pub cause: HoldCause,
}

impl Row for RestoreOrigin {
    const TABLE: Table = Table::Meta;
    const VERSION: u8 = 2;

    fn decode_earlier(version: u8, bytes: &[u8]) -> Option<postcard::Result<Self>> {
        (version == 1).then(|| postcard::from_bytes::<RestoredV1>(bytes).map(Self::from))
    }
}

/// The row before damaged journals became a cause.
#[derive(Serialize, Deserialize)]
struct RestoredV1 {
    backup_at: Timestamp,
    has_content: bool,
    last_message: Ulid,
    last_id: Ulid,
    is_on_hold: bool,
}

impl From<RestoredV1> for RestoreOrigin {
    fn from(row: RestoredV1) -> Self {
        let RestoredV1 { backup_at, has_content, last_message, last_id, is_on_hold } = row;
        Self { backup_at, has_content, last_message, last_id, is_on_hold, cause: HoldCause::Restored }
    }
}

impl RestoreOrigin {
    /// Returns whether `timer` is on hold: it would send something that was queued when the backup was taken.
    pub fn holds(&self, timer: &Timer) -> bool {
        self.is_on_hold
            && match timer.kind {
                TimerKind::Transfer => timer.id <= self.last_message,
                TimerKind::Delivery | TimerKind::Notice => timer.id <= self.last_id,
                // The report of a day that had begun: its identifier begins with the day.
                TimerKind::TlsReport => timer.id.0[..4] <= schema::tls_report_day(day_of(self.backup_at))[..],
                TimerKind::Unpark
                | TimerKind::DomainCheck
                | TimerKind::DkimRotation
                | TimerKind::Idempotency
                | TimerKind::Content
                | TimerKind::EventLog
                | TimerKind::EndpointEnd
                | TimerKind::Deliveries
                | TimerKind::StsPolicy
                | TimerKind::TlsReports
                | TimerKind::MessageIndex
                | TimerKind::SuppressionImport
                | TimerKind::ViewEnd
                | TimerKind::AlertAnnouncement
                | TimerKind::AlertReminder
                | TimerKind::AlertExpiry
                | TimerKind::Reputation => false,
            }
    }

    /// Returns whether the body of a message may be missing because the backup had none.
    pub fn lacks_content_of(&self, message: Ulid) -> bool {
        message <= self.lacks_content_to()
    }

    /// Returns the hold of a store that starts on a damaged journal at `now`, with the identifiers from which it
    /// continues.
    pub fn on_damaged_journal(earlier: Option<Self>, last_message: Ulid, last_id: Ulid, now: Timestamp) -> Self {
        let lacks_content_to = earlier.map_or(Ulid::default(), |earlier| earlier.lacks_content_to());
        let cause = HoldCause::JournalDamaged { lacks_content_to };
        Self { backup_at: now, has_content: true, last_message, last_id, is_on_hold: true, cause }
    }

    const fn lacks_content_to(&self) -> Ulid {
        match self.cause {
            HoldCause::JournalDamaged { lacks_content_to } => lacks_content_to,
            HoldCause::Restored if self.has_content => Ulid([0; 16]),
            HoldCause::Restored => self.last_message,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::AccountId;
    use crate::domain::hostname::DomainName;

    #[test]
    fn a_tls_report_is_on_hold_if_its_day_had_begun_at_the_backup() {
        let backup_at = Timestamp::from_millis(1_700_049_600_000);
        let (last_message, last_id) = (Ulid::default(), Ulid::default());
        let restored = RestoreOrigin {
            backup_at,
            has_content: true,
            last_message,
            last_id,
            is_on_hold: true,
            cause: HoldCause::Restored,
        };
        let domain: DomainName = "a.example".parse().unwrap();
        let holds = |restored: &RestoreOrigin, day| {
            let id = Ulid(schema::tls_reports_of(day, &domain));
            restored.holds(&Timer::new(backup_at, TimerKind::TlsReport, AccountId::default(), id))
        };
        let today = day_of(backup_at);
        assert!(holds(&restored, today - 1) && holds(&restored, today) && !holds(&restored, today + 1));
        assert!(!holds(&RestoreOrigin { is_on_hold: false, ..restored }, today));
    }

    #[test]
    fn a_row_of_version_1_decodes_as_a_restored_backup() {
        let backup_at = Timestamp::from_millis(1_700_049_600_000);
        let (last_message, last_id) = (Ulid([7; 16]), Ulid([9; 16]));
        let earlier = RestoredV1 { backup_at, has_content: false, last_message, last_id, is_on_hold: true };
        let bytes = [vec![1], postcard::to_stdvec(&earlier).unwrap()].concat();
        let expected = RestoreOrigin {
            backup_at,
            has_content: false,
            last_message,
            last_id,
            is_on_hold: true,
            cause: HoldCause::Restored,
        };
        assert_eq!(RestoreOrigin::decode(&bytes).unwrap(), expected);
        assert_eq!(RestoreOrigin::decode(&expected.encode()).unwrap(), expected);
        assert!(RestoreOrigin::decode(&[3, 0]).is_err());
    }

    #[test]
    fn a_hold_for_a_damaged_journal_keeps_the_content_gap_of_an_earlier_backup() {
        let backup_at = Timestamp::from_millis(1_700_049_600_000);
        let (early, late) = (Ulid([1; 16]), Ulid([2; 16]));
        let without = RestoreOrigin {
            backup_at,
            has_content: false,
            last_message: early,
            last_id: early,
            is_on_hold: false,
            cause: HoldCause::Restored,
        };
        for earlier in [without, RestoreOrigin::on_damaged_journal(Some(without), early, early, backup_at)] {
            let hold = RestoreOrigin::on_damaged_journal(Some(earlier), late, late, backup_at);
            assert!(hold.lacks_content_of(early) && !hold.lacks_content_of(late));
        }
        assert!(!RestoreOrigin::on_damaged_journal(None, late, late, backup_at).lacks_content_of(early));
    }
}
