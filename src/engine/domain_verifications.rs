//! Domain checks in flight that accounts have requested. Such a check sends a dozen queries without a cache, and the
//! name servers of the domain decide how long they take. So only a few run at once: they never use up the query slots
//! that deliveries need.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::base::id::AccountId;
use crate::store::error::OpError;
use crate::store::op::domain::DomainRefusal;

/// Maximum number of checks of one account, waiting or running.
const OF_ACCOUNT_MAX: usize = 2;
/// Maximum number of running checks. Others wait in the order of their requests.
const AT_ONCE: usize = 8;

type Counts = Arc<Mutex<HashMap<AccountId, usize>>>;

/// The requested checks in flight.
pub(super) struct DomainVerifications {
    counts: Counts,
    permits: Arc<Semaphore>,
}

/// A requested check, until this value is dropped.
pub(super) struct DomainVerification {
    account: AccountId,
    counts: Counts,
    _permit: Option<OwnedSemaphorePermit>,
}

impl Default for DomainVerifications {
    fn default() -> Self {
        Self { counts: Arc::default(), permits: Arc::new(Semaphore::new(AT_ONCE)) }
    }
}

impl DomainVerifications {
    /// Begins a check once it is its turn.
    ///
    /// # Errors
    /// [`DomainRefusal::Verifying`] if the account has the maximum number of checks in flight.
    pub(super) async fn begin(&self, account: AccountId) -> Result<DomainVerification, OpError<DomainRefusal>> {
        {
            let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
            let count = counts.entry(account).or_default();
            if *count == OF_ACCOUNT_MAX {
                return Err(OpError::Refused(DomainRefusal::Verifying));
            }
            *count += 1;
        }
        let mut verification = DomainVerification { account, counts: Arc::clone(&self.counts), _permit: None };
        // The semaphore is never closed.
        verification._permit = Arc::clone(&self.permits).acquire_owned().await.ok();
        Ok(verification)
    }
}

impl Drop for DomainVerification {
    fn drop(&mut self) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.account) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.account);
            }
        }
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
        assert!(checks.counts.lock().unwrap().is_empty());
        assert_eq!(checks.permits.available_permits(), AT_ONCE);
    }

    #[tokio::test]
    async fn a_check_whose_request_ends_while_it_waits_leaves_no_trace() {
        let checks = DomainVerifications::default();
        let _all = Arc::clone(&checks.permits).acquire_many_owned(8).await.unwrap();
        {
            let mut waiting = pin!(checks.begin(account(1)));
            assert!(poll_fn(|context| Poll::Ready(waiting.as_mut().poll(context).is_pending())).await);
            assert_eq!(checks.counts.lock().unwrap()[&account(1)], 1);
        }
        assert!(checks.counts.lock().unwrap().is_empty());
    }
}
