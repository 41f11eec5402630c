//! The appender writes bodies. Its thread syncs a batch and then sends the operations to the writer, so that a body is
//! durable strictly before the commit that names it. While that commit syncs, the next bodies are written. A small
//! batch is not worth its own sync: its bodies are inlined in the journal and become durable with the commit
//! ([`InlinedBody`]). A single small body is written on the caller's thread, without waking the appender.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::segment::Segment;
use super::{Content, InlinedBody, Place, SealedBody, failed, unsynced};
use crate::store::batcher::{Batcher, PendingCount, PendingGuard};
use crate::store::error::StoreError;
use crate::store::failpoint::Point;
use crate::store::health::Health;
use crate::store::job::Job;
use crate::store::meters::StoreMeters;

/// Maximum number of bodies that are synced together.
const BATCH_MAX: usize = 256;

/// Returns the time for which bodies wait for those that are being signed. The wait grows with their number: each takes
/// a fraction of a millisecond, and a batch has a fixed price. A single body does not wait.
fn batch_wait(announced: usize) -> Duration {
    let each = Duration::from_micros(250) * u32::try_from(announced).unwrap_or(u32::MAX).min(1024);
    if announced == 0 { Duration::ZERO } else { each.clamp(Duration::from_millis(2), Duration::from_millis(8)) }
}

/// A body to append, with the operation to commit when it is durable.
pub(in crate::store) struct Append {
    /// Withdrawn once the body is written.
    pub(in crate::store) announcement: PendingGuard,
    pub(in crate::store) body: SealedBody,
    pub(in crate::store) job: PlacedJob,
}

/// Place of a written body, with its content if it is not durable there yet.
pub(in crate::store) struct BodyPlacement {
    pub(in crate::store) place: Place,
    pub(in crate::store) carried: Option<InlinedBody>,
}

/// Way in which a batch of bodies becomes durable.
#[derive(Clone, Copy)]
enum BodyDurability {
    /// The batch's own sync.
    Synced,
    /// The journal record of the rows that name the bodies.
    Carried,
}

/// Creates the job that names the body, or answers its caller that the body could not be written.
pub(in crate::store) type PlacedJob = Box<dyn FnOnce(Result<BodyPlacement, StoreError>) -> Option<Job> + Send>;

/// End of each segment, where its next body goes.
type SegmentEnds = HashMap<(u64, u32), u64>;

/// State of the appender thread, also used by a caller with a single body.
pub(in crate::store) struct Appender {
    content: Arc<Content>,
    health: Arc<Health>,
    meters: Arc<StoreMeters>,
    announced: PendingCount,
    /// Maximum size of the bodies that the journal inlines for a batch.
    carried_bytes_max: usize,
    ends: Mutex<SegmentEnds>,
}

impl Appender {
    pub(in crate::store) fn new(
        content: Arc<Content>,
        health: Arc<Health>,
        meters: Arc<StoreMeters>,
        announced: PendingCount,
        carried_bytes_max: usize,
    ) -> Self {
        Self { content, health, meters, announced, carried_bytes_max, ends: Mutex::default() }
    }

    /// Runs until all senders are dropped.
    pub(in crate::store) fn run(&self, inbox: &Receiver<Append>, writer: &SyncSender<Job>) {
        while let Ok(first) = inbox.recv() {
            let left = |batch: &[Append]| batch_wait(self.announced.count().saturating_sub(batch.len()));
            let batch = Batcher::new(inbox, BATCH_MAX, left).all(first);
            let _turn = self.health.appender.begin();
            for job in self.append(batch) {
                if let Err(refused) = writer.send(job) {
                    refused.0.release(Err(StoreError::Closed));
                }
            }
        }
    }

    /// Writes a batch of bodies, syncs it unless it is inlined, and creates the jobs that name the bodies. A panic here
    /// counts as a failure of the store on any thread.
    pub(in crate::store) fn append(&self, batch: Vec<Append>) -> Vec<Job> {
        let placed = match self.health.failure() {
            Some(_) => Err(StoreError::Closed),
            None => self.health.watch("appender", || Ok(self.place(&batch))),
        };
        let placed = placed.unwrap_or_else(|error| batch.iter().map(|_| Err(error.clone())).collect());
        placed.into_iter().zip(batch).filter_map(|(placed, append)| self.pass_on(placed, append)).collect()
    }

    /// Writes the bodies of a batch. Returns the place of each, or the reason why it was not written.
    fn place(&self, batch: &[Append]) -> Vec<Result<(Place, BodyDurability), StoreError>> {
        self.health.pass(Point::Append);
        let began = Instant::now();
        let length: usize = batch.iter().map(|append| append.body.bytes.len()).sum();
        let mut ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        let written: Vec<_> = batch.iter().map(|append| self.write(&append.body, &mut ends)).collect();
        drop(ends);
        self.health.pass(Point::Appended);
        let durable = if self.is_carried(length) { Ok(BodyDurability::Carried) } else { self.sync(batch) };
        self.meters.appended(batch.len(), began.elapsed());
        let durable = |place| durable.clone().map(|durable| (place, durable));
        written.into_iter().map(|place| place.and_then(durable)).collect()
    }

    /// Writes a single small body on the caller's thread and creates the job that names it. If that fails, the caller
    /// gets the error as its answer. Any other body is returned and left to the appender thread.
    pub(in crate::store) fn append_alone(&self, append: Append) -> Result<Option<Job>, Append> {
        let Append { announcement, body, .. } = &append;
        let has_file = body.segment.file.get().is_some();
        if !announcement.is_alone() || !has_file || !self.is_carried(body.bytes.len()) {
            return Err(append);
        }
        // A single caller finds the thread idle. Until its body is written, it counts as in flight.
        Ok(self.append(vec![append]).pop())
    }

    const fn is_carried(&self, length: usize) -> bool {
        length <= self.carried_bytes_max
    }

    fn pass_on(&self, written: Result<(Place, BodyDurability), StoreError>, append: Append) -> Option<Job> {
        let SealedBody { segment, message, bytes: sealed, body } = append.body;
        (append.job)(written.map(|(place, durable)| {
            self.content.fresh.keep(place.bucket, message, body);
            let carried = match durable {
                BodyDurability::Carried => Some(InlinedBody { place, sealed, segment }),
                BodyDurability::Synced => None,
            };
            BodyPlacement { place, carried }
        }))
    }

    fn write(&self, body: &SealedBody, ends: &mut SegmentEnds) -> Result<Place, StoreError> {
        let SealedBody { segment, bytes, .. } = body;
        if segment.file.get().is_none() {
            self.create(segment)?;
        }
        let Some(file) = segment.file.get() else { unreachable!("the file was created above") };
        let end = ends.entry((segment.bucket.as_millis(), segment.number)).or_default();
        file.write_all_at(bytes, *end).map_err(|error| failed("append to", &self.content.directory, &error))?;
        let length = u32::try_from(bytes.len()).map_err(|_| StoreError::Content("a body is over 4 GiB".into()))?;
        let place = Place { bucket: segment.bucket, segment: segment.number, offset: *end, length };
        *end += u64::from(length);
        Ok(place)
    }

    fn create(&self, segment: &Segment) -> Result<(), StoreError> {
        let created = segment.create(&*self.content.disk, &self.content.directory);
        let file =
            created.and_then(|file| self.content.keys.put(segment).map(|()| file)).map_err(|error| match error {
                StoreError::Full => StoreError::Full,
                error => self.health.fail(&error),
            })?;
        // Only the thread that holds the lock on the ends sets the file.
        drop(segment.file.set(file));
        Ok(())
    }

    fn sync(&self, batch: &[Append]) -> Result<BodyDurability, StoreError> {
        let mut segments: Vec<&Arc<Segment>> = batch.iter().map(|append| &append.body.segment).collect();
        segments.sort_by_key(|segment| (segment.bucket, segment.number));
        segments.dedup_by_key(|segment| (segment.bucket, segment.number));
        for segment in segments {
            // After a failed fsync the state of the disk is unknown, and a second one could report a false success: end
            // the process.
            self.meters.syncs.count();
            segment.sync().map_err(|error| self.health.fail(&unsynced(&self.content.directory, &error)))?;
        }
        Ok(BodyDurability::Synced)
    }
}
