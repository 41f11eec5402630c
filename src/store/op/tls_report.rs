//! Counting how sessions with receiving domains were secured, by UTC day and policy (RFC 8460 4.1), in a bounded number
//! of rows.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Infallible, Op};
use crate::base::id::{AccountId, Ulid};
use crate::base::time::Timestamp;
use crate::domain::hostname::DomainName;
use crate::smtp::tls_policy::TlsFault;
use crate::store::error::OpError;
use crate::store::read::{Order, Read};
use crate::store::row::tls_policy::{FailureDetail, PolicyType, TlsReportDayRow, TlsReportRow};
use crate::store::schema::{self, Table};
use crate::store::tables::Tables;
use crate::store::timer::{Timer, TimerKind};

const DAY: Duration = Duration::from_secs(24 * 3600);
/// Time for which a day's counts are kept.
const KEPT: Duration = Duration::from_secs(30 * 24 * 3600);
/// Maximum number of rows of one day; further domains are not counted.
const ROWS_MAX: u32 = 20_000;
/// Maximum number of failure kinds in one row. Failures of other kinds are only counted.
const DETAILS_MAX: usize = 32;
/// Number of rows that one sweep removes.
const SLICE: usize = 512;

/// Counts one session with a domain's server, or one fetch of its policy.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CountTlsSession {
    /// The domain.
    pub domain: DomainName,
    /// The policy for which the session counts.
    pub policy_type: PolicyType,
    /// The policy as text.
    pub policy: Vec<String>,
    /// The server; `None` for a fetch of the policy.
    pub host: Option<String>,
    /// The failure, if any.
    pub fault: Option<TlsFault>,
    /// Time after the day's end at which its report is due; `None` if no reports are sent.
    pub report_after: Option<Duration>,
}

/// Whether a session was counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionCount {
    /// The session was counted.
    Counted,
    /// The day has reached its maximum number of domains.
    Full,
}

impl Op for CountTlsSession {
    type Reply = SessionCount;
    type Refusal = Infallible;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<SessionCount, OpError<Infallible>> {
        let day = day_of(tables.now());
        let of = schema::tls_reports_of(day, &self.domain);
        let key = schema::tls_report(of, self.policy_type);
        let found = tables.row::<TlsReportRow>(&key)?;
        if found.is_none() {
            if !add_row(tables, day)? {
                return Ok(SessionCount::Full);
            }
            if let Some(after) = self.report_after {
                tables.arm(Timer::new(end_of(day) + after, TimerKind::TlsReport, AccountId::default(), Ulid(of)));
            }
        }
        let mut row = found.unwrap_or_else(|| TlsReportRow::of(self.domain.clone()));
        if !self.policy.is_empty() {
            row.policy.clone_from(&self.policy);
        }
        match self.fault {
            None => row.successes += 1,
            Some(fault) => self.add_failure(&mut row, fault),
        }
        tables.put(&key, &row);
        Ok(SessionCount::Counted)
    }
}

impl CountTlsSession {
    fn add_failure(&self, row: &mut TlsReportRow, fault: TlsFault) {
        row.failures += 1;
        let has_room = row.details.len() < DETAILS_MAX;
        let known = row.details.iter_mut().find(|detail| detail.fault == fault && detail.host == self.host);
        match known {
            Some(detail) => detail.sessions += 1,
            None if has_room => {
                row.details.push(FailureDetail { fault, host: self.host.clone(), sessions: 1 });
            }
            None => {}
        }
    }
}

/// Counts another row of the day and returns whether its limit allows it. The first one arms the timer that removes
/// them all.
fn add_row(tables: &mut Tables<'_>, day: u32) -> Result<bool, OpError<Infallible>> {
    let key = schema::tls_report_day(day);
    let mut counted = tables.row::<TlsReportDayRow>(&key)?.unwrap_or_default();
    if counted.rows == 0 {
        tables.arm(Timer::of_store(end_of(day) + KEPT, TimerKind::TlsReports));
    }
    if counted.rows >= ROWS_MAX {
        return Ok(false);
    }
    counted.rows += 1;
    tables.put(&key, &counted);
    Ok(true)
}

/// Removes a slice of the counts that have been kept long enough.
#[derive(Debug, Serialize, Deserialize)]
pub struct SweepTlsReports {
    /// The timer that was served.
    pub due: Timestamp,
}

impl Op for SweepTlsReports {
    type Reply = ();
    type Refusal = Infallible;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<(), OpError<Infallible>> {
        tables.disarm(Timer::of_store(self.due, TimerKind::TlsReports));
        // A day is removed once its end is older than the retention time.
        let end = schema::tls_report_day(day_of(tables.expiry() - KEPT));
        let mut left = SLICE;
        for table in [Table::TlsReports, Table::TlsReportDays] {
            let keys = tables.sound_keys(table, &[], &end, Order::Ascending, left)?;
            left -= keys.len();
            keys.iter().for_each(|key| tables.remove(table, key));
        }
        if left == 0 {
            tables.arm(Timer::of_store(tables.now(), TimerKind::TlsReports));
        }
        Ok(())
    }
}

/// Returns the UTC day of `moment`, as a number of days since the epoch.
pub fn day_of(moment: Timestamp) -> u32 {
    u32::try_from(moment.as_secs() / DAY.as_secs()).unwrap_or(u32::MAX)
}

/// Returns the first moment after the day.
pub fn end_of(day: u32) -> Timestamp {
    Timestamp::ZERO + DAY * day.saturating_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::testing::TestStore;

    fn session(domain: &str, fault: Option<TlsFault>) -> CountTlsSession {
        CountTlsSession {
            domain: domain.parse().unwrap(),
            policy_type: PolicyType::Sts,
            policy: vec!["version: STSv1".to_owned()],
            host: Some("mx.example.test".to_owned()),
            fault,
            report_after: None,
        }
    }

    fn row(test: &TestStore, day: u32, domain: &str) -> TlsReportRow {
        test.row(&schema::tls_report(schema::tls_reports_of(day, &domain.parse().unwrap()), PolicyType::Sts))
    }

    #[test]
    fn sessions_are_counted_by_day_domain_policy_and_failure() {
        let test = TestStore::new();
        let today = day_of(test.now());
        for fault in [None, Some(TlsFault::CertificateExpired), Some(TlsFault::CertificateExpired), None] {
            assert_eq!(test.done(session("a.example", fault)), SessionCount::Counted);
        }
        test.done(session("b.example", Some(TlsFault::StartTlsNotSupported)));
        test.pass(DAY);
        test.done(session("a.example", None));
        let host = Some("mx.example.test".to_owned());
        let detail = |fault, sessions| FailureDetail { fault, host: host.clone(), sessions };
        let policy = vec!["version: STSv1".to_owned()];
        let details = vec![detail(TlsFault::CertificateExpired, 2)];
        let domain = "a.example".parse().unwrap();
        let first = TlsReportRow { policy, successes: 2, failures: 2, details, ..TlsReportRow::of(domain) };
        assert_eq!(row(&test, today, "a.example"), first);
        assert_eq!(row(&test, today, "b.example").details, [detail(TlsFault::StartTlsNotSupported, 1)]);
        assert_eq!(row(&test, today + 1, "a.example").successes, 1);
        assert_eq!(test.row::<TlsReportDayRow>(&schema::tls_report_day(today)).rows, 2);
        assert_eq!(test.timers(TimerKind::TlsReports).len(), 2);
        assert!(test.timers(TimerKind::TlsReport).is_empty(), "reports are not sent");
    }

    #[test]
    fn each_domain_of_a_day_has_one_report_due_after_it() {
        let test = TestStore::new();
        let today = day_of(test.now());
        let after = |hours: u64| Some(Duration::from_secs(hours * 3600));
        for (domain, policy_type, hours) in [
            ("a.example", PolicyType::Sts, 1),
            ("a.example", PolicyType::Tlsa, 1),
            ("b.example", PolicyType::Sts, 2),
            ("b.example", PolicyType::Sts, 2),
        ] {
            test.done(CountTlsSession { policy_type, report_after: after(hours), ..session(domain, None) });
        }
        let due: Vec<_> = test.timers(TimerKind::TlsReport).iter().map(|timer| (timer.due, timer.id.0)).collect();
        let of = |domain: &str| schema::tls_reports_of(today, &domain.parse().unwrap());
        let hour = Duration::from_secs(3600);
        assert_eq!(due, [(end_of(today) + hour, of("a.example")), (end_of(today) + 2 * hour, of("b.example"))]);
    }

    #[test]
    fn a_row_lists_a_limited_number_of_failure_kinds_and_counts_the_others() {
        let test = TestStore::new();
        for n in 0..=DETAILS_MAX {
            let host = Some(format!("mx{n}.example.test"));
            test.done(CountTlsSession { host, ..session("a.example", Some(TlsFault::CertificateNotTrusted)) });
        }
        let row = row(&test, day_of(test.now()), "a.example");
        assert_eq!((row.failures, row.details.len()), (DETAILS_MAX as u64 + 1, DETAILS_MAX));
    }

    #[test]
    fn a_days_counts_are_removed_30_days_after_its_end() {
        let test = TestStore::new();
        for n in 0..SLICE {
            test.done(session(&format!("d{n}.example"), None));
        }
        let due = test.timers(TimerKind::TlsReports)[0].due;
        test.set_now(due - Duration::from_millis(1));
        test.done(session("late.example", None));
        test.set_now(due);
        test.done(SweepTlsReports { due });
        let again = test.timers(TimerKind::TlsReports)[0];
        assert_eq!((again.due, test.count(Table::TlsReports, &[])), (due, 1), "the slice was full");
        test.done(SweepTlsReports { due: again.due });
        assert_eq!((test.count(Table::TlsReports, &[]), test.count(Table::TlsReportDays, &[])), (1, 1));
        assert_eq!(test.timers(TimerKind::TlsReports).len(), 1, "the timer of the later day");
    }
}
