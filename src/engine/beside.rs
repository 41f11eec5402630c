//! Work that runs beside sending: one thread of low priority with a bounded queue, for work that keeps a processor busy
//! and that nobody's mail waits for.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use tokio::sync::oneshot;

use crate::base::id::AccountId;

/// Jobs that are queued at most.
const QUEUE: usize = 64;
/// Jobs that one account has queued or running at most, so that it leaves room for others.
const OF_ACCOUNT_MAX: usize = 8;

type Work = Box<dyn FnOnce() + Send>;
type Counts = Arc<Mutex<HashMap<AccountId, usize>>>;

/// A low-priority thread. It ends when this is dropped.
pub(super) struct Beside {
    work: SyncSender<Work>,
    counts: Counts,
}

/// Why a job has no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotDone {
    /// The queue is full, or the account's share of it.
    Crowded,
    /// The job panicked, or the thread could not be started.
    Failed,
}

impl Beside {
    /// Starts the thread, which calls `lower_priority` first.
    pub(super) fn new(name: &str, lower_priority: fn()) -> Self {
        let (work, inbox) = sync_channel::<Work>(QUEUE);
        let serve = move || {
            lower_priority();
            serve(&inbox);
        };
        if let Err(error) = thread::Builder::new().name(name.to_owned()).spawn(serve) {
            tracing::error!(%error, name, "could not start a thread; its work will be refused");
        }
        Self { work, counts: Counts::default() }
    }

    /// Does `work` for an account on the thread and returns its result.
    ///
    /// # Errors
    /// [`NotDone`].
    pub(super) async fn run<T: Send + 'static>(
        &self,
        account: AccountId,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, NotDone> {
        let share = Share::take(&self.counts, account).ok_or(NotDone::Crowded)?;
        let (sender, result) = oneshot::channel();
        let work = move || {
            let _share = share;
            drop(sender.send(work()));
        };
        self.work.try_send(Box::new(work)).map_err(|_| NotDone::Crowded)?;
        result.await.map_err(|_| NotDone::Failed)
    }
}

fn serve(inbox: &Receiver<Work>) {
    while let Ok(work) = inbox.recv() {
        // A panic is that job's alone: its caller is told by what is dropped.
        if catch_unwind(AssertUnwindSafe(work)).is_err() {
            tracing::error!("a job of low priority panicked");
        }
    }
}

/// A job of an account, until it is dropped.
struct Share {
    counts: Counts,
    account: AccountId,
}

impl Share {
    fn take(counts: &Counts, account: AccountId) -> Option<Self> {
        let mut locked = counts.lock().unwrap_or_else(PoisonError::into_inner);
        let count = locked.entry(account).or_default();
        if *count >= OF_ACCOUNT_MAX {
            return None;
        }
        *count += 1;
        drop(locked);
        Some(Self { counts: Arc::clone(counts), account })
    }
}

impl Drop for Share {
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
    use super::*;
    use crate::base::id::Ulid;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::channel;

    fn account(byte: u8) -> AccountId {
        AccountId(Ulid([byte; 16]))
    }

    #[tokio::test]
    async fn one_account_leaves_room_in_the_queue_for_others() {
        let beside = Arc::new(Beside::new("test", || {}));
        let (release, held) = channel::<()>();
        let held = Arc::new(Mutex::new(held));
        let mut jobs = tokio::task::JoinSet::new();
        for _ in 0..OF_ACCOUNT_MAX {
            let (beside, held) = (Arc::clone(&beside), Arc::clone(&held));
            jobs.spawn(async move { beside.run(account(1), move || held.lock().unwrap().recv().unwrap_err()).await });
        }
        while beside.counts.lock().unwrap().get(&account(1)) != Some(&OF_ACCOUNT_MAX) {
            tokio::task::yield_now().await;
        }
        assert_eq!(beside.run(account(1), || ()).await, Err(NotDone::Crowded));
        let other = {
            let beside = Arc::clone(&beside);
            tokio::spawn(async move { beside.run(account(2), || 7).await })
        };
        drop(release);
        assert_eq!(other.await.unwrap(), Ok(7));
        while let Some(done) = jobs.join_next().await {
            assert_eq!(done.unwrap(), Ok(std::sync::mpsc::RecvError));
        }
        assert_eq!(beside.run(account(1), || 8).await, Ok(8));
        assert!(beside.counts.lock().unwrap().is_empty());
    }

    #[tokio::test]
    async fn the_thread_lowers_its_priority_first_and_survives_a_panic() {
        static LOWERED: AtomicUsize = AtomicUsize::new(0);
        let beside = Beside::new("test", || LOWERED.store(1, Ordering::SeqCst));
        let panicked: Result<(), _> = beside.run(account(1), || panic!("on the only thread")).await;
        assert_eq!(panicked, Err(NotDone::Failed));
        assert_eq!(beside.run(account(1), || LOWERED.load(Ordering::SeqCst)).await, Ok(1));
    }
}
