//! Blocking work started by accounts: searches, exports, reading stored messages. It runs on a few threads, and
//! accounts take turns. So an account can't fill the runtime's thread pool or block another account.

use super::executor::Executor;
use super::turn_permits::TurnPermits;
use crate::base::id::AccountId;
use crate::store::error::StoreError;

/// Maximum number of threads for blocking work of accounts.
pub(super) const WORK_AT_ONCE: usize = 8;
/// Maximum number of threads that read the bodies of messages in flight. Reading one takes about a millisecond.
pub(super) const BODIES_AT_ONCE: usize = 16;

/// Account identifier for the operator and the service itself.
pub const OPERATOR: AccountId = AccountId(crate::base::id::Ulid([0; 16]));

/// The threads for blocking work.
pub(super) struct Blocking {
    executor: Executor,
    permits: TurnPermits,
}

impl Blocking {
    /// Allows `at_once` concurrent jobs.
    pub(super) fn new(executor: Executor, at_once: usize) -> Self {
        Self { executor, permits: TurnPermits::new(at_once) }
    }

    /// Runs `work` for an account on a thread that may block, once it is the account's turn.
    ///
    /// # Errors
    /// The work panicked.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        account: AccountId,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, StoreError> {
        let permit = self.permits.take(account).await.ok_or(StoreError::Panicked)?;
        // The work continues even if the caller goes away, so the work owns the permit.
        let work = move || {
            let _permit = permit;
            work()
        };
        self.executor.run(work).await.map_err(|_| StoreError::Panicked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::Ulid;
    use std::sync::Arc;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Duration;

    fn account(byte: u8) -> AccountId {
        AccountId(Ulid([byte; 16]))
    }

    /// Returns work that reports its start, and ends when the returned sender is dropped.
    fn held(began: &Sender<u8>, number: u8) -> (impl FnOnce() + Send + 'static, Sender<()>) {
        let ((release, held), began) = (channel(), began.clone());
        let work = move || {
            began.send(number).unwrap();
            assert!(held.recv().is_err());
        };
        (work, release)
    }

    fn begun(began: &Receiver<u8>) -> u8 {
        began.recv_timeout(Duration::from_secs(30)).unwrap()
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn one_account_never_fills_the_pool_and_another_account_is_served_at_once() {
        let (blocking, (began, has_begun)) = (Arc::new(Blocking::new(Executor::Threads, 4)), channel());
        let mut releases = Vec::new();
        for _ in 0..500 {
            let (work, release) = held(&began, 1);
            let blocking = Arc::clone(&blocking);
            tokio::spawn(async move { blocking.run(account(1), work).await });
            releases.push(release);
        }
        assert_eq!([begun(&has_begun), begun(&has_begun)], [1, 1]);
        assert_eq!(blocking.run(account(2), || 7).await.unwrap(), 7);
        assert!(has_begun.try_recv().is_err(), "a third job of the first account has started");
        drop(releases);
        for _ in 2..500 {
            begun(&has_begun);
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_cancelled_caller_keeps_its_permit_until_its_work_ends_but_leaves_the_queue() {
        let (blocking, (began, has_begun)) = (Arc::new(Blocking::new(Executor::Threads, 1)), channel());
        let run = |account, work| {
            let blocking = Arc::clone(&blocking);
            tokio::spawn(async move { blocking.run(account, work).await })
        };
        let (work, release) = held(&began, 1);
        let first = run(account(1), work);
        begun(&has_begun);
        first.abort();
        let (gone, _release_gone) = held(&began, 2);
        let gone = run(account(1), gone);
        let (last, release_last) = held(&began, 3);
        let last = run(account(2), last);
        while blocking.permits.waiting() < 2 {
            tokio::task::yield_now().await;
        }
        gone.abort();
        assert!(gone.await.unwrap_err().is_cancelled());
        assert!(has_begun.try_recv().is_err(), "the cancelled caller's work still runs");
        drop((release, release_last));
        assert_eq!(begun(&has_begun), 3);
        last.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn work_that_panics_releases_its_permit() {
        let blocking = Blocking::new(Executor::Threads, 1);
        let panicked: Result<(), _> = blocking.run(OPERATOR, || panic!("on a thread")).await;
        assert!(matches!(panicked, Err(StoreError::Panicked)));
        assert_eq!(blocking.run(OPERATOR, || 7).await.unwrap(), 7);
    }
}
