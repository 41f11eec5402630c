//! The last part of opening a store: it creates the store with its writer and its appender, around their shared state.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::pinned_pages::PinnedPages;
use super::preparing::OpeningFacts;
use super::{QUEUE, StoreEnvironment, Workers};
use crate::store::account_notifier::AccountNotifier;
use crate::store::batcher::PendingCount;
use crate::store::content::{Appender, Content};
use crate::store::damage::OpenDatabase;
use crate::store::disk::Disk;
use crate::store::health::Health;
use crate::store::journal::Journal;
use crate::store::key_changes::KeyChanges;
use crate::store::limits::Limits;
use crate::store::meters::StoreMeters;
use crate::store::replica::Outbox;
use crate::store::reserve::Reserve;
use crate::store::timer_cache::TimerCache;
use crate::store::writer::Writer;
use crate::store::{Channels, Store};

/// The opened files of a store, and the state read from them.
pub(super) struct StoreParts<'a> {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) directory: &'a Path,
    pub(super) surroundings: StoreEnvironment,
    pub(super) monotonic: Arc<dyn Fn() -> Duration + Send + Sync>,
    pub(super) limits: Limits,
    pub(super) database: Arc<OpenDatabase>,
    pub(super) reserve: Reserve,
    pub(super) prepared: OpeningFacts,
    pub(super) health: Arc<Health>,
    pub(super) content: Arc<Content>,
    pub(super) journal: Journal,
    pub(super) outbox: Option<Arc<Outbox>>,
    pub(super) is_closing: Arc<AtomicBool>,
    pub(super) pinned_pages: Option<PinnedPages>,
}

/// Creates the store and its workers, which have no threads yet.
pub(super) fn assemble(parts: StoreParts<'_>) -> (Store, Workers) {
    let StoreParts { disk, directory, limits, database, health, content, outbox, .. } = parts;
    let StoreEnvironment { now, entropy } = parts.surroundings;
    let OpeningFacts { last, keeps_time, last_message, sequence, master, restored, waiting, .. } = parts.prepared;
    let timer_cache = Arc::new(TimerCache::new(restored));
    let notifier = Arc::new(AccountNotifier::default());
    let read_barrier = Arc::default();
    let meters = Arc::new(StoreMeters::default());
    let key_changes = Arc::new(KeyChanges::default());
    let announced = PendingCount::default();
    let (to_writer, writer_inbox) = sync_channel(QUEUE);
    let (to_appender, appender_inbox) = sync_channel(QUEUE);
    let writer = Writer {
        database: Arc::clone(&database),
        timer_cache: Arc::clone(&timer_cache),
        notifier: Arc::clone(&notifier),
        read_barrier: Arc::clone(&read_barrier),
        health: Arc::clone(&health),
        meters: Arc::clone(&meters),
        key_changes: Arc::clone(&key_changes),
        time: Box::new(move || now()),
        monotonic: parts.monotonic,
        entropy: Arc::clone(&entropy),
        last_id: last,
        keeps_time,
        waiting,
        journal: parts.journal,
        reserve: parts.reserve,
        lone_rows_max: limits.lone_rows_max,
        sequence,
        outbox: outbox.clone(),
        deferred: Vec::new(),
    };
    let carried_max = limits.carried_bytes_max;
    let (bodies, failures) = (Arc::clone(&content), Arc::clone(&health));
    let appender = Arc::new(Appender::new(bodies, failures, Arc::clone(&meters), announced.clone(), carried_max));
    meters.wait(waiting);
    let store = Store {
        disk,
        directory: directory.to_owned(),
        database,
        content,
        timer_cache,
        notifier,
        read_barrier,
        health,
        meters,
        key_changes,
        master,
        entropy,
        outbox,
        announced,
        appender: Arc::clone(&appender),
        last_message: Mutex::new(last_message),
        channels: Mutex::new(Some(Channels { writer: to_writer, appender: to_appender })),
        threads: Mutex::default(),
        is_closing: parts.is_closing,
    };
    (store, Workers { writer, writer_inbox, appender, appender_inbox, pinned_pages: parts.pinned_pages })
}
