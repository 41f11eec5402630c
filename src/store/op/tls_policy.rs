//! Storing the MTA-STS policies of receiving domains (RFC 8461). Each is stored until it expires, with its own timer.

use serde::{Deserialize, Serialize};

use super::{Infallible, Op};
use crate::base::id::{AccountId, Ulid};
use crate::base::time::Timestamp;
use crate::domain::hostname::DomainName;
use crate::smtp::mta_sts::StsPolicy;
use crate::store::error::{OpError, StoreError};
use crate::store::read::Read;
use crate::store::row::tls_policy::StsPolicyRow;
use crate::store::schema::{self, Table};
use crate::store::tables::Tables;
use crate::store::timer::{Timer, TimerKind};

/// Stores the policy that was just fetched from a domain, and replaces the previous one.
#[derive(Debug, Serialize, Deserialize)]
pub struct KeepStsPolicy {
    /// Domain of the policy.
    pub domain: DomainName,
    /// Identifier in the policy's DNS record.
    pub id: String,
    /// The policy.
    pub policy: StsPolicy,
}

impl Op for KeepStsPolicy {
    type Reply = StsPolicyRow;
    type Refusal = Infallible;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<StsPolicyRow, OpError<Infallible>> {
        let key = schema::sts_policy(&self.domain);
        if let Some(before) = tables.row::<StsPolicyRow>(&key)? {
            tables.disarm(timer(key, before.expires_at));
        }
        let now = tables.now();
        let row = StsPolicyRow {
            domain: self.domain.clone(),
            id: self.id.clone(),
            policy: self.policy.clone(),
            fetched_at: now,
            expires_at: now + self.policy.max_age,
        };
        tables.put(&key, &row);
        tables.arm(timer(key, row.expires_at));
        Ok(row)
    }
}

/// Removes an expired policy.
#[derive(Debug, Serialize, Deserialize)]
pub struct ExpireStsPolicy {
    /// The timer that was served.
    pub timer: Timer,
}

impl Op for ExpireStsPolicy {
    type Reply = ();
    type Refusal = Infallible;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<(), OpError<Infallible>> {
        tables.disarm(self.timer);
        let key = self.timer.id.0;
        let row = tables.row::<StsPolicyRow>(&key)?;
        // A policy that was fetched again has another timer.
        if row.is_some_and(|row| row.expires_at <= self.timer.due) {
            tables.remove(Table::StsPolicies, &key);
        }
        Ok(())
    }
}

/// Returns the policy of `domain` that is valid at `now`.
///
/// # Errors
/// Database errors; a row that does not decode.
pub fn policy_of(read: &impl Read, domain: &DomainName, now: Timestamp) -> Result<Option<StsPolicyRow>, StoreError> {
    let row = read.row::<StsPolicyRow>(&schema::sts_policy(domain))?;
    // Two names with the same digest can't be found in practice. If they existed, each would only replace the other's
    // policy.
    Ok(row.filter(|row| row.domain == *domain && now < row.expires_at))
}

fn timer(key: [u8; 16], due: Timestamp) -> Timer {
    Timer::new(due, TimerKind::StsPolicy, AccountId::default(), Ulid(key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::smtp::mta_sts::StsMode;
    use crate::store::testing::{START, TestStore};
    use std::time::Duration;

    const DAY: Duration = Duration::from_secs(24 * 3600);

    fn kept(id: &str, max_age: Duration) -> KeepStsPolicy {
        let policy = StsPolicy { mode: StsMode::Enforce, max_age, servers: vec!["mx.example.test".to_owned()] };
        KeepStsPolicy { domain: domain(), id: id.to_owned(), policy }
    }

    fn domain() -> DomainName {
        "example.test".parse().unwrap()
    }

    fn id_now(test: &TestStore) -> Option<String> {
        policy_of(&test.snapshot(), &domain(), test.now()).unwrap().map(|row| row.id)
    }

    #[test]
    fn a_policy_is_valid_until_it_expires_and_then_removed() {
        let test = TestStore::new();
        assert_eq!(id_now(&test), None);
        test.done(kept("1", DAY));
        test.set_now(START + DAY - Duration::from_millis(1));
        assert_eq!(id_now(&test).as_deref(), Some("1"));
        test.pass(Duration::from_millis(1));
        assert_eq!(id_now(&test), None);
        let timers = test.timers(TimerKind::StsPolicy);
        assert_eq!(timers.len(), 1);
        test.done(ExpireStsPolicy { timer: timers[0] });
        assert_eq!((test.count(Table::StsPolicies, &[]), test.timers(TimerKind::StsPolicy).len()), (0, 0));
    }

    #[test]
    fn a_policy_fetched_again_replaces_the_previous_one_and_its_timer() {
        let test = TestStore::new();
        test.done(kept("1", DAY));
        let stale = test.timers(TimerKind::StsPolicy)[0];
        test.pass(DAY / 2);
        test.done(kept("2", DAY));
        assert_eq!(test.timers(TimerKind::StsPolicy).len(), 1);
        test.pass(DAY / 2);
        test.done(ExpireStsPolicy { timer: stale });
        assert_eq!(id_now(&test).as_deref(), Some("2"), "the previous timer has no effect");
    }

    #[test]
    fn a_policy_survives_a_restart() {
        let mut test = TestStore::new();
        test.done(kept("1", DAY));
        test.reopen();
        assert_eq!(id_now(&test).as_deref(), Some("1"));
    }
}
