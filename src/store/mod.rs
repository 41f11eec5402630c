//! Floor 4: the store, with [`Store`] as its only entry point. Every change is an [`op::Op`], plain data with a
//! deterministic `apply`. The writer thread runs it as part of a batch. Every read uses a [`snapshot::Snapshot`]. Only
//! this floor uses redb.

pub mod account_notifier;
mod appended;
pub mod archive;
pub mod backup;
mod batcher;
mod bodies;
mod changes;
pub mod check;
mod checksum;
pub mod clock_doubts;
pub mod content;
pub mod damage;
mod disk;
pub mod error;
mod failpoint;
pub mod health;
mod inspect;
mod job;
pub mod journal;
pub mod key_changes;
pub mod limits;
pub mod master_key;
pub mod meters;
pub mod migrate;
pub mod op;
pub mod open;
mod overlay;
pub mod private_file;
pub mod queue;
pub mod read;
mod read_barrier;
pub mod replica;
mod reserve;
pub mod restore;
mod restore_hold;
pub mod row;
pub mod schema;
#[cfg(test)]
mod simulation;
#[cfg(test)]
pub(crate) mod single_threaded;
pub mod snapshot;
pub mod tables;
#[cfg(test)]
pub(crate) mod testing;
pub mod timer;
pub mod timer_cache;
pub mod timer_counts;
mod totals;
mod writer;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use redb::ReadableDatabase;

use account_notifier::AccountNotifier;
pub use appended::AppendedBodies;
use batcher::{PendingCount, PendingGuard};
use content::{Append, Appender, BodyPlacement, Content, Place, PlacedJob, SealedBody};
use damage::OpenDatabase;
use disk::Disk;
use error::{OpError, StoreError};
use health::Health;
use job::{Answer, Job, Urgency};
pub use journal::Damage;
use key_changes::KeyChanges;
use meters::StoreMeters;
use op::Op;
use read_barrier::ReadBarrier;
use replica::Outbox;
pub use restore_hold::TimersOnHold;
use snapshot::Snapshot;
use timer_cache::TimerCache;

use crate::base::entropy::{self, Entropy};
use crate::base::id::{MessageId, Ulid};
use crate::base::secret::MasterKey;
use crate::base::time::Timestamp;

/// The store of one data directory, shared by everything in the process.
pub struct Store {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    database: Arc<OpenDatabase>,
    content: Arc<Content>,
    timer_cache: Arc<TimerCache>,
    notifier: Arc<AccountNotifier>,
    read_barrier: Arc<ReadBarrier>,
    health: Arc<Health>,
    meters: Arc<StoreMeters>,
    key_changes: Arc<KeyChanges>,
    master: Arc<MasterKey>,
    entropy: Arc<dyn Entropy>,
    /// Records on their way to the bucket; `None` without replication.
    outbox: Option<Arc<Outbox>>,
    announced: PendingCount,
    appender: Arc<Appender>,
    last_message: Mutex<Ulid>,
    /// Queues of the store's threads; `None` once the store is closed.
    channels: Mutex<Option<Channels>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Ends the verification of pages.
    is_closing: Arc<AtomicBool>,
}

/// Size of a store on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SizeBytes {
    /// The database.
    pub database: u64,
    /// Message bodies and their keys.
    pub content: u64,
    /// Changes that are not in the database yet.
    pub journal: u64,
}

impl SizeBytes {
    /// Returns the sum of all parts.
    pub const fn total(&self) -> u64 {
        self.database.saturating_add(self.content).saturating_add(self.journal)
    }
}

#[derive(Clone)]
struct Channels {
    writer: SyncSender<Job>,
    appender: SyncSender<Append>,
}

impl Channels {
    /// Sends a job to the writer.
    fn hand(&self, job: Job) {
        if let Err(refused) = self.writer.send(job) {
            refused.0.release(Err(StoreError::Closed));
        }
    }
}

impl Store {
    /// Returns a snapshot of everything committed so far.
    ///
    /// # Errors
    /// Database errors.
    pub fn snapshot(&self) -> Result<Snapshot, StoreError> {
        self.read_barrier.wait().map_err(|error| self.health.fail(&error))?;
        let transaction = self.database.begin_read().map_err(|error| self.health.fail(&error.into()))?;
        Ok(Snapshot::new(transaction, Arc::clone(&self.meters.damage)).watched_by(Arc::clone(&self.health)))
    }

    /// Returns the free bytes on the device, for callers that refuse work before the device is full.
    ///
    /// # Errors
    /// File system errors.
    pub fn free_bytes(&self) -> Result<u64, StoreError> {
        self.disk
            .free_bytes(&self.directory)
            .map_err(|error| StoreError::Content(format!("could not read the free disk space: {error}")))
    }

    /// Returns the size of the store on disk. Unknown sizes count as 0.
    pub fn size_bytes(&self) -> SizeBytes {
        let entries = self.disk.list(&self.directory).unwrap_or_default();
        let of = |name: &str| {
            let found = entries.iter().find(|entry| entry.name == name);
            found.and_then(|entry| entry.length).unwrap_or(0)
        };
        let (database, journal) = (of(open::FILE), of(journal::FILE));
        SizeBytes { database, content: self.content.size_bytes(), journal }
    }

    /// Returns the data directory.
    pub fn directory(&self) -> &std::path::Path {
        &self.directory
    }

    /// Returns the message bodies.
    pub const fn content(&self) -> &Arc<Content> {
        &self.content
    }

    /// Returns the timers that are due soon.
    pub const fn timers(&self) -> &Arc<TimerCache> {
        &self.timer_cache
    }

    /// Returns the change notifier of accounts.
    pub const fn account_notifier(&self) -> &Arc<AccountNotifier> {
        &self.notifier
    }

    /// Returns the health of the store: whether it can still be trusted.
    pub const fn health(&self) -> &Arc<Health> {
        &self.health
    }

    /// Returns the metrics of the store.
    pub const fn meters(&self) -> &Arc<StoreMeters> {
        &self.meters
    }

    /// Returns the change counters of API keys.
    pub fn key_changes(&self) -> &KeyChanges {
        &self.key_changes
    }

    /// Returns the key that seals data which must be readable later.
    pub const fn master_key(&self) -> &Arc<MasterKey> {
        &self.master
    }

    /// Returns the source of randomness.
    pub const fn entropy(&self) -> &Arc<dyn Entropy> {
        &self.entropy
    }

    /// Returns the records on their way to the bucket; `None` without replication.
    pub const fn outbox(&self) -> Option<&Arc<Outbox>> {
        self.outbox.as_ref()
    }

    /// Reserves the identifier of a message that is about to be composed, greater than every earlier one. The
    /// Message-ID and the return path contain it, so it must be known before the writer sees the message.
    pub fn reserve_message_id(&self, now: Timestamp) -> MessageId {
        self.reserve_id(now)
    }

    /// Reserves the identifiers of `count` messages that are accepted together, in ascending order.
    pub fn reserve_message_ids(&self, now: Timestamp, count: usize) -> Vec<MessageId> {
        let wanted = Ulid::new(now, entropy::bytes(&*self.entropy));
        let mut last = self.last_message.lock().unwrap_or_else(PoisonError::into_inner);
        let next = |_| {
            *last = wanted.max(last.next());
            MessageId(*last)
        };
        (0..count).map(next).collect()
    }

    /// Reserves an identifier that committed data already has to contain, for example in the context of a sealed
    /// secret.
    pub fn reserve_id<T: From<Ulid>>(&self, now: Timestamp) -> T {
        let wanted = Ulid::new(now, entropy::bytes(&*self.entropy));
        let mut last = self.last_message.lock().unwrap_or_else(PoisonError::into_inner);
        *last = wanted.max(last.next());
        T::from(*last)
    }

    /// Commits `op` and answers after the sync.
    ///
    /// # Errors
    /// The operation's refusal or a store failure.
    pub async fn commit<O: Op>(&self, op: O) -> Answer<O> {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        self.enqueue(Job::new(op, Urgency::Awaited, move |answer| drop(sender.send(answer))));
        receiver.await.unwrap_or(Err(OpError::Failed(StoreError::Closed)))
    }

    /// Commits `op` within some milliseconds, for callers that do not wait. `done` is called on the writer's thread
    /// after the sync and must be quick.
    pub fn post<O: Op>(&self, op: O, done: impl FnOnce(Answer<O>) + Send + 'static) {
        self.enqueue(Job::new(op, Urgency::Patient, done));
    }

    fn enqueue(&self, job: Job) {
        match self.channels() {
            Some(channels) => channels.hand(job),
            None => job.release(Err(StoreError::Closed)),
        }
    }

    /// Announces a body, so that earlier bodies may wait for it and share a sync.
    pub fn announce(&self) -> PendingGuard {
        self.announced.announce()
    }

    /// Appends `body`, and commits the operation that names its place after the body is durable or together with it.
    /// Answers after the commit's sync.
    ///
    /// # Errors
    /// The operation's refusal or a store failure; [`StoreError::Full`] if the body does not fit on the device.
    pub async fn commit_with_body<O: Op>(
        &self,
        announcement: PendingGuard,
        body: SealedBody,
        op: impl FnOnce(Place) -> O + Send + 'static,
    ) -> Answer<O> {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        self.post_with_body(announcement, body, op, move |answer| drop(sender.send(answer)));
        receiver.await.unwrap_or(Err(OpError::Failed(StoreError::Closed)))
    }

    /// Like [`Store::commit_with_body`], for callers that can't wait. `done` is called on a thread of the store, or
    /// immediately. It must be quick and must not take a snapshot, which would wait for its caller.
    pub fn post_with_body<O: Op>(
        &self,
        announcement: PendingGuard,
        body: SealedBody,
        op: impl FnOnce(Place) -> O + Send + 'static,
        done: impl FnOnce(Answer<O>) + Send + 'static,
    ) {
        let Some(channels) = self.channels() else { return done(Err(OpError::Failed(StoreError::Closed))) };
        let job: PlacedJob = Box::new(move |place| match place {
            Ok(BodyPlacement { place, carried }) => Some(Job::new(op(place), Urgency::Awaited, done).carrying(carried)),
            Err(error) => {
                done(Err(OpError::Failed(error)));
                None
            }
        });
        self.append(&channels, Append { announcement, body, job });
    }

    /// Writes a single body on this thread, and sends any other to the appender.
    fn append(&self, channels: &Channels, append: Append) {
        match self.appender.append_alone(append) {
            Ok(placed) => placed.into_iter().for_each(|job| channels.hand(job)),
            Err(append) => {
                if let Err(closed) = channels.appender.send(append) {
                    drop((closed.0.job)(Err(StoreError::Closed)));
                }
            }
        }
    }

    fn channels(&self) -> Option<Channels> {
        self.channels.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Commits the queued operations, then closes: later operations are refused. Blocks until the threads have ended.
    pub fn close(&self) {
        self.is_closing.store(true, Ordering::Release);
        drop(self.channels.lock().unwrap_or_else(PoisonError::into_inner).take());
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!("store thread panicked; the next start repairs the store");
            }
        }
    }
}
