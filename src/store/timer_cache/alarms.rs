//! Alarms: moments at which a worker wants to be woken. They are set here so that a virtual clock stops at them. An
//! alarm has no row. A crash loses it together with the state for which it was set.

use std::collections::BTreeSet;
use std::ops::Bound;

use crate::base::time::Timestamp;

/// Time of an alarm, and the number of its owner.
pub type Alarm = (Timestamp, u64);

/// All alarms that are set.
#[derive(Default)]
pub(super) struct Alarms(BTreeSet<Alarm>);

impl Alarms {
    pub(super) fn set(&mut self, alarm: Alarm) {
        self.0.insert(alarm);
    }

    pub(super) fn silence(&mut self, alarm: &Alarm) {
        self.0.remove(alarm);
    }

    /// Returns the alarms that are due and not silenced.
    pub(super) fn due(&self, now: Timestamp) -> Vec<Alarm> {
        self.0.iter().take_while(|(at, _)| *at <= now).copied().collect()
    }

    /// Returns whether an alarm is due and not silenced.
    pub(super) fn rings(&self, now: Timestamp) -> bool {
        self.0.first().is_some_and(|(at, _)| *at <= now)
    }

    /// Returns the time of the next alarm after `now`.
    pub(super) fn next_after(&self, now: Timestamp) -> Option<Timestamp> {
        let later = (Bound::Excluded((now, u64::MAX)), Bound::Unbounded);
        self.0.range(later).next().map(|(at, _)| *at)
    }
}
