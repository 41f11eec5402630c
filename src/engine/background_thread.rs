//! A low-priority thread with a bounded queue, for CPU-bound work outside the mail flow. Accounts take turns, so one
//! account delays another by one job at most.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use super::executor::{Executor, HasThread};
use super::work_slots::WorkSlots;
use crate::base::id::AccountId;
use crate::machine::fair_queue::FairQueue;

/// Maximum number of queued jobs.
const QUEUE: usize = 512;
/// Maximum number of jobs of one account, queued or running.
const OF_ACCOUNT_MAX: usize = 8;

type Work = Box<dyn FnOnce() + Send>;

/// A low-priority thread. It ends when this value is dropped.
pub(super) struct BackgroundThread {
    inbox: Arc<Inbox>,
    slots: WorkSlots,
    has_thread: HasThread,
}

/// The queued jobs.
#[derive(Default)]
struct Inbox {
    state: Mutex<InboxState>,
    /// Notified when a job is queued, and when the queue closes.
    changed: Condvar,
}

#[derive(Default)]
struct InboxState {
    jobs: FairQueue<Work>,
    /// Whether no more jobs are accepted, or the thread has ended.
    is_closed: bool,
}

/// Reason why a job has no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobFailure {
    /// The queue or the account's share of it is full.
    Crowded,
    /// The job panicked, or the thread could not be started.
    Failed,
}

impl BackgroundThread {
    /// Starts the thread, which calls `lower_priority` first.
    pub(super) fn new(executor: Executor, name: &str, lower_priority: fn()) -> Self {
        let inbox = Arc::new(Inbox::default());
        let served = Arc::clone(&inbox);
        let serve = move || {
            lower_priority();
            serve(&served);
        };
        let has_thread = executor.spawn_worker(name.to_owned(), serve).unwrap_or_else(|error| {
            tracing::error!(%error, name, "could not start a low-priority thread; its work will be refused");
            inbox.state().is_closed = true;
            HasThread::Yes
        });
        Self { inbox, slots: WorkSlots::new(usize::MAX, OF_ACCOUNT_MAX), has_thread }
    }

    /// Runs `work` for an account on the thread and returns its result. Skips the job if its caller is gone before it
    /// starts.
    ///
    /// # Errors
    /// [`JobFailure`].
    pub(super) async fn run<T: Send + 'static>(
        &self,
        account: AccountId,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, JobFailure> {
        let slot = self.slots.take(account).ok_or(JobFailure::Crowded)?;
        let (sender, result) = oneshot::channel();
        let work = move || {
            let _slot = slot;
            if !sender.is_closed() {
                drop(sender.send(work()));
            }
        };
        match self.has_thread {
            HasThread::Yes => self.inbox.push(account, Box::new(work))?,
            HasThread::No => do_work(work),
        }
        result.await.map_err(|_| JobFailure::Failed)
    }
}

impl Inbox {
    fn state(&self) -> MutexGuard<'_, InboxState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, account: AccountId, work: Work) -> Result<(), JobFailure> {
        let mut state = self.state();
        if state.is_closed {
            return Err(JobFailure::Failed);
        }
        if state.jobs.len() >= QUEUE {
            return Err(JobFailure::Crowded);
        }
        state.jobs.push(account, work);
        drop(state);
        self.changed.notify_one();
        Ok(())
    }

    /// Returns the next job; `None` once no more jobs are accepted.
    fn next(&self) -> Option<Work> {
        let waits = |state: &mut InboxState| state.jobs.is_empty() && !state.is_closed;
        let mut state = self.changed.wait_while(self.state(), waits).unwrap_or_else(PoisonError::into_inner);
        state.jobs.pop()
    }
}

impl Drop for BackgroundThread {
    fn drop(&mut self) {
        self.inbox.state().is_closed = true;
        self.inbox.changed.notify_one();
    }
}

fn serve(inbox: &Inbox) {
    while let Some(work) = inbox.next() {
        do_work(work);
    }
}

fn do_work(work: impl FnOnce()) {
    // A panic ends only its job. The job's dropped sender notifies its caller.
    if catch_unwind(AssertUnwindSafe(work)).is_err() {
        tracing::error!("low-priority job panicked; its caller gets an error");
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
    async fn one_account_never_fills_the_queue() {
        let beside = Arc::new(BackgroundThread::new(Executor::Threads, "test", || {}));
        let (release, held) = channel::<()>();
        let held = Arc::new(Mutex::new(held));
        let mut jobs = tokio::task::JoinSet::new();
        for _ in 0..OF_ACCOUNT_MAX {
            let (beside, held) = (Arc::clone(&beside), Arc::clone(&held));
            jobs.spawn(async move { beside.run(account(1), move || held.lock().unwrap().recv().unwrap_err()).await });
        }
        while beside.slots.taken() != OF_ACCOUNT_MAX {
            tokio::task::yield_now().await;
        }
        assert_eq!(beside.run(account(1), || ()).await, Err(JobFailure::Crowded));
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
        // The thread releases a job's slot after its answer.
        while beside.slots.taken() > 0 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn another_account_waits_for_at_most_one_job() {
        let beside = Arc::new(BackgroundThread::new(Executor::Threads, "test", || {}));
        let (done, order) = channel();
        let (release, held) = channel::<()>();
        let mut jobs = tokio::task::JoinSet::new();
        let run = |jobs: &mut tokio::task::JoinSet<_>, number: u8, work: Work| {
            let beside = Arc::clone(&beside);
            jobs.spawn(async move { beside.run(account(number), work).await });
        };
        run(&mut jobs, 1, Box::new(move || assert!(held.recv().is_err())));
        for number in [1; OF_ACCOUNT_MAX - 1].into_iter().chain([2, 3]) {
            let done = done.clone();
            run(&mut jobs, number, Box::new(move || done.send(number).unwrap()));
        }
        while beside.slots.taken() < OF_ACCOUNT_MAX + 2 {
            tokio::task::yield_now().await;
        }
        drop(release);
        while jobs.join_next().await.is_some() {}
        let order: Vec<_> = order.try_iter().collect();
        assert!(order.iter().position(|number| *number == 2) <= Some(2), "{order:?}");
        assert!(order.iter().position(|number| *number == 3) <= Some(3), "{order:?}");
    }

    #[tokio::test]
    async fn a_job_without_its_caller_is_skipped() {
        let beside = Arc::new(BackgroundThread::new(Executor::Threads, "test", || {}));
        let ((release, held), (done, was_done)) = (channel::<()>(), channel::<()>());
        let first = tokio::spawn({
            let beside = Arc::clone(&beside);
            async move { beside.run(account(1), move || assert!(held.recv().is_err())).await }
        });
        let gone = tokio::spawn({
            let beside = Arc::clone(&beside);
            async move { beside.run(account(2), move || done.send(()).unwrap()).await }
        });
        while beside.slots.taken() < 2 {
            tokio::task::yield_now().await;
        }
        gone.abort();
        assert!(gone.await.is_err());
        drop(release);
        first.await.unwrap().unwrap();
        assert_eq!(beside.run(account(1), || 7).await, Ok(7));
        assert!(was_done.recv().is_err());
    }

    #[tokio::test]
    async fn the_thread_lowers_its_priority_first_and_survives_a_panic() {
        static LOWERED: AtomicUsize = AtomicUsize::new(0);
        let beside = BackgroundThread::new(Executor::Threads, "test", || LOWERED.store(1, Ordering::SeqCst));
        let panicked: Result<(), _> = beside.run(account(1), || panic!("on the only thread")).await;
        assert_eq!(panicked, Err(JobFailure::Failed));
        assert_eq!(beside.run(account(1), || LOWERED.load(Ordering::SeqCst)).await, Ok(1));
    }
}
