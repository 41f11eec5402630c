//! Alarms: moments at which somebody wants to be woken, known here so that time that is moved stops at them. An alarm
//! is no row: a crash forgets it, together with why it was set.

use std::collections::BTreeSet;
use std::ops::Bound;

use crate::base::time::Timestamp;

/// When somebody wants to be woken, and who.
pub type Alarm = (Timestamp, u64);

/// All that are set.
#[derive(Default)]
pub(super) struct Alarms(BTreeSet<Alarm>);

impl Alarms {
    pub(super) fn set(&mut self, alarm: Alarm) {
        self.0.insert(alarm);
    }

    pub(super) fn silence(&mut self, alarm: &Alarm) {
        self.0.remove(alarm);
    }

    /// Those that have come and are not silenced.
    pub(super) fn due(&self, now: Timestamp) -> Vec<Alarm> {
        self.0.iter().take_while(|(at, _)| *at <= now).copied().collect()
    }

    /// Whether one has come and is not silenced.
    pub(super) fn rings(&self, now: Timestamp) -> bool {
        self.0.first().is_some_and(|(at, _)| *at <= now)
    }

    /// When the next one comes.
    pub(super) fn next_after(&self, now: Timestamp) -> Option<Timestamp> {
        let later = (Bound::Excluded((now, u64::MAX)), Bound::Unbounded);
        self.0.range(later).next().map(|(at, _)| *at)
    }
}
