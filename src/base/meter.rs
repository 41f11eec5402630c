//! Metrics: counters and durations for monitoring. Each floor has its own struct, which `http` writes out.
//!
//! Counting is one atomic addition, so it is cheap anywhere. The program never reads a metric back for a decision. This
//! module reads no clock: durations are arguments.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Bounds in microseconds that suit both a signature and a slow receiver: 0.1 ms to 5 minutes.
pub const DURATIONS: &[u64] = &[
    100,
    250,
    500,
    1_000,
    2_500,
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    30_000_000,
    60_000_000,
    300_000_000,
];
/// Bounds for batch sizes.
pub const BATCH_SIZES: &[u64] = &[1, 2, 4, 8, 16, 32, 64, 128, 256, 512];

/// A count that only increases.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds one.
    pub fn count(&self) {
        self.0.fetch_add(1, Relaxed);
    }

    /// Adds `more`.
    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Relaxed);
    }

    /// Returns the count since the start.
    pub fn read(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Distribution of values over fixed bounds.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [u64],
    /// One count for each bound, and one for larger values.
    counts: Box<[AtomicU64]>,
    sum: AtomicU64,
}

/// A snapshot of a histogram.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Distribution {
    /// Each bound with the number of values up to it.
    pub buckets: Vec<(u64, u64)>,
    /// Number of values.
    pub count: u64,
    /// Sum of all values.
    pub sum: u64,
}

impl Histogram {
    /// Creates an empty histogram over `bounds`, which ascend.
    pub fn new(bounds: &'static [u64]) -> Self {
        Self { bounds, counts: (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect(), sum: AtomicU64::new(0) }
    }

    /// Creates a histogram over [`DURATIONS`], in microseconds.
    pub fn of_durations() -> Self {
        Self::new(DURATIONS)
    }

    /// Counts a value.
    pub fn observe(&self, value: u64) {
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        if let Some(count) = self.counts.get(bucket) {
            count.fetch_add(1, Relaxed);
        }
        self.sum.fetch_add(value, Relaxed);
    }

    /// Counts a duration, in microseconds.
    pub fn observe_duration(&self, duration: Duration) {
        self.observe(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX));
    }

    /// Returns the current distribution. Values recorded during the read may or may not be included.
    pub fn read(&self) -> Distribution {
        let mut count = 0;
        let mut cumulated = self.counts.iter().map(|one| {
            count += one.load(Relaxed);
            count
        });
        let buckets = self.bounds.iter().copied().zip(cumulated.by_ref()).collect();
        cumulated.for_each(drop);
        Distribution { buckets, count, sum: self.sum.load(Relaxed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_counted_at_its_bound_and_above_it() {
        let histogram = Histogram::new(&[1, 5]);
        for value in [0, 1, 2, 5, 6, 100] {
            histogram.observe(value);
        }
        assert_eq!(histogram.read(), Distribution { buckets: vec![(1, 2), (5, 4)], count: 6, sum: 114 });
    }

    #[test]
    fn a_duration_is_counted_in_microseconds() {
        let histogram = Histogram::of_durations();
        histogram.observe_duration(Duration::from_millis(3));
        histogram.observe_duration(Duration::from_secs(3600));
        let Distribution { buckets, count, sum } = histogram.read();
        assert_eq!((count, sum), (2, 3_600_003_000));
        assert!(buckets.contains(&(2_500, 0)) && buckets.contains(&(5_000, 1)) && buckets.contains(&(300_000_000, 1)));
    }

    #[test]
    fn a_counter_adds_up() {
        let counter = Counter::default();
        counter.count();
        counter.count();
        assert_eq!(counter.read(), 2);
    }
}
