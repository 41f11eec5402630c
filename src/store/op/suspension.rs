//! Suspending an account and resuming it. A suspended account can read, but not change or send anything. Its queued
//! mail and its webhooks are on hold.

use serde::{Deserialize, Serialize};

use super::{NotFound, Op};
use crate::base::id::{AccountId, EndpointId, Ulid};
use crate::domain::account::{Account, SuspensionReason};
use crate::store::error::{OpError, StoreError};
use crate::store::op::event::ENDPOINTS_MAX;
use crate::store::read::Read;
use crate::store::row::endpoint::EndpointRow;
use crate::store::row::suspension::SuspensionRow;
use crate::store::schema::Table;
use crate::store::tables::Tables;
use crate::store::timer::{Timer, TimerKind};

/// Returns the suspension of an account; `None` if it is not suspended.
///
/// # Errors
/// Store errors.
pub fn suspension(read: &impl Read, account: AccountId) -> Result<Option<SuspensionRow>, StoreError> {
    read.row(account.as_bytes())
}

/// Returns whether deliveries to an endpoint may be attempted: it is enabled, and its account is not suspended.
///
/// # Errors
/// Store errors.
pub fn accepts_deliveries(
    read: &impl Read,
    account: AccountId,
    endpoint: Option<&EndpointRow>,
) -> Result<bool, StoreError> {
    Ok(endpoint.is_some_and(|endpoint| endpoint.state.is_enabled()) && suspension(read, account)?.is_none())
}

/// Suspends an account. Repeating it changes the reason.
#[derive(Debug, Serialize, Deserialize)]
pub struct SuspendAccount {
    /// The account.
    pub account: AccountId,
    /// The reason.
    pub reason: SuspensionReason,
}

impl Op for SuspendAccount {
    type Reply = SuspensionRow;
    type Refusal = NotFound;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<SuspensionRow, OpError<NotFound>> {
        tables.row::<Account>(self.account.as_bytes())?.ok_or(OpError::Refused(NotFound))?;
        let since = suspension(tables, self.account)?.map_or(tables.now(), |suspended| suspended.since);
        let row = SuspensionRow { since, reason: self.reason.clone() };
        tables.put(self.account.as_bytes(), &row);
        Ok(row)
    }
}

/// Resumes a suspended account: its queue and its webhooks continue. Resuming another account changes nothing.
#[derive(Debug, Serialize, Deserialize)]
pub struct ResumeAccount {
    /// The account.
    pub account: AccountId,
}

impl Op for ResumeAccount {
    type Reply = ();
    type Refusal = NotFound;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<(), OpError<NotFound>> {
        tables.row::<Account>(self.account.as_bytes())?.ok_or(OpError::Refused(NotFound))?;
        tables.remove(Table::Suspensions, self.account.as_bytes());
        let now = tables.now();
        for (key, _) in tables.sound_rows::<EndpointRow>(self.account.as_bytes(), ENDPOINTS_MAX)? {
            let Some(endpoint) = key.last_chunk::<16>().map(|id| EndpointId(Ulid(*id))) else { continue };
            // The endpoint's deliveries were parked during the suspension.
            tables.arm(Timer::new(now, TimerKind::Unpark, self.account, endpoint.0));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::account::QuotaLimits;
    use crate::store::testing::TestStore;

    #[test]
    fn a_repeated_suspension_keeps_its_start_and_changes_the_reason() {
        let test = TestStore::new();
        let account = test.account(QuotaLimits::default());
        let suspend = |reason: &str| SuspendAccount { account, reason: reason.parse().unwrap() };
        let first = test.done(suspend("unpaid"));
        let second = test.done(suspend("spam"));
        assert_eq!((second.since, second.reason.as_str()), (first.since, "spam"));
        assert_eq!(suspension(&test.snapshot(), account).unwrap(), Some(second));
        for _ in 0..2 {
            test.done(ResumeAccount { account });
            assert_eq!(suspension(&test.snapshot(), account).unwrap(), None);
        }
    }

    #[test]
    fn only_existing_accounts_are_suspended() {
        let test = TestStore::new();
        let (account, reason) = (AccountId::default(), "unpaid".parse().unwrap());
        assert!(matches!(test.commit(SuspendAccount { account, reason }), Err(OpError::Refused(NotFound))));
        assert!(matches!(test.commit(ResumeAccount { account }), Err(OpError::Refused(NotFound))));
    }
}
