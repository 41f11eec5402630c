//! The threads that compose and sign, so that an RSA signature of a fifth of a millisecond never holds up an async
//! worker, and the parsed DKIM keys that they share.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use tokio::sync::oneshot;

use super::crash::Crashed;
use super::meters::EngineMeters;
use crate::base::id::DomainId;
use crate::base::secret::MasterKey;
use crate::domain::sending_domain::DkimState;
use crate::mail::dkim::SigningKey;
use crate::store::row::domain::{DkimKeyRow, DomainRow};

/// Jobs that wait at most; beyond, submitters wait before they queue.
const QUEUE: usize = 1024;
/// Parsed keys kept: parsing one costs half a signature.
const KEYS_MAX: usize = 4096;

type Work = Box<dyn FnOnce() + Send>;

/// A fixed number of threads for work that burns the processor.
pub(super) struct SigningPool {
    work: SyncSender<Work>,
    keys: Arc<KeyCache>,
    meters: Arc<EngineMeters>,
}

impl SigningPool {
    /// Starts the threads. They end when the pool is dropped.
    pub(super) fn new(threads: usize, meters: Arc<EngineMeters>) -> Self {
        let (work, inbox) = sync_channel::<Work>(QUEUE);
        let inbox = Arc::new(Mutex::new(inbox));
        for number in 0..threads.max(1) {
            let inbox = Arc::clone(&inbox);
            let spawned = thread::Builder::new().name(format!("sign-{number}")).spawn(move || serve(&inbox));
            if let Err(error) = spawned {
                tracing::error!(%error, "a signing thread could not be started");
            }
        }
        Self { work, keys: Arc::default(), meters }
    }

    /// Runs `job` on one of the threads.
    ///
    /// # Errors
    /// [`Crashed`] where it panicked.
    pub(super) async fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> Result<T, Crashed> {
        let (sender, receiver) = oneshot::channel();
        // A send blocks only while a thousand jobs wait: then the whole process has more than it can do, and waiting is
        // right.
        let meters = Arc::clone(&self.meters);
        let queued = self.work.send(Box::new(move || {
            let began = Instant::now();
            let done = job();
            meters.signing_duration.observe_duration(began.elapsed());
            drop(sender.send(done));
        }));
        if queued.is_err() {
            return Err(Crashed);
        }
        receiver.await.map_err(|_| Crashed)
    }

    /// The parsed keys.
    pub(super) const fn keys(&self) -> &Arc<KeyCache> {
        &self.keys
    }
}

fn serve(inbox: &Mutex<Receiver<Work>>) {
    loop {
        let next = inbox.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(work) = next else { return };
        // A panic is that job's alone: its submitter is told by the dropped sender, and the thread lives on.
        if std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).is_err() {
            tracing::error!("composing or signing a message panicked");
        }
    }
}

/// The keys that sign a domain's messages now, RSA first.
pub(super) fn active(domain: &DomainRow) -> Vec<&DkimKeyRow> {
    let mut keys: Vec<_> = domain.dkim.iter().filter(|key| key.state == DkimState::Active).collect();
    keys.sort_by_key(|key| key.algorithm);
    keys
}

/// DKIM keys, parsed once.
#[derive(Default)]
pub(super) struct KeyCache(Mutex<HashMap<(DomainId, String), Arc<SigningKey>>>);

impl KeyCache {
    /// The keys that messages of the domain are signed with now: the active ones, RSA first.
    ///
    /// # Errors
    /// A sentence for the log, where a key does not open or parse.
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
