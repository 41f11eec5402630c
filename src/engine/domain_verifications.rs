//! Domain checks in flight that accounts have requested. Such a check sends a dozen queries without a cache, and the
//! name servers of the domain decide how long they take. So only a few run at once: they never use up the query slots
//! that deliveries need.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::work_slots::{WorkSlot, WorkSlots};
use crate::base::id::AccountId;
use crate::store::error::OpError;
use crate::store::op::domain::DomainRefusal;

/// Maximum number of checks of one account, waiting or running.
const OF_ACCOUNT_MAX: usize = 2;
/// Maximum number of running checks. Others wait in the order of their requests.
const AT_ONCE: usize = 8;

/// The requested checks in flight.
pub(super) struct DomainVerifications {
    requested: WorkSlots,
    permits: Arc<Semaphore>,
}

/// A requested check, until this value is dropped.
pub(super) struct DomainVerification {
    _slot: WorkSlot,
    _permit: Option<OwnedSemaphorePermit>,
}

impl Default for DomainVerifications {
    fn default() -> Self {
        Self { requested: WorkSlots::new(usize::MAX, OF_ACCOUNT_MAX), permits: Arc::new(Semaphore::new(AT_ONCE)) }
    }
}

impl DomainVerifications {
    /// Begins a check once it is its turn.
    ///
    /// # Errors
    /// [`DomainRefusal::Verifying`] if the account has the maximum number of checks in flight.
    pub(super) async fn begin(&self, account: AccountId) -> Result<DomainVerification, OpError<DomainRefusal>> {
        let slot = self.requested.take(account).ok_or(OpError::Refused(DomainRefusal::Verifying))?;
        // The semaphore is never closed.
        let permit = Arc::clone(&self.permits).acquire_owned().await.ok();
        Ok(DomainVerification { _slot: slot, _permit: permit })
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;
    use std::task::Poll;

    use super::*;
    use crate::base::id::Ulid;

    fn account(number: usize) -> AccountId {
        AccountId(Ulid([u8::try_from(number).unwrap(); 16]))
    }

    #[tokio::test]
    async fn an_account_has_two_checks_in_flight_and_all_accounts_eight() {
        let checks = DomainVerifications::default();
        let mut running = Vec::new();
        for number in 0..AT_ONCE {
            running.push(checks.begin(account(number / OF_ACCOUNT_MAX)).await.unwrap());
        }
        assert!(matches!(checks.begin(account(0)).await, Err(OpError::Refused(DomainRefusal::Verifying))));
        let other = account(AT_ONCE);
        let mut ninth = pin!(checks.begin(other));
        assert!(poll_fn(|context| Poll::Ready(ninth.as_mut().poll(context).is_pending())).await, "it waits");
        drop(running.remove(0));
        let ninth = ninth.await.unwrap();
        drop((running, ninth));
        assert_eq!(checks.requested.taken(), 0);
        assert_eq!(checks.permits.available_permits(), AT_ONCE);
    }

    #[tokio::test]
    async fn a_check_whose_request_ends_while_it_waits_leaves_no_trace() {
        let checks = DomainVerifications::default();
        let _all = Arc::clone(&checks.permits).acquire_many_owned(8).await.unwrap();
        {
            let mut waiting = pin!(checks.begin(account(1)));
            assert!(poll_fn(|context| Poll::Ready(waiting.as_mut().poll(context).is_pending())).await);
            assert_eq!(checks.requested.taken(), 1);
        }
        assert_eq!(checks.requested.taken(), 0);
    }
}
