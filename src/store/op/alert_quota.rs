//! The alert of a quota: most of a day's quota is used, or a message was refused. Accepting a message raises the first.
//! A refusal writes nothing, so the second is raised after it.

use super::alert;
use crate::base::id::AccountId;
use crate::base::time::Timestamp;
use crate::domain::account::QuotaLimits;
use crate::domain::alert::{Condition, Severity, Sighting};
use crate::machine::quota::{Quota, QuotaExhausted};
use crate::store::error::StoreError;
use crate::store::tables::Tables;

/// Percentage of a day's quota at which its use becomes a warning.
const PART: u64 = 80;

/// Returns whether `used` is most of a day's quota.
const fn is_most(used: u64, limit: u64) -> bool {
    used.saturating_mul(100) >= limit.saturating_mul(PART)
}

/// Raises or ends the alert of an account whose quota has counted `added` more messages.
///
/// # Errors
/// Database errors.
pub(super) fn counted(
    tables: &mut Tables<'_>,
    account: AccountId,
    quota: &Quota,
    limits: QuotaLimits,
    added: u64,
) -> Result<(), StoreError> {
    let before = quota.day_used.saturating_sub(added);
    if before == 0 {
        // This is the first message of a day.
        alert::gone(tables, account, Condition::Quota, "")?;
    }
    if is_most(quota.day_used, limits.per_day) && (before == 0 || !is_most(before, limits.per_day)) {
        let most = sighting(Severity::Warning, &format!("{} of {} messages", quota.day_used, limits.per_day));
        alert::found(tables, account, &most)?;
    }
    Ok(())
}

/// Returns the sighting for a refused message.
pub fn refused(exhausted: &QuotaExhausted) -> Sighting {
    sighting(Severity::Critical, &format!("the whole {}", exhausted.window.as_str()))
}

/// Returns the sighting for a quota at `now`; `None` if its use is below the warning.
pub fn quota_sighting(quota: &Quota, limits: QuotaLimits, now: Timestamp) -> Option<Sighting> {
    let view = quota.view(limits, now);
    if let Err(exhausted) = quota.check(1, limits, now) {
        return Some(refused(&exhausted));
    }
    is_most(view.day.used, limits.per_day)
        .then(|| sighting(Severity::Warning, &format!("{} of {} messages", view.day.used, limits.per_day)))
}

fn sighting(severity: Severity, used: &str) -> Sighting {
    let summary = match severity {
        Severity::Critical => "Messages are refused: the quota is used up",
        Severity::Info | Severity::Warning => "Most of the day's quota is used",
    };
    Sighting::new(Condition::Quota, severity, summary, format!("The account has used {used}."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::row::alert::AlertRow;
    use crate::store::schema::Table;
    use crate::store::testing::TestStore;
    use std::time::Duration;

    fn severities(test: &TestStore, account: AccountId) -> Vec<(Severity, bool)> {
        use crate::store::read::Read as _;
        let rows = test.snapshot().rows::<AlertRow>(account.as_bytes(), 9).unwrap();
        rows.into_iter().map(|(_, row)| (row.severity, row.resolved_at.is_none())).collect()
    }

    #[test]
    fn eighty_percent_of_a_day_raise_a_warning_that_ends_the_next_day() {
        let test = TestStore::new();
        let sender = test.sender_with(QuotaLimits { per_hour: 100, per_day: 5 });
        for number in 0..3 {
            sender.accept(&format!("a{number}@example.net"));
        }
        assert_eq!(test.count(Table::Alerts, &[]), 0);
        sender.accept("b@example.net");
        assert_eq!(severities(&test, sender.account), [(Severity::Warning, true)]);
        test.pass(Duration::from_secs(24 * 3600));
        sender.accept("c@example.net");
        assert_eq!(severities(&test, sender.account), [(Severity::Warning, false)]);
    }

    #[test]
    fn the_alert_follows_the_quota_windows() {
        let (limits, now) = (QuotaLimits { per_hour: 10, per_day: 100 }, Timestamp::from_millis(1_700_000_000_000));
        let used = |messages: u64| {
            let quota = (0..messages).fold(Quota::default(), |quota, _| quota.admit(limits, now).unwrap().0);
            quota_sighting(&quota, limits, now).map(|sighting| sighting.severity)
        };
        assert_eq!([used(0), used(9), used(10)], [None, None, Some(Severity::Critical)]);
        let hours = QuotaLimits { per_hour: 1000, per_day: 10 };
        let quota = (0..8).fold(Quota::default(), |quota, _| quota.admit(hours, now).unwrap().0);
        assert_eq!(quota_sighting(&quota, hours, now).map(|sighting| sighting.severity), Some(Severity::Warning));
    }
}
