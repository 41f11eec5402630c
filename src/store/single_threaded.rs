//! A store without threads, for simulations: the simulation decides which worker runs next, and the disk is simulated.
//! Decisions that depend on thread timing are drawn from the seed, so that a run is repeatable.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::Store;
use super::content::Append;
pub(crate) use super::disk::simulated::rng::Rng;
use super::disk::simulated::{Fault, FsyncMode, Loss, SimulatedDisk};
use super::job::Job;
use super::limits::Limits;
use super::master_key::{self, Raw};
use super::open::database::make_directory;
use super::open::{OpenError, StartOptions, StoreEnvironment, Workers};
use super::replica::ReplicaDisk;
use super::writer::RecordedBatch;

/// The data directory on the simulated disk.
pub(crate) const DIRECTORY: &str = "/var/lib/postrider";

/// The workers of a store with their queued operations.
pub(crate) struct Turns {
    workers: Workers,
    bodies: Vec<Append>,
    handed: VecDeque<Job>,
    /// The batch of a synchronous store that waits for the bucket.
    landing: Option<LandingBatch>,
}

struct LandingBatch {
    batch: RecordedBatch,
    /// Monotonic time at which the callers stop waiting; `None` afterwards.
    doubted_at: Option<Duration>,
}

impl Turns {
    pub(super) const fn new(workers: Workers) -> Self {
        Self { workers, bodies: Vec::new(), handed: VecDeque::new(), landing: None }
    }

    /// Runs the appender: writes the queued bodies.
    pub(crate) fn append(&mut self) {
        self.bodies.extend(self.workers.appender_inbox.try_iter());
        let bodies = std::mem::take(&mut self.bodies);
        if !bodies.is_empty() {
            self.handed.extend(self.workers.appender.append(bodies));
        }
    }

    /// Runs the writer: commits up to `most` queued operations, or looks whether the bucket has the batch before them.
    pub(crate) fn write(&mut self, most: usize) {
        self.handed.extend(self.workers.writer_inbox.try_iter());
        if let Some(landing) = self.landing.take() {
            return self.look(landing);
        }
        self.workers.writer.checkpoint_if_due();
        let mut jobs = self.handed.drain(..most.min(self.handed.len()));
        let Some(first) = jobs.next() else { return };
        let Some(batch) = self.workers.writer.begin(vec![first], |_| jobs.next()) else { return };
        drop(jobs);
        match self.workers.writer.bucket_timeout(&batch) {
            None => self.workers.writer.finish(batch),
            Some(timeout) => {
                let doubted_at = Some((self.workers.writer.monotonic)() + timeout);
                self.landing = Some(LandingBatch { batch, doubted_at });
            }
        }
    }

    /// Finishes a batch that the bucket has. After the timeout its callers, and later ones, are answered.
    fn look(&mut self, mut landing: LandingBatch) {
        let (writer, handed) = (&mut self.workers.writer, &mut self.handed);
        if writer.is_settled(&mut landing.batch, Duration::ZERO) {
            writer.finish(landing.batch);
            for job in std::mem::take(&mut writer.deferred).into_iter().rev() {
                handed.push_front(job);
            }
            return;
        }
        if landing.doubted_at.is_none_or(|at| at <= (writer.monotonic)()) {
            landing.doubted_at = None;
            writer.doubt(&mut landing.batch, &mut |_| handed.pop_front());
        }
        self.landing = Some(landing);
    }

    /// Makes a checkpoint if the journal has records.
    pub(crate) fn checkpoint_now(&mut self) {
        self.workers.writer.checkpoint_now();
    }

    /// Serves everything that is queued, unless the bucket lacks a batch.
    pub(crate) fn settle(&mut self) {
        self.append();
        self.write(usize::MAX);
        while self.is_landing() && self.has_work() {
            self.write(usize::MAX);
        }
    }

    /// Returns whether a batch waits for the bucket.
    pub(crate) const fn is_landing(&self) -> bool {
        self.landing.is_some()
    }

    /// Returns the monotonic time of the writer's next turn without new work: the journal is old enough for a
    /// checkpoint, or the callers of a batch have waited long enough for the bucket. `None` without either.
    pub(crate) fn due_at(&self) -> Option<Duration> {
        match &self.landing {
            Some(landing) => landing.doubted_at,
            None => self.workers.writer.checkpoint_at(),
        }
    }

    /// Returns the time until [`Self::due_at`].
    pub(crate) fn due_in(&self) -> Option<Duration> {
        let now = (self.workers.writer.monotonic)();
        self.due_at().map(|at| at.saturating_sub(now))
    }

    /// Returns whether a worker has something to do.
    pub(crate) fn has_work(&mut self) -> bool {
        self.handed.extend(self.workers.writer_inbox.try_iter());
        self.bodies.extend(self.workers.appender_inbox.try_iter());
        let has_jobs = !self.handed.is_empty();
        let writes = match &mut self.landing {
            Some(LandingBatch { batch, doubted_at }) => {
                (doubted_at.is_none() && has_jobs) || self.workers.writer.is_settled(batch, Duration::ZERO)
            }
            None => has_jobs,
        };
        writes || !self.bodies.is_empty()
    }
}

/// Draws random limits: each is either so small that it is reached, or the default of a running store.
pub(crate) fn draw_limits(rng: &mut Rng) -> Limits {
    let usual = Limits::default();
    let mut size = |small: [u64; 2], usual: u64| [small[0], small[1], usual][rng.index(3)];
    let count = |size: u64| usize::try_from(size).unwrap();
    Limits {
        lone_rows_max: count(size([0, 8], usual.lone_rows_max as u64)),
        carried_bytes_max: count(size([0, 200], usual.carried_bytes_max as u64)),
        open_files_max: count(size([1, 2], usual.open_files_max as u64)),
        body_cache_bytes_max: count(size([0, 500], usual.body_cache_bytes_max as u64)),
        journal_bytes_max: size([0, 6_000], usual.journal_bytes_max),
        journal_bytes_max_short: size([0, 2_000], usual.journal_bytes_max_short),
        journal_age_max: Duration::from_secs(size([0, 3600], usual.journal_age_max.as_secs())),
        cache_bytes: count(size([0, 64 << 10], usual.cache_bytes as u64)),
        owed_segments_max: count(size([0, 1], usual.owed_segments_max as u64)),
        reserve_bytes: 4096,
        ..usual
    }
}

/// A machine's disk, for simulations on higher floors.
#[derive(Clone)]
pub(crate) struct Machine(SimulatedDisk);

/// A fault of the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DiskFault {
    /// The process is killed; the page cache stays.
    Kill,
    /// The machine loses power; a random part of the unsynced data is lost.
    PowerCut,
    /// The machine loses power and all unsynced data.
    PowerCutOfAll,
    /// An operation fails.
    Error,
    /// The device is full for this number of operations.
    Full(u64),
}

impl Machine {
    /// Creates a machine with an empty disk.
    pub(crate) fn new(seed: u64) -> Self {
        Self(SimulatedDisk::new(seed, FsyncMode::Honored))
    }

    /// Opens the store on the machine's disk.
    ///
    /// # Errors
    /// Errors of [`Store::open`].
    pub(crate) fn open(
        &self,
        surroundings: StoreEnvironment,
        options: StartOptions,
    ) -> Result<(Store, Turns), OpenError> {
        let disk = Arc::new(self.0.clone());
        let (store, workers) = Store::open_on(disk, Path::new(DIRECTORY), surroundings, Duration::ZERO, options)?;
        Ok((store, Turns::new(workers)))
    }

    /// Creates the data directory durably, as a process does before it opens or builds a store there.
    ///
    /// # Errors
    /// File system errors.
    pub(crate) fn create_directory(&self) -> std::io::Result<()> {
        make_directory(&self.0, Path::new(DIRECTORY))
    }

    /// Returns the machine's disk, for replication.
    pub(crate) fn disk(&self) -> ReplicaDisk {
        ReplicaDisk(Arc::new(self.0.clone()))
    }

    /// Returns the master key of the store.
    ///
    /// # Errors
    /// The file can't be read.
    pub(crate) fn master_key(&self) -> Result<Raw, OpenError> {
        master_key::read_raw_on(&self.0, &Path::new(DIRECTORY).join(master_key::FILE))
    }

    /// Plans a fault for the `after`th operation from now; the next one is 0.
    pub(crate) fn plan(&self, after: u64, fault: DiskFault) {
        let fault = match fault {
            DiskFault::Kill => Fault::Off(Loss::Nothing),
            DiskFault::PowerCut => Fault::Off(Loss::Some),
            DiskFault::PowerCutOfAll => Fault::Off(Loss::Everything),
            DiskFault::Error => Fault::Error,
            DiskFault::Full(operations) => Fault::Full(operations),
        };
        self.0.plan(after, fault);
    }

    /// Removes the planned faults.
    pub(crate) fn forgive(&self) {
        self.0.forgive();
    }

    /// Returns whether the power is off.
    pub(crate) fn is_off(&self) -> bool {
        self.0.is_off()
    }

    /// Ends the process on this disk, and turns the machine on if it is off.
    pub(crate) fn restart(&self) {
        self.0.restart();
    }

    /// Returns a digest of the disk operations so far.
    pub(crate) fn trace(&self) -> u64 {
        self.0.trace()
    }
}
