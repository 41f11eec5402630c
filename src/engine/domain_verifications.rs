//! Domain checks in flight that accounts have requested. Such a check sends a dozen queries without a cache, and the
//! name servers of the domain decide how long they take. So only a few run at once: they never use up the query slots
//! that deliveries need.

use super::turn_permits::{QueuedTurn, TurnQueue};
use crate::base::id::AccountId;
use crate::store::error::OpError;
use crate::store::op::domain::DomainRefusal;

/// Maximum number of checks of one account, waiting or running.
const OF_ACCOUNT_MAX: usize = 2;
/// Maximum number of running checks. Others wait, and accounts take turns. Together they send fewer queries than
/// deliveries may have in flight.
const AT_ONCE: usize = 16;

/// The requested checks in flight.
pub(super) struct DomainVerifications(TurnQueue);

impl Default for DomainVerifications {
    fn default() -> Self {
        Self(TurnQueue::new(AT_ONCE, usize::MAX, OF_ACCOUNT_MAX))
    }
}

impl DomainVerifications {
    /// Begins a check once it is its turn. The check lasts until the returned value is dropped.
    ///
    /// # Errors
    /// [`DomainRefusal::Verifying`] if the account has the maximum number of checks in flight.
    pub(super) async fn begin(&self, account: AccountId) -> Result<QueuedTurn, OpError<DomainRefusal>> {
        self.0.take(account).await.ok_or(OpError::Refused(DomainRefusal::Verifying))
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    use super::*;
    use crate::base::id::Ulid;

    type Check<'a> = Pin<Box<dyn Future<Output = Result<QueuedTurn, OpError<DomainRefusal>>> + 'a>>;

    fn check(checks: &DomainVerifications, number: usize) -> Check<'_> {
        Box::pin(checks.begin(AccountId(Ulid([u8::try_from(number).unwrap(); 16]))))
    }

    /// Returns the turn if the check runs by now.
    fn running(check: &mut Check<'_>) -> Option<QueuedTurn> {
        match check.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(turn) => Some(turn.unwrap()),
            Poll::Pending => None,
        }
    }

    /// Runs two checks of each of these accounts.
    fn run_two_each(checks: &DomainVerifications, accounts: usize) -> Vec<QueuedTurn> {
        (0..2 * accounts).map(|number| running(&mut check(checks, number / 2)).unwrap()).collect()
    }

    #[test]
    fn checks_of_five_accounts_keep_no_sixth_waiting() {
        let checks = DomainVerifications::default();
        let _running = run_two_each(&checks, 5);
        assert!(running(&mut check(&checks, 5)).is_some());
    }

    #[test]
    fn an_account_has_two_checks_in_flight_and_accounts_take_turns() {
        let checks = DomainVerifications::default();
        let mut turns = run_two_each(&checks, AT_ONCE / OF_ACCOUNT_MAX);
        let refused = check(&checks, 0).as_mut().poll(&mut Context::from_waker(Waker::noop())).map(Result::err);
        assert!(matches!(refused, Poll::Ready(Some(OpError::Refused(DomainRefusal::Verifying)))));
        let mut waiting = [10, 10, 11].map(|number| check(&checks, number));
        assert!(waiting.iter_mut().all(|check| running(check).is_none()));
        turns.truncate(turns.len() - 2);
        let new_turns = waiting.each_mut().map(running);
        assert_eq!(new_turns.each_ref().map(Option::is_some), [true, false, true]);
        drop((waiting, turns, new_turns));
        assert_eq!(checks.0.taken(), 0, "a check whose request ends leaves no trace");
    }
}
