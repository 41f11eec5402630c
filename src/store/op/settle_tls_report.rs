//! Settling an attempt to send a day's TLS report about one domain (RFC 8460 5). Its timer is removed, or kept for the
//! destinations that could not be reached.

use serde::{Deserialize, Serialize};

use super::{Infallible, Op};
use crate::base::time::Timestamp;
use crate::store::error::OpError;
use crate::store::read::Read;
use crate::store::row::tls_policy::{PolicyType, TlsReportRow};
use crate::store::schema;
use crate::store::tables::Tables;
use crate::store::timer::Timer;

/// Settles the timer of a report.
#[derive(Debug, Serialize, Deserialize)]
pub struct SettleTlsReport {
    /// The timer that was served.
    pub timer: Timer,
    /// Destinations that have received the report.
    pub delivered_to: Vec<String>,
    /// Time of the next attempt for the other destinations; `None` if there is no further attempt.
    pub again: Option<Timestamp>,
}

impl Op for SettleTlsReport {
    type Reply = ();
    type Refusal = Infallible;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<(), OpError<Infallible>> {
        tables.disarm(self.timer);
        let Some(due) = self.again else { return Ok(()) };
        // Without its counts there is nothing to report.
        for policy_type in PolicyType::ALL {
            let key = schema::tls_report(self.timer.id.0, policy_type);
            if let Some(row) = tables.row::<TlsReportRow>(&key)? {
                tables.put(&key, &TlsReportRow { delivered_to: self.delivered_to.clone(), ..row });
                tables.arm(Timer { due, ..self.timer });
                break;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::store::op::tls_report::CountTlsSession;
    use crate::store::schema::Table;
    use crate::store::testing::TestStore;
    use crate::store::timer::TimerKind;

    fn counted(test: &TestStore) -> Timer {
        test.done(CountTlsSession {
            domain: "a.example".parse().unwrap(),
            policy_type: PolicyType::Sts,
            policy: Vec::new(),
            host: None,
            fault: None,
            report_after: Some(Duration::ZERO),
        });
        test.timers(TimerKind::TlsReport)[0]
    }

    #[test]
    fn a_partly_accepted_report_waits_and_remembers_who_accepted_it() {
        let test = TestStore::new();
        let timer = counted(&test);
        let due = timer.due + Duration::from_secs(600);
        let delivered_to = vec!["mailto:a@a.example".to_owned()];
        test.done(SettleTlsReport { timer, delivered_to: delivered_to.clone(), again: Some(due) });
        assert_eq!(test.timers(TimerKind::TlsReport), [Timer { due, ..timer }]);
        assert_eq!(
            test.row::<TlsReportRow>(&schema::tls_report(timer.id.0, PolicyType::Sts)).delivered_to,
            delivered_to
        );
        test.done(SettleTlsReport { timer: Timer { due, ..timer }, delivered_to, again: None });
        assert!(test.timers(TimerKind::TlsReport).is_empty());
        assert_eq!(test.count(Table::TlsReports, &[]), 1, "the counts stay until they expire");
    }

    #[test]
    fn a_report_without_counts_ends() {
        let test = TestStore::new();
        let timer = Timer { id: crate::base::id::Ulid([9; 16]), ..counted(&test) };
        test.done(SettleTlsReport { timer, delivered_to: Vec::new(), again: Some(timer.due) });
        assert_eq!(test.timers(TimerKind::TlsReport).len(), 1, "the other report's timer");
    }
}
