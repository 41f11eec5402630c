//! Threads for composing and signing messages, so that signatures never block the async workers, and the cache of
//! parsed DKIM keys. One small message at a time may be signed on the caller's thread.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use super::executor::{Executor, HasThread};
use super::meters::EngineMeters;
use crate::base::id::DomainId;
use crate::base::secret::MasterKey;
use crate::domain::sending_domain::DkimState;
use crate::mail::dkim::SigningKey;
use crate::store::row::domain::{DkimKeyRow, DomainRow};

/// Maximum number of queued jobs; beyond that, submitters wait.
const QUEUE: usize = 1024;
/// Maximum number of cached keys: parsing one costs half a signature.
const KEYS_MAX: usize = 4096;

type Work = Box<dyn FnOnce() + Send>;

/// A fixed number of threads for CPU-bound work.
pub(super) struct SigningPool {
    /// `None` if callers run the work themselves.
    work: Option<SyncSender<Work>>,
    keys: Arc<KeyCache>,
    meters: Arc<EngineMeters>,
}

impl SigningPool {
    /// Starts the threads, which end when the pool is dropped.
    pub(super) fn new(executor: Executor, threads: usize, meters: Arc<EngineMeters>) -> Self {
        let (work, inbox) = sync_channel::<Work>(QUEUE);
        let inbox = Arc::new(Mutex::new(inbox));
        let mut has_threads = HasThread::Yes;
        for number in 0..threads.max(1) {
            let inbox = Arc::clone(&inbox);
            match executor.spawn_worker(format!("sign-{number}"), move || serve(&inbox)) {
                Ok(has_thread) => has_threads = has_thread,
                Err(error) => {
                    tracing::error!(%error, "could not start a signing thread; fewer messages are signed at once")
                }
            }
        }
        let work = (has_threads == HasThread::Yes).then_some(work);
        Self { work, keys: Arc::default(), meters }
    }

    /// Runs `work` on one of the threads. If it panics, its captured values are dropped.
    pub(super) fn post(&self, work: impl FnOnce() + Send + 'static) {
        let Some(queue) = &self.work else { return Self::do_here(work) };
        // Blocks only while a thousand jobs are queued. The process is overloaded then, so waiting is right. The
        // threads live as long as the pool.
        drop(queue.send(Box::new(work)));
    }

    /// Computes a value on one of the threads, concurrently with the caller.
    pub(super) fn meanwhile<T: Send + 'static>(&self, make: impl FnOnce() -> T + Send + 'static) -> Receiver<T> {
        let (sender, made) = sync_channel(1);
        self.post(move || drop(sender.send(make())));
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

fn serve(inbox: &Mutex<Receiver<Work>>) {
    loop {
        let next = inbox.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(work) = next else { return };
        SigningPool::do_here(work);
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

    #[test]
    fn a_panic_ends_only_its_own_work() {
        let pool = SigningPool::new(Executor::Threads, 1, Arc::default());
        SigningPool::do_here(|| panic!("here"));
        pool.post(|| panic!("on the only thread"));
        let (sender, done) = std::sync::mpsc::channel();
        pool.post(move || sender.send(()).unwrap());
        assert_eq!(done.recv(), Ok(()));
    }
}
