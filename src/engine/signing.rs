//! Threads for composing and signing messages, so that signatures never block the async workers, and the cache of
//! parsed DKIM keys. Accounts take turns on the threads, so that one account's burst does not delay the others. One
//! small message at a time may be signed on the caller's thread.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::oneshot;

use super::executor::{Executor, HasThread};
use super::meters::EngineMeters;
use crate::base::id::{AccountId, DomainId};
use crate::base::secret::MasterKey;
use crate::domain::sending_domain::DkimState;
use crate::machine::fair_queue::FairQueue;
use crate::mail::dkim::SigningKey;
use crate::store::row::domain::{DkimKeyRow, DomainRow};

/// Maximum number of messages that one job signs, after which the thread turns to the other accounts: some milliseconds
/// of work.
pub(super) const MESSAGES_PER_JOB: usize = 4;
/// Maximum number of cached keys: parsing one costs half a signature.
const KEYS_MAX: usize = 4096;

type Work = Box<dyn FnOnce() + Send>;

/// The place of a job among those of its account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum JobPlace {
    /// Behind the others.
    Last,
    /// Before the others, because it continues a submission that has begun. Otherwise all waiting submissions would
    /// end, and be committed, at the same time.
    First,
}

impl JobPlace {
    /// Returns the place of the next job of a list of which some messages may be `done`.
    pub(super) const fn after(done: usize) -> Self {
        if done == 0 { Self::Last } else { Self::First }
    }
}

/// A fixed number of threads for CPU-bound work.
pub(super) struct SigningPool {
    /// `None` if callers run the work themselves.
    jobs: Option<Arc<Jobs>>,
    keys: Arc<KeyCache>,
    meters: Arc<EngineMeters>,
}

impl SigningPool {
    /// Starts the threads, which end when the pool is dropped.
    pub(super) fn new(executor: Executor, threads: usize, meters: Arc<EngineMeters>) -> Self {
        let jobs = Arc::new(Jobs::default());
        let mut has_threads = HasThread::Yes;
        for number in 0..threads.max(1) {
            let jobs = Arc::clone(&jobs);
            match executor.spawn_worker(format!("sign-{number}"), move || jobs.serve()) {
                Ok(has_thread) => has_threads = has_thread,
                Err(error) => {
                    tracing::error!(%error, "could not start a signing thread; fewer messages are signed at once")
                }
            }
        }
        let jobs = (has_threads == HasThread::Yes).then_some(jobs);
        Self { jobs, keys: Arc::default(), meters }
    }

    /// Runs `work` of an account on one of the threads. It should take some milliseconds at most
    /// ([`MESSAGES_PER_JOB`]). If it panics, its captured values are dropped.
    pub(super) fn post(&self, account: AccountId, work: impl FnOnce() + Send + 'static) {
        self.queue(account, JobPlace::Last, work);
    }

    /// Computes a value on one of the threads, and returns it. `None` if the thread panicked.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        account: AccountId,
        place: JobPlace,
        make: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let (sender, made) = oneshot::channel();
        self.queue(account, place, move || drop(sender.send(make())));
        made.await.ok()
    }

    fn queue(&self, account: AccountId, place: JobPlace, work: impl FnOnce() + Send + 'static) {
        match &self.jobs {
            Some(jobs) => jobs.push(account, place, Box::new(work)),
            None => Self::do_here(work),
        }
    }

    /// Computes a value on one of the threads, concurrently with the caller.
    pub(super) fn meanwhile<T: Send + 'static>(
        &self,
        account: AccountId,
        make: impl FnOnce() -> T + Send + 'static,
    ) -> Receiver<T> {
        let (sender, made) = sync_channel(1);
        self.post(account, move || drop(sender.send(make())));
        made
    }

    /// Runs `work` on this thread. If it panics, its captured values are dropped.
    pub(super) fn do_here(work: impl FnOnce()) {
        // A panic ends only this work. Its dropped sender notifies the submitter, and the thread continues.
        if catch_unwind(AssertUnwindSafe(work)).is_err() {
            tracing::error!("composing or signing a message panicked; the submission failed");
        }
    }

    /// Runs `make` and records its duration.
    pub(super) fn timed<T>(&self, make: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let made = make();
        self.meters.signing_duration.observe_duration(began.elapsed());
        made
    }

    /// Returns the cache of parsed keys.
    pub(super) const fn keys(&self) -> &Arc<KeyCache> {
        &self.keys
    }
}

impl Drop for SigningPool {
    fn drop(&mut self) {
        self.jobs.iter().for_each(|jobs| jobs.close());
    }
}

/// The queued jobs. Requests wait for theirs, so their number is limited by those of requests and SMTP sessions.
#[derive(Default)]
struct Jobs {
    queue: Mutex<JobQueue>,
    is_changed: Condvar,
}

#[derive(Default)]
struct JobQueue {
    jobs: FairQueue<Work>,
    is_closed: bool,
}

impl Jobs {
    fn queue(&self) -> MutexGuard<'_, JobQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, account: AccountId, place: JobPlace, work: Work) {
        let jobs = &mut self.queue().jobs;
        match place {
            JobPlace::Last => jobs.push(account, work),
            JobPlace::First => jobs.push_front(account, work),
        }
        self.is_changed.notify_one();
    }

    fn close(&self) {
        self.queue().is_closed = true;
        self.is_changed.notify_all();
    }

    /// Runs jobs until the queue is closed and empty.
    fn serve(&self) {
        loop {
            let is_idle = |queue: &mut JobQueue| queue.jobs.is_empty() && !queue.is_closed;
            let mut queue = self.is_changed.wait_while(self.queue(), is_idle).unwrap_or_else(PoisonError::into_inner);
            let Some(work) = queue.jobs.pop() else { return };
            drop(queue);
            SigningPool::do_here(work);
        }
    }
}

/// Returns the keys that sign a domain's messages now, RSA first.
pub(super) fn active(domain: &DomainRow) -> Vec<&DkimKeyRow> {
    let mut keys: Vec<_> = domain.dkim.iter().filter(|key| key.state == DkimState::Active).collect();
    keys.sort_by_key(|key| key.algorithm);
    keys
}

/// Cache of parsed DKIM keys.
#[derive(Default)]
pub(super) struct KeyCache(Mutex<HashMap<(DomainId, String), Arc<SigningKey>>>);

impl KeyCache {
    /// Returns the keys that sign the domain's messages now: the active ones, RSA first.
    ///
    /// # Errors
    /// A sentence for the log, if a key can't be decrypted or parsed.
    pub(super) fn active(
        &self,
        id: DomainId,
        domain: &DomainRow,
        master: &MasterKey,
    ) -> Result<Vec<Arc<SigningKey>>, String> {
        active(domain).into_iter().map(|key| self.parsed(id, domain, key, master)).collect()
    }

    fn parsed(
        &self,
        id: DomainId,
        domain: &DomainRow,
        key: &DkimKeyRow,
        master: &MasterKey,
    ) -> Result<Arc<SigningKey>, String> {
        let name = (id, key.selector.clone());
        if let Some(parsed) = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&name) {
            return Ok(Arc::clone(parsed));
        }
        let opened = master
            .open(&DkimKeyRow::context(id, &key.selector), &key.private_key.0)
            .map_err(|error| format!("the DKIM key {} of domain {id}: {error}", key.selector))?;
        let parsed = SigningKey::from_pkcs8(domain.name.clone(), &*key.selector, key.algorithm, opened.expose())
            .map_err(|error| format!("the DKIM key {} of domain {id}: {error}", key.selector))?;
        let parsed = Arc::new(parsed);
        let mut cache = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if cache.len() >= KEYS_MAX {
            cache.clear();
        }
        cache.insert(name, Arc::clone(&parsed));
        Ok(parsed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::Ulid;

    #[test]
    fn a_panic_ends_only_its_own_work() {
        let pool = SigningPool::new(Executor::Threads, 1, Arc::default());
        SigningPool::do_here(|| panic!("here"));
        pool.post(account(1), || panic!("on the only thread"));
        let (sender, done) = sync_channel(1);
        pool.post(account(1), move || sender.send(()).unwrap());
        assert_eq!(done.recv(), Ok(()));
    }

    #[test]
    fn accounts_take_turns_and_jobs_of_a_dropped_pool_are_still_run() {
        let pool = SigningPool::new(Executor::Threads, 1, Arc::default());
        let ((begin, begun), (sender, order)) = (sync_channel(1), sync_channel(100));
        // The only thread waits until everything is queued.
        pool.post(account(0), move || begun.recv().unwrap());
        for (number, job) in [(1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (3, 1)] {
            let sender = sender.clone();
            pool.post(account(number), move || sender.send((number, job)).unwrap());
        }
        let continued = sender.clone();
        pool.queue(account(1), JobPlace::First, move || continued.send((1, 0)).unwrap());
        drop((pool, sender));
        begin.send(()).unwrap();
        let order: Vec<_> = order.iter().collect();
        assert_eq!(order, [(1, 0), (2, 1), (3, 1), (1, 1), (2, 2), (1, 2), (1, 3)]);
    }

    fn account(number: u8) -> AccountId {
        AccountId(Ulid([number; 16]))
    }
}
