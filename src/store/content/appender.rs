//! The appender: the one thread that writes bodies. It syncs a batch, then passes its operations on to the writer, so
//! that a body is durable strictly before the commit that names it; while that commit syncs, the next bodies are
//! written. A small batch is not worth a sync of its own: it goes on to be durable with the commit's ([`Carried`]).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender};
use std::time::{Duration, Instant};

use super::segment::Segment;
use super::{Carried, Content, Place, SealedBody, failed};
use crate::store::error::StoreError;
use crate::store::gather::{Announced, gather};
use crate::store::health::Health;
use crate::store::job::Job;
use crate::store::meters::StoreMeters;

/// How many bodies are synced together at most.
const BATCH_MAX: usize = 256;
/// What the bodies of a batch take together, sealed, that the journal carries. They are written twice then, which costs
/// less than a sync as long as they are few.
const CARRIED_OCTETS_MAX: usize = 16 * 1024;

/// How long bodies wait for those that are being signed: the longer, the more there are, for each takes a fraction of a
/// millisecond, and a batch has its price whatever is in it. Who comes alone waits for nobody.
fn patience(announced: usize) -> Duration {
    let each = Duration::from_micros(250) * u32::try_from(announced).unwrap_or(u32::MAX).min(1024);
    if announced == 0 { Duration::ZERO } else { each.clamp(Duration::from_millis(2), Duration::from_millis(8)) }
}

/// A body to append, and what to commit when it is durable.
pub(in crate::store) struct Append {
    pub(in crate::store) body: SealedBody,
    pub(in crate::store) job: PlacedJob,
}

/// Where a body was written, and itself where it is not durable there yet.
pub(in crate::store) struct Placed {
    pub(in crate::store) place: Place,
    pub(in crate::store) carried: Option<Carried>,
}

/// How a batch of bodies becomes durable.
#[derive(Clone, Copy)]
enum Durable {
    /// It is, by a sync of its own.
    Synced,
    /// By the record of the rows that name them.
    Carried,
}

/// Makes the job that names the body, or answers its caller that the body could not be written.
pub(in crate::store) type PlacedJob = Box<dyn FnOnce(Result<Placed, StoreError>) -> Option<Box<dyn Job>> + Send>;

/// The appending thread's state.
pub(in crate::store) struct Appender {
    content: Arc<Content>,
    health: Arc<Health>,
    meters: Arc<StoreMeters>,
    announced: Announced,
    /// What the journal carries of a batch at most.
    carried_octets_max: usize,
    /// Where the next body of a segment goes.
    ends: HashMap<(u64, u32), u64>,
}

impl Appender {
    pub(in crate::store) fn new(
        content: Arc<Content>,
        health: Arc<Health>,
        meters: Arc<StoreMeters>,
        announced: Announced,
    ) -> Self {
        Self { content, health, meters, announced, carried_octets_max: CARRIED_OCTETS_MAX, ends: HashMap::new() }
    }

    /// Has the journal carry `octets` of a batch at most, for stories of crashes.
    #[cfg(test)]
    pub(in crate::store) const fn carry_at_most(&mut self, octets: usize) {
        self.carried_octets_max = octets;
    }

    /// Runs until every sender is gone.
    pub(in crate::store) fn run(mut self, inbox: &Receiver<Append>, writer: &SyncSender<Box<dyn Job>>) {
        while let Ok(first) = inbox.recv() {
            let batch = gather(inbox, first, BATCH_MAX, |_| patience(self.announced.count()));
            for job in self.append(batch) {
                if writer.send(job).is_err() {
                    return;
                }
            }
        }
    }

    /// Writes a batch of bodies, syncs it where it is not to be carried, and makes the jobs that name them.
    pub(in crate::store) fn append(&mut self, batch: Vec<Append>) -> Vec<Box<dyn Job>> {
        let (began, bodies) = (Instant::now(), batch.len());
        let octets: usize = batch.iter().map(|append| append.body.bytes.len()).sum();
        let written: Vec<_> = batch.iter().map(|append| self.write(&append.body)).collect();
        let durable = if octets <= self.carried_octets_max { Ok(Durable::Carried) } else { self.sync(&batch) };
        self.meters.appended(bodies, began.elapsed());
        let placed =
            written.into_iter().map(|place| place.and_then(|place| durable.clone().map(|durable| (place, durable))));
        placed.zip(batch).filter_map(|(placed, append)| self.pass_on(placed, append)).collect()
    }

    fn pass_on(&self, written: Result<(Place, Durable), StoreError>, append: Append) -> Option<Box<dyn Job>> {
        let SealedBody { segment, message, bytes: sealed, body } = append.body;
        (append.job)(written.map(|(place, durable)| {
            self.content.fresh.keep(place.bucket, message, body);
            let carried = match durable {
                Durable::Carried => Some(Carried { place, sealed, segment }),
                Durable::Synced => None,
            };
            Placed { place, carried }
        }))
    }

    fn write(&mut self, body: &SealedBody) -> Result<Place, StoreError> {
        let SealedBody { segment, bytes, .. } = body;
        if segment.file.get().is_none() {
            self.create(segment)?;
        }
        let Some(file) = segment.file.get() else { unreachable!("the file was created above") };
        let end = self.ends.entry((segment.bucket.as_millis(), segment.number)).or_default();
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
        // Only this thread sets it.
        drop(segment.file.set(file));
        Ok(())
    }

    fn sync(&self, batch: &[Append]) -> Result<Durable, StoreError> {
        let mut segments: Vec<&Arc<Segment>> = batch.iter().map(|append| &append.body.segment).collect();
        segments.sort_by_key(|segment| (segment.bucket, segment.number));
        segments.dedup_by_key(|segment| (segment.bucket, segment.number));
        for segment in segments {
            // After a failed fsync nobody knows what is on the disk, and a second one would lie: the end of this
            // process.
            self.meters.syncs.count();
            segment.sync().map_err(|error| self.health.fail(&failed("sync", &self.content.directory, &error)))?;
        }
        Ok(Durable::Synced)
    }
}
