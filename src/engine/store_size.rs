//! Size of the store over the last days, in a file of the data directory, for the growth on the operator's page. At
//! most one sample per hour.

use std::time::Duration;

use super::Engine;
use crate::base::time::Timestamp;
use crate::store::private_file;

/// The file.
const FILE: &str = "store-sizes";
/// Minimum time between two samples.
const EVERY: Duration = Duration::from_secs(3600);
/// Period over which growth is measured.
const SPAN: Duration = Duration::from_secs(7 * 24 * 3600);

/// The growth of the store since a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Growth {
    /// Time of the sample: seven days ago, or later if the oldest sample is younger.
    pub since: Timestamp,
    /// Growth in bytes; negative if the store has shrunk.
    pub bytes: i64,
}

/// Samples, oldest first.
#[derive(Debug, Default, PartialEq, Eq)]
struct Samples(Vec<(Timestamp, u64)>);

impl Samples {
    /// Parses lines of milliseconds and bytes. Other lines are ignored.
    fn read(text: &str) -> Self {
        let sample = |line: &str| {
            let (at, bytes) = line.split_once(' ')?;
            Some((Timestamp::from_millis(at.parse().ok()?), bytes.parse().ok()?))
        };
        Self(text.lines().filter_map(sample).collect())
    }

    fn text(&self) -> String {
        self.0.iter().map(|(at, bytes)| format!("{} {bytes}\n", at.as_millis())).collect()
    }

    /// Adds a sample, unless the last one is younger than [`EVERY`]. Keeps one that is older than [`SPAN`].
    fn note(&mut self, now: Timestamp, bytes: u64) -> bool {
        // If the clock has stepped back, later samples are meaningless.
        self.0.retain(|(at, _)| *at <= now);
        if self.0.last().is_some_and(|(at, _)| *at + EVERY > now) {
            return false;
        }
        self.0.push((now, bytes));
        let old = self.0.iter().take_while(|(at, _)| *at + SPAN <= now).count();
        self.0.drain(..old.saturating_sub(1));
        true
    }

    fn growth(&self, now: Timestamp, bytes: u64) -> Option<Growth> {
        let (since, then) = self.0.iter().rev().find(|(at, _)| *at + SPAN <= now).or_else(|| self.0.first())?;
        let bytes = i64::try_from(bytes).ok()?.checked_sub(i64::try_from(*then).ok()?)?;
        Some(Growth { since: *since, bytes })
    }
}

impl Engine {
    /// Records the store's size, unless there is a recent sample. Blocks on the file system.
    pub fn note_store_size(&self) {
        let (path, now) = (self.store.directory().join(FILE), self.clock.now());
        let mut samples = Samples::read(&std::fs::read_to_string(&path).unwrap_or_default());
        if !samples.note(now, self.store.size_bytes().total()) {
            return;
        }
        if let Err(error) = private_file::replace(&path, samples.text().as_bytes()) {
            tracing::warn!(%error, "could not record the size of the store; its growth lacks this sample");
        }
    }

    /// Returns the growth of the store in seven days, or since the first sample. Blocks on the file system.
    pub fn store_growth(&self) -> Option<Growth> {
        let text = std::fs::read_to_string(self.store.directory().join(FILE)).ok()?;
        Samples::read(&text).growth(self.clock.now(), self.store.size_bytes().total())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_measured_over_seven_days_or_since_the_first_sample() {
        let hour = |hours: u64| Timestamp::ZERO + Duration::from_secs(hours * 3600);
        let mut samples = Samples::default();
        assert_eq!(samples.growth(hour(0), 5), None);
        for hours in 0..400 {
            assert!(samples.note(hour(hours), 1_000 + hours));
            assert!(!samples.note(hour(hours) + EVERY / 2, 0), "at most one sample per hour");
        }
        assert_eq!(samples.0.len(), 7 * 24 + 1);
        assert_eq!(samples.growth(hour(399), 900), Some(Growth { since: hour(231), bytes: 900 - 1_231 }));
        assert_eq!(Samples::read(&samples.text()), samples);
        let young = Samples(vec![(hour(398), 10)]);
        assert_eq!(young.growth(hour(399), 30), Some(Growth { since: hour(398), bytes: 20 }));
        assert!(samples.note(hour(3), 7) && samples.0.len() == 1, "the clock stepped back");
    }

    #[test]
    fn valid_lines_of_a_damaged_file_are_read() {
        assert_eq!(Samples::read("5 6\nx\n7\n8 -1\n9 10\n").0.len(), 2);
    }
}
