//! The shipper: sends committed batches to the bucket, slot by slot.
//!
//! Only one slot is in flight. Its bytes are fixed at the first try, so a retry can only repeat the previous try. If
//! another machine's object is in the next slot, this machine is deposed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::backoff::Backoff;
use super::error::ReplicaError;
use super::keys;
use super::objects::{CreateResult, ReplicaObjects};
use super::shared::Shared;
use crate::base::time::Timestamp;
use crate::engine::ports::BucketResult;
use crate::store::Store;
use crate::store::replica::name::ObjectName;
use crate::store::replica::payload::{PAYLOAD_BYTES_MAX, Packer};
use crate::store::replica::record;
use crate::store::replica::slot::{self, Link, SlotBody};
use crate::store::replica::{BatchRecord, Position};
use crate::store::schema::FORMAT;

/// Reason why the shipper ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ShipperEnd {
    /// The shipper was asked to end, and has released the log.
    Released,
    /// Another machine claimed the log.
    Deposed,
    /// A record can't be read.
    Failed,
    /// The shipper was asked to end while it waited for the previous holder's lease. A release would end that wait.
    Waiting,
}

/// Number of records of the first waiting batch that are in earlier slots.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Progress {
    sequence: u64,
    bodies: usize,
    bytes: usize,
}

/// A slot to send.
struct NextSlot {
    body: SlotBody,
    /// Segments that contain its bodies.
    segments: BTreeSet<(Timestamp, u32)>,
    /// Sequence of the last batch in the log, including this slot.
    sequence: u64,
    progress: Progress,
    /// Whether the log with this slot has every batch that was committed when the slot was built.
    is_complete: bool,
}

/// The shipper of one active machine.
pub(super) struct Shipper {
    objects: ReplicaObjects,
    store: Arc<Store>,
    shared: Arc<Shared>,
    interval: Duration,
    progress: Progress,
}

impl Shipper {
    /// Creates a shipper that writes a slot at most every `interval`.
    pub(super) fn new(objects: ReplicaObjects, store: Arc<Store>, shared: Arc<Shared>, interval: Duration) -> Self {
        Self { objects, store, shared, interval, progress: Progress::default() }
    }

    /// Sends committed batches until `drain` is set. Then sends the rest and a release.
    pub(super) async fn run(mut self, mut drain: watch::Receiver<bool>) -> ShipperEnd {
        let mut earliest = Instant::now();
        loop {
            let is_draining = *drain.borrow_and_update();
            if !is_draining && Instant::now() < earliest {
                tokio::select! {
                    biased;
                    () = sleep_until(earliest) => {}
                    // A standby that may claim the log must see it grow, however long the interval is.
                    () = self.shared.lease.confirmation_due(), if self.shared.lease.rules.is_automatic => {}
                    () = self.shared.lease.confirmation_due() => match self.look().await {
                        CreateResult::Own => continue,
                        CreateResult::Other => return self.deposed().await,
                    },
                    changed = drain.changed() => if changed.is_err() { return ShipperEnd::Failed } else { continue },
                }
            }
            let begun = Instant::now();
            let next = match self.next_slot(is_draining).await {
                Ok(next) => next,
                Err(error) => {
                    tracing::error!(%error, "could not read the records for the bucket; a new base replaces them");
                    self.shared.outbox.begin_gap();
                    continue;
                }
            };
            let Some(next) = next else {
                if self.shared.outbox.has_gap() {
                    // The writer drops records too, for example if the disk refuses them.
                    self.shared.base_requests.gap_begun.notify_one();
                }
                if is_draining && self.shared.lease.is_waiting() && !self.shared.outbox.has_unconfirmed() {
                    return ShipperEnd::Waiting;
                }
                tokio::select! {
                    biased;
                    () = self.shared.outbox.added() => {}
                    () = self.shared.beat.notified() => {}
                    () = self.shared.lease.confirmation_due() => if self.confirm_idle().await == CreateResult::Other {
                        return self.deposed().await;
                    },
                    changed = drain.changed() => if changed.is_err() { return ShipperEnd::Failed },
                }
                continue;
            };
            earliest = Instant::now() + self.interval;
            let (is_release, is_complete) = (matches!(next.body, SlotBody::Release), next.is_complete);
            if self.send(next).await == CreateResult::Other {
                return self.deposed().await;
            }
            let outbox = &self.shared.outbox;
            if is_complete && outbox.sync().is_some_and(|rule| begun.elapsed() <= rule.timeout) {
                outbox.has_caught_up();
            }
            if is_release {
                return ShipperEnd::Released;
            }
        }
    }

    /// Confirms the lease while there are no batches to send. A standby that may claim the log sees the log grow.
    async fn confirm_idle(&self) -> CreateResult {
        if self.shared.lease.rules.is_automatic {
            self.shared.ask_for_beat();
            return CreateResult::Own;
        }
        self.look().await
    }

    /// Checks that the log ends with the last slot of this process, which confirms the lease.
    async fn look(&self) -> CreateResult {
        let last = self.shared.position().slot;
        let asked_at = self.shared.lease.ask();
        let look = async {
            let has_next = self.objects.has(&ObjectName::Slot(last + 1)).await?;
            let has_last = has_next || self.objects.has(&ObjectName::Slot(last)).await?;
            BucketResult::Ok((has_next, has_last))
        };
        match timeout(self.shared.lease.rules.lease, look).await {
            Ok(Ok((true, _))) => return CreateResult::Other,
            Ok(Ok((false, true))) => {
                self.shared.reached(self.objects.clock.now());
                self.shared.lease.confirmed(asked_at);
            }
            // The bucket lost the slot, or a proxy answers 404 in its place. Only the bucket creates another slot.
            Ok(Ok((false, false))) => self.shared.ask_for_beat(),
            Ok(Err(error)) => self.shared.failed(&error),
            // An answer that takes longer than a lease confirms nothing.
            Err(_) => {}
        }
        CreateResult::Own
    }

    /// Returns the next slot, if there are batches to send.
    async fn next_slot(&self, is_draining: bool) -> Result<Option<NextSlot>, ReplicaError> {
        let sequence = self.shared.position().sequence;
        let (store, shared, progress) = (Arc::clone(&self.store), Arc::clone(&self.shared), self.progress);
        let work = move || build(&store, &shared, progress, sequence);
        let built = self.objects.executor.run(work).await.map_err(|error| ReplicaError::Io {
            what: "building a slot".to_owned(),
            error: std::io::Error::other(error),
        })??;
        if built.is_some() {
            return Ok(built);
        }
        let (progress, is_complete) = (self.progress, false);
        let empty = |body| Some(NextSlot { body, segments: BTreeSet::new(), sequence, progress, is_complete });
        Ok(match self.shared.take_beat() {
            true => empty(SlotBody::Beat),
            false if is_draining && self.may_release() => empty(SlotBody::Release),
            false => None,
        })
    }

    /// Returns whether the next machine may send mail at once: the log has no gap, and no earlier lease may still be
    /// valid.
    fn may_release(&self) -> bool {
        !self.shared.outbox.has_gap() && !self.shared.lease.is_waiting()
    }

    /// Creates a slot and confirms it. Retries until the slot exists.
    async fn send(&mut self, next: NextSlot) -> CreateResult {
        let before = self.shared.position();
        let number = before.slot + 1;
        self.send_keys(&next).await;
        let NextSlot { body, sequence, progress, .. } = next;
        let head = self.objects.head(body.kind(), number, before.epoch);
        let link = Link { head, row_format: FORMAT, previous: before.hash };
        let (sealer, entropy) = (self.objects.sealer.clone(), Arc::clone(&self.objects.entropy));
        let sealed = self.objects.executor.run(move || {
            let bytes = Bytes::from(link.seal(&body, &sealer, &*entropy));
            let hash = slot::digest(&bytes);
            (bytes, hash)
        });
        // Sealing can't fail. The result is missing only if the runtime, and with it the process, ends.
        let Ok((bytes, hash)) = sealed.await else { return std::future::pending().await };
        let lease = &self.shared.lease;
        let longest = if lease.rules.stops { lease.rules.lease / 2 } else { Duration::MAX };
        // An existing slot may come from the first try, so the confirmation counts from the time before that try.
        let asked_at = lease.ask();
        let mut backoff = Backoff::default();
        loop {
            match self.objects.create_fixed(&ObjectName::Slot(number), &bytes).await {
                Ok(CreateResult::Own) => break,
                Ok(CreateResult::Other) => return CreateResult::Other,
                Err(error) => self.shared.failed(&error),
            }
            sleep(backoff.next_within(longest, &*self.objects.entropy)).await;
        }
        lease.confirmed(asked_at);
        self.progress = progress;
        let position = Position { slot: number, hash, sequence, ..before };
        self.shared.confirm(position, bytes.len() as u64, self.objects.clock.now());
        CreateResult::Own
    }

    /// Writes the keys of all segments to the bucket before the slot with their bodies.
    async fn send_keys(&self, next: &NextSlot) {
        let mut backoff = Backoff::default();
        while let Err(error) = keys::send(&self.objects, &self.store, &self.shared, &next.segments).await {
            self.shared.failed(&error);
            sleep(backoff.next(&*self.objects.entropy)).await;
        }
    }

    /// Reads which machine claimed the log.
    async fn deposed(&self) -> ShipperEnd {
        let number = self.shared.position().slot + 1;
        let holder = match self.objects.slot(number).await {
            Ok(Some(slot)) => slot.link.head.holder.to_string(),
            Ok(None) | Err(_) => "another machine".to_owned(),
        };
        tracing::error!(slot = number, holder, "another machine claimed the log; this one stops");
        self.shared.depose(holder);
        ShipperEnd::Deposed
    }
}

/// Builds the next slot from batches.
fn build(store: &Store, shared: &Shared, progress: Progress, confirmed: u64) -> Result<Option<NextSlot>, ReplicaError> {
    let outbox = &shared.outbox;
    let mut packer = Packer::default();
    if let Some(after) = outbox.resumed() {
        packer.batch(0, Timestamp::ZERO, &record::resumed(after), 0);
        let (body, segments) = (SlotBody::Batches(packer.finish()), BTreeSet::new());
        let progress = Progress::default();
        return Ok(Some(NextSlot { body, segments, sequence: after, progress, is_complete: false }));
    }
    let committed = outbox.last();
    let records = outbox
        .front(PAYLOAD_BYTES_MAX)
        .map_err(|error| ReplicaError::Io { what: "reading the replication backlog".to_owned(), error })?;
    let (mut sequence, mut next) = (confirmed, Progress::default());
    let mut segments = BTreeSet::new();
    for record in &records {
        let number = record.sequence.number;
        let from = if progress.sequence == number { progress } else { Progress::default() };
        segments.append(&mut record::segments(&record.payload)?);
        next = pack(store, &mut packer, record, from)?;
        if next != Progress::default() {
            break;
        }
        sequence = number;
    }
    if packer.is_empty() {
        return Ok(None);
    }
    let is_complete = sequence >= committed;
    Ok(Some(NextSlot { body: SlotBody::Batches(packer.finish()), segments, sequence, progress: next, is_complete }))
}

/// Packs as much of a batch as fits, preceded by its bodies. Returns the position where it stopped, or the default if
/// everything is packed.
fn pack(store: &Store, packer: &mut Packer, batch: &BatchRecord, from: Progress) -> Result<Progress, ReplicaError> {
    let BatchRecord { sequence, payload } = batch;
    let bodies = record::missing_bodies(payload)?;
    for (index, place) in bodies.iter().enumerate().skip(from.bodies) {
        // An expired body is not sent any more.
        let Some(sealed) = store.sealed_body(place)? else { continue };
        let ahead = record::body_ahead(place, &sealed);
        if !packer.fits(ahead.len()) && !packer.is_empty() {
            return Ok(Progress { sequence: sequence.number, bodies: index, bytes: 0 });
        }
        packer.batch(0, sequence.committed_at, &ahead, 0);
    }
    let taken = packer.batch(sequence.number, sequence.committed_at, payload, from.bytes);
    let bytes = from.bytes + taken;
    match bytes == payload.len() {
        true => Ok(Progress::default()),
        false => Ok(Progress { sequence: sequence.number, bodies: bodies.len(), bytes }),
    }
}
