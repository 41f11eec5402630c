//! The plan of a run with a replica: the settings of `[replica]`, the bucket's latency and its outages.

use std::time::Duration;

use super::Promotion;
use crate::engine::replica::{BasePolicy, ModeWords, Pace};
use crate::machine::replica_lease::LeaseRules;
use crate::store::open::SyncRule;
use crate::store::single_threaded::Rng;

/// Limit of the backlog in a run whose backlog never reaches it.
const BACKLOG_BYTES: u64 = 1 << 30;
/// Separates the random draw of the mode from the other draws of the seed.
const SALT: u64 = 5333;

/// Separates the random draw of the period in which removals are refused from the other draws of the seed.
const SALT_OF_REFUSAL: u64 = 403;

/// The drawn settings of a replica and its bucket.
#[derive(Debug)]
pub(in crate::app::simulation) struct ReplicaPlan {
    /// The rule of synchronous replication; `None` for asynchronous replication.
    pub(in crate::app::simulation) sync: Option<SyncRule>,
    pub(in crate::app::simulation) lease: LeaseRules,
    interval: Duration,
    age: Duration,
    log_bytes: u64,
    retention: Duration,
    pub(in crate::app::simulation) backlog_bytes_max: u64,
    /// Whether the bucket's objects are sealed.
    pub(in crate::app::simulation) encrypts: bool,
    /// Maximum time of a request and of its answer.
    pub(in crate::app::simulation) latency: Duration,
    /// Periods of elapsed time in which the bucket can't be reached.
    pub(in crate::app::simulation) outages: Vec<(Duration, Duration)>,
    /// The period in which the bucket refuses to remove objects.
    pub(super) refusal: Option<(Duration, Duration)>,
    /// Whether the content expires after the run.
    pub(in crate::app::simulation) shreds: bool,
}

/// The loss of the machine that serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::app::simulation) enum Failover {
    /// The machine ends, and loses its disk.
    DiskLost(Promotion),
    /// The machine ends, and starts again after another machine has taken over.
    Off(Promotion),
    /// The machine runs, and can't reach the bucket for a while. After the second time an operator promotes the
    /// standby, unless the standby promotes itself.
    CutOff(Duration, Option<Duration>),
}

impl Failover {
    /// Draws a loss of a machine with this lease.
    pub(in crate::app::simulation) fn draw(rng: &mut Rng, lease: &LeaseRules) -> Self {
        let by = if lease.is_automatic && rng.coin() { Promotion::ByLease } else { Promotion::ByHand };
        let mut below = |limits: [u64; 3]| {
            let limit = limits[rng.index(3)];
            Duration::from_millis(rng.below(limit))
        };
        let (length, after) = (below([2_000, 30_000, 600_000]), below([1_000, 10_000, 200_000]));
        match rng.index(4) {
            0 => Self::DiskLost(by),
            1 => Self::Off(by),
            _ => Self::CutOff(length, (by == Promotion::ByHand).then_some(after)),
        }
    }
}

impl Failover {
    /// Draws the times of submissions around this loss at `at`: before it, and until both machines' leases are over.
    pub(in crate::app::simulation) fn traffic(self, rng: &mut Rng, at: Duration, lease: &LeaseRules) -> Vec<Duration> {
        let promoted_at = match self {
            Self::CutOff(length, after) => at + after.map_or(length, |after| after.min(length)),
            Self::DiskLost(_) | Self::Off(_) => at,
        };
        let before = Duration::from_secs(1);
        let mut around = |at: Duration, until: Duration| {
            let span = u64::try_from((until + before).as_millis()).unwrap();
            at.saturating_sub(before) + Duration::from_millis(rng.below(span))
        };
        let lost = [Duration::from_secs(1); 3].map(|until| around(at, until));
        let taken_over = [Duration::from_secs(2), lease.lease, lease.lease * 3].map(|until| around(promoted_at, until));
        lost.into_iter().chain(taken_over).collect()
    }
}

impl ReplicaPlan {
    /// Draws the plan of a run whose faults end at `faults_end`.
    pub(in crate::app::simulation) fn new(seed: u64, faults_end: Duration) -> Self {
        let mut rng = Rng::new(seed ^ 0xb0c4_e751);
        let stops = rng.coin();
        let lease = Duration::from_secs([2, 5, 60][rng.index(3)]);
        let interval = Duration::from_millis([50, 500, 5_000][rng.index(3)]);
        let hour = Duration::from_secs(3600);
        let mut plan = Self {
            sync: None,
            lease: LeaseRules { lease, stops, is_automatic: false },
            interval,
            age: [hour / 6, hour * 24][rng.index(2)],
            log_bytes: [20_000, 1 << 28][rng.index(2)],
            retention: [Duration::ZERO, hour, hour * 168][rng.index(3)],
            backlog_bytes_max: [20_000, BACKLOG_BYTES, BACKLOG_BYTES][rng.index(3)],
            encrypts: rng.index(4) != 0,
            latency: Duration::from_millis([1, 20, 300][rng.index(3)]),
            outages: Vec::new(),
            refusal: None,
            shreds: Rng::new(seed ^ 0x54_4ed5).index(4) == 0,
        };
        // The mode is drawn separately: with this number all stored seeds stay asynchronous.
        let mut rng_of_mode = Rng::new(seed ^ SALT);
        if rng_of_mode.coin() {
            plan.sync = Some(SyncRule { timeout: Duration::from_secs([1, 10][rng_of_mode.index(2)]), stops });
        }
        let end = u64::try_from(faults_end.as_millis()).unwrap();
        for _ in 0..rng.index(4) {
            let from = Duration::from_millis(rng.below(end));
            let longest = [500, 10_000, 600_000][rng.index(3)];
            let length = Duration::from_millis(rng.below(longest));
            plan.outages.push((from, (from + length).min(faults_end)));
        }
        let mut rng_of_refusal = Rng::new(seed ^ SALT_OF_REFUSAL);
        if rng_of_refusal.index(4) == 0 {
            let from = Duration::from_millis(rng_of_refusal.below(end));
            let length = Duration::from_millis(rng_of_refusal.below(200_000));
            plan.refusal = Some((from, (from + length).min(faults_end)));
        }
        plan
    }

    /// Returns the pace of slots.
    pub(super) fn pace(&self) -> Pace {
        let failover = if self.lease.is_automatic { "automatic" } else { "manual" };
        let words = ModeWords { mode: if self.sync.is_some() { "sync" } else { "async" }, failover };
        Pace { interval: if self.sync.is_some() { Duration::ZERO } else { self.interval }, words }
    }

    /// Returns the schedule of bases.
    pub(super) const fn bases(&self) -> BasePolicy {
        BasePolicy { age: self.age, log_bytes: self.log_bytes, retention: self.retention, beside: &[] }
    }

    /// Returns whether the bucket has everything that was acknowledged.
    pub(in crate::app::simulation) fn loses_nothing(&self) -> bool {
        self.sync.is_some_and(|rule| rule.stops)
    }

    /// Returns the time after which a change must be in the bucket, if no call to it fails: the interval, and the keys
    /// and the slot of this change and of the one before it.
    pub(super) fn bound(&self) -> Duration {
        self.interval + self.latency * 12 + Duration::from_secs(1)
    }

    /// Returns the time that replication needs after the last failed call before the bound applies again: a backoff,
    /// and a base if the backlog was dropped.
    pub(super) fn recovery(&self) -> Duration {
        Duration::from_secs(if self.has_small_backlog() { 240 } else { 25 })
    }

    /// Returns whether the backlog may be dropped.
    pub(super) const fn has_small_backlog(&self) -> bool {
        self.backlog_bytes_max < BACKLOG_BYTES
    }
}
