//! Bases: all rows at one slot with their content, so that a standby or a restore needs only the log after the base.
//! The manifest is written last, once the log contains everything in the base.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::backoff::Backoff;
use super::base_requests::Wake;
use super::chunks::{self, Chunks};
use super::collection::Collector;
use super::error::{ReplicaError, panicked};
use super::keys;
use super::loss::LossCheck;
use super::objects::{CreateResult, ReplicaObjects};
use super::shared::{ConfirmedSlot, Shared};
use super::status::BaseStatus;
use crate::base::digest::sha256;
use crate::base::entropy::Entropy;
use crate::base::time::Timestamp;
use crate::store::Store;
use crate::store::backup::NamedSegments;
use crate::store::error::OpError;
use crate::store::op::replica_position::RecordReplicaPosition;
use crate::store::replica::content::{self, PIECE_BYTES_MAX};
use crate::store::replica::manifest::{ContentRange, Manifest, PartInfo};
use crate::store::replica::name::ObjectName;
use crate::store::replica::{BaseSnapshot, Head, Kind, Sealer};
use crate::store::schema::FORMAT;

/// Interval of the check whether a base is due.
const TICK: Duration = Duration::from_secs(60);
/// Maximum number of slots before a new base.
const SLOTS_MAX: u64 = 20_000;
/// Maximum wait until the log contains all of a snapshot. A longer wait would keep the database from reusing pages.
const SNAPSHOT_WAIT: Duration = Duration::from_secs(60);
/// Maximum number of tries of one object before the base is given up.
const TRIES: u32 = 12;

/// The function that seals an object's bytes, by its kind ([`content`]).
type SealObject = fn(&ObjectName, Head, &[u8], &Sealer, &dyn Entropy) -> Vec<u8>;

/// Schedule of bases, and their retention.
#[derive(Debug, Clone, Copy)]
pub struct BasePolicy {
    /// Age of a base at which the next one is made.
    pub age: Duration,
    /// Size of the log, in bytes, at which the next one is made.
    pub log_bytes: u64,
    /// Period that a restore can reach into the past.
    pub retention: Duration,
    /// Further files of the data directory to include.
    pub beside: &'static [&'static str],
}

/// Creates the bases of an active machine.
pub(super) struct BaseMaker {
    objects: ReplicaObjects,
    store: Arc<Store>,
    shared: Arc<Shared>,
    policy: BasePolicy,
    collector: Collector,
    /// The newest manifest.
    newest: Option<Manifest>,
    /// Sequence of a batch after the newest base that only records a position, and needs no base.
    unneeded: u64,
    loss: LossCheck,
}

impl BaseMaker {
    /// Creates a maker that follows `policy`.
    pub(super) fn new(objects: ReplicaObjects, store: Arc<Store>, shared: Arc<Shared>, policy: BasePolicy) -> Self {
        let collector = Collector::new(objects.clone(), Arc::clone(&store), Arc::clone(&shared), policy.retention);
        let loss = LossCheck::new(objects.clone(), Arc::clone(&store), Arc::clone(&shared));
        Self { objects, store, shared, policy, collector, newest: None, unneeded: 0, loss }
    }

    /// Makes bases as long as the future is polled.
    pub(super) async fn run(mut self) {
        let mut backoff = Backoff::default();
        while let Err(error) = self.learn().await {
            self.report(&error);
            sleep(backoff.next(&*self.objects.entropy)).await;
        }
        let (mut backoff, mut is_asked) = (Backoff::default(), false);
        loop {
            if is_asked || self.is_due() {
                if let Err(error) = self.make().await {
                    self.report(&error);
                    is_asked = true;
                    sleep(backoff.next(&*self.objects.entropy)).await;
                    continue;
                }
                (backoff, is_asked) = (Backoff::default(), false);
            }
            self.collector.collect_again().await;
            match self.shared.base_requests.wake(TICK).await {
                Wake::Request => is_asked = true,
                Wake::Check => self.look_for_loss().await.unwrap_or_else(|error| self.report(&error)),
                Wake::Recovery => {}
            }
        }
    }

    fn report(&self, error: &ReplicaError) {
        match error {
            ReplicaError::Bucket(error) => self.shared.failed(error),
            error => tracing::warn!(%error, "could not finish a base; trying again"),
        }
    }

    /// Reads the existing bases.
    async fn learn(&mut self) -> Result<(), ReplicaError> {
        let bases = self.objects.bases().await?;
        if let Some(slot) = bases.last()
            // A base that was being made while the bucket was emptied lacks its slot, and can't be restored.
            && self.objects.has(&ObjectName::Slot(*slot)).await?
        {
            self.newest = self.objects.manifest(*slot).await?;
        }
        if let Some(manifest) = &self.newest {
            let first = self.collector.oldest(&bases).await?;
            self.shared.set_base(BaseStatus::of(manifest));
            first.into_iter().for_each(|first| self.shared.set_restorable_from(first));
        }
        Ok(())
    }

    fn is_due(&self) -> bool {
        let Some(newest) = self.newest.as_ref().filter(|_| !self.shared.outbox.owes_base()) else { return true };
        let (_, bytes, slots) = self.shared.log_since_base();
        let is_old = self.objects.clock.now().since(newest.taken_at) >= self.policy.age;
        self.shared.position().sequence > newest.sequence.max(self.unneeded)
            && (is_old || bytes >= self.policy.log_bytes || slots >= SLOTS_MAX)
    }

    /// Makes a base now, and collects the objects that it replaces. A failed collection does not fail the base.
    ///
    /// # Errors
    /// Errors of the bucket or the store. No base is made then.
    pub(super) async fn make(&mut self) -> Result<(), ReplicaError> {
        if self.shared.outbox.has_gap() {
            let what = "marking that the replica needs a new base".to_owned();
            self.shared.outbox.resume().map_err(|error| ReplicaError::Io { what, error })?;
            self.shared.count_resync();
        }
        self.shared.base_requests.begin();
        self.shared.watch_slots();
        // A base that failed before must still be made.
        let made = self.make_watched(self.shared.outbox.base_floor()).await;
        self.shared.stop_watching();
        let manifest = made?;
        let status = BaseStatus::of(&manifest);
        tracing::info!(slot = manifest.slot, rows = manifest.rows, bytes = status.bytes, "base finished");
        self.newest = Some(manifest);
        if let Err(error) = self.shared.outbox.base_made() {
            tracing::warn!(%error, "could not record that a base was made; the next start makes another");
        }
        self.shared.restart_log_count();
        self.record_position(status.slot).await?;
        self.shared.set_base(status);
        self.collector.collect().await;
        self.shared.base_finished();
        Ok(())
    }

    /// Records in the store that the log is confirmed up to the base at `slot`. A start continues from the recorded
    /// position, so collection must not remove slots after it.
    async fn record_position(&mut self, slot: u64) -> Result<(), ReplicaError> {
        if self.shared.outbox.recorded_slot() + 1 >= slot {
            return Ok(());
        }
        let before = self.shared.outbox.last();
        match self.store.commit(RecordReplicaPosition::new(&self.shared.position())).await {
            Ok(()) => {}
            Err(OpError::Failed(error)) => return Err(error.into()),
            Err(OpError::Refused(never)) => match never {},
        }
        let is_alone = self.newest.as_ref().is_some_and(|newest| newest.sequence == before);
        self.unneeded = if is_alone { before + 1 } else { 0 };
        Ok(())
    }

    async fn make_watched(&self, at_least: u64) -> Result<Manifest, ReplicaError> {
        let snapshot = self.snapshot(at_least).await?;
        let sequence = snapshot.sequence();
        let slot = self.slot_with(sequence.number).await?;
        if let Some(made) = self.base_at(slot.slot).await? {
            return Ok(made);
        }
        let (parts, rows, named) = self.send_rows(snapshot, slot.slot).await?;
        keys::send(&self.objects, &self.store, &self.shared, &named.keys().copied().collect()).await?;
        let content = self.send_content(&named).await?;
        // A store without numbered batches has only the current state, and no state of earlier times.
        let has_batches = sequence.committed_at > Timestamp::ZERO;
        let taken_at = if has_batches { sequence.committed_at } else { self.objects.clock.now() };
        let manifest = Manifest {
            slot: slot.slot,
            slot_sha256: slot.digest,
            sequence: sequence.number,
            taken_at,
            row_format: FORMAT,
            rows,
            parts,
            content,
        };
        let head = self.objects.head(Kind::Manifest, slot.slot, self.shared.claim.epoch);
        let bytes = Bytes::from(manifest.seal(head, &self.objects.sealer, &*self.objects.entropy));
        let name = ObjectName::Manifest(slot.slot);
        self.create(&name, &bytes).await?;
        let read = self.objects.read_existing(&name).await?;
        if read != bytes {
            return Err(ReplicaError::Missing { name: name.to_string() });
        }
        Ok(manifest)
    }

    /// Returns the base at a slot, if it is complete. Parts without a manifest belong to an interrupted base. Their
    /// names can't be used again, so the next slot gets the base.
    async fn base_at(&self, slot: u64) -> Result<Option<Manifest>, ReplicaError> {
        let prefix = ObjectName::base_prefix(slot);
        if self.objects.list(&prefix, &prefix).await?.is_empty() {
            return Ok(None);
        }
        if let Some(manifest) = self.objects.manifest(slot).await? {
            return Ok(Some(manifest));
        }
        let mut slots = self.shared.slots();
        slots.mark_unchanged();
        self.shared.ask_for_beat();
        drop(timeout(SNAPSHOT_WAIT, slots.changed()).await);
        Err(ReplicaError::Missing { name: ObjectName::Manifest(slot).to_string() })
    }

    /// Returns a snapshot that contains the batch `at_least`.
    async fn snapshot(&self, at_least: u64) -> Result<BaseSnapshot, ReplicaError> {
        loop {
            let store = Arc::clone(&self.store);
            let taken = self.objects.executor.run(move || store.base_snapshot()).await.map_err(panicked)??;
            if taken.sequence().number >= at_least {
                return Ok(taken);
            }
            drop(taken);
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// Returns the first slot that confirms `sequence`.
    async fn slot_with(&self, sequence: u64) -> Result<ConfirmedSlot, ReplicaError> {
        let mut slots = self.shared.slots();
        let found = async {
            loop {
                slots.mark_unchanged();
                if let Some(slot) = self.shared.slot_of(sequence) {
                    return slot;
                }
                drop(slots.changed().await);
            }
        };
        let late = || ReplicaError::Broken { slot: 0, why: "the log did not reach the base in time".to_owned() };
        timeout(SNAPSHOT_WAIT, found).await.map_err(|_| late())
    }

    async fn send_rows(
        &self,
        snapshot: BaseSnapshot,
        slot: u64,
    ) -> Result<(Vec<PartInfo>, u64, NamedSegments), ReplicaError> {
        let (sender, chunks) = chunks::channel(self.objects.executor);
        let (store, beside) = (Arc::clone(&self.store), self.policy.beside);
        let writing = self.objects.executor.run(move || {
            let mut out = Chunks::new(sender);
            let written = store.write_base(snapshot, beside, &mut out)?;
            out.send()?;
            Ok::<_, crate::store::backup::BackupError>(written)
        });
        let (written, parts) = tokio::join!(writing, self.send_parts(chunks, slot));
        let parts = parts?;
        let (totals, named) = written.map_err(panicked)?.map_err(|error| ReplicaError::Io {
            what: "reading the rows of a base".to_owned(),
            error: std::io::Error::other(error),
        })?;
        Ok((parts, totals.rows, named))
    }

    async fn send_parts(&self, mut chunks: mpsc::Receiver<Vec<u8>>, slot: u64) -> Result<Vec<PartInfo>, ReplicaError> {
        let mut parts = Vec::new();
        while let Some(chunk) = chunks.recv().await {
            let name = ObjectName::Part { slot, part: u32::try_from(parts.len() + 1).unwrap_or(u32::MAX) };
            let head = self.objects.head(Kind::Part, slot, self.shared.claim.epoch);
            let bytes = self.sealed(name.clone(), head, chunk, content::seal_part).await?;
            self.create(&name, &bytes).await?;
            parts.push(PartInfo { bytes: bytes.len() as u64, sha256: sha256(&bytes) });
        }
        Ok(parts)
    }

    /// Uploads the content of the rows that the bucket lacks.
    async fn send_content(&self, named: &NamedSegments) -> Result<Vec<ContentRange>, ReplicaError> {
        let mut content = Vec::new();
        for (&(bucket, segment), &end) in named {
            let mut ranges = self.known(bucket, segment).await?;
            let mut offset = ranges.last().map_or(0, |last| last.offset + last.length);
            let mut is_gone = false;
            while offset < end && !is_gone {
                let length = u32::try_from((end - offset).min(PIECE_BYTES_MAX as u64)).unwrap_or(u32::MAX);
                match self.store.sealed_bytes((bucket, segment), offset, length)? {
                    Some(piece) => {
                        let name = ObjectName::Content { bucket, segment, offset };
                        let head = self.objects.head(Kind::Content, segment.into(), self.shared.claim.epoch);
                        let bytes = self.sealed(name.clone(), head, piece, content::seal_piece).await?;
                        self.create(&name, &bytes).await?;
                        ranges.push(ContentRange { bucket, segment, offset, length: length.into() });
                        offset += u64::from(length);
                    }
                    // Expired content is not needed.
                    None => is_gone = true,
                }
            }
            if !is_gone {
                content.append(&mut ranges);
            }
        }
        Ok(content)
    }

    /// Returns the parts of a segment in the bucket, up to the first gap.
    async fn known(&self, bucket: Timestamp, segment: u32) -> Result<Vec<ContentRange>, ReplicaError> {
        let of_newest = self.newest.iter().flat_map(|newest| &newest.content);
        let listed: Vec<_> =
            of_newest.filter(|range| (range.bucket, range.segment) == (bucket, segment)).copied().collect();
        let prefix = ObjectName::content_prefix(bucket, segment);
        let mut known: Vec<ContentRange> = Vec::new();
        for object in self.objects.list(&prefix, &prefix).await? {
            let Ok(found @ ObjectName::Content { offset, .. }) = object.name.parse() else { continue };
            let end = known.last().map_or(0, |last| last.offset + last.length);
            if offset != end {
                break;
            }
            let length = match listed.iter().find(|range| range.offset == offset) {
                Some(range) => range.length,
                // An interrupted base left this piece.
                None => {
                    let bytes = self.objects.read_existing(&found).await?;
                    let piece = content::open_piece(&found, &bytes, &self.objects.sealer);
                    piece.map_err(|fault| super::objects::unreadable(&found, fault))?.expose().len() as u64
                }
            };
            known.push(ContentRange { bucket, segment, offset, length });
        }
        Ok(known)
    }

    async fn sealed(
        &self,
        name: ObjectName,
        head: Head,
        clear: Vec<u8>,
        seal: SealObject,
    ) -> Result<Bytes, ReplicaError> {
        let (sealer, entropy) = (self.objects.sealer.clone(), Arc::clone(&self.objects.entropy));
        let sealed = self.objects.executor.run(move || seal(&name, head, &clear, &sealer, &*entropy));
        sealed.await.map(Bytes::from).map_err(panicked)
    }

    /// Creates an object with fixed bytes, with some retries.
    async fn create(&self, name: &ObjectName, bytes: &Bytes) -> Result<(), ReplicaError> {
        let mut backoff = Backoff::default();
        for _ in 0..TRIES {
            match self.objects.create_fixed(name, bytes).await {
                Ok(CreateResult::Own) => return Ok(()),
                Ok(CreateResult::Other) => {
                    let fault = crate::store::replica::ObjectFault::Misplaced;
                    return Err(super::objects::unreadable(name, fault));
                }
                Err(error) => self.shared.failed(&error),
            }
            sleep(backoff.next(&*self.objects.entropy)).await;
        }
        Err(ReplicaError::Missing { name: name.to_string() })
    }

    /// Checks once a minute, while the log grows, for lost objects that replication needs.
    async fn look_for_loss(&mut self) -> Result<(), ReplicaError> {
        let lost = self.loss.look(self.newest.as_ref()).await?;
        if lost.is_empty() {
            return Ok(());
        }
        tracing::error!(?lost, "objects of the replica are missing from the bucket; making a new base");
        self.shared.count_resync();
        self.shared.lose_keys();
        self.objects.write_identity(&self.shared.claim).await?;
        self.newest = None;
        self.shared.base_requests.want();
        Ok(())
    }
}
