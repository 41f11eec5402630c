//! Timers in hand: *taken* by whoever serves them, until their rows are gone, or *resting*: taken, and put off in
//! memory alone until an alarm. A message that rests is one of many, so little is kept of it.

use std::collections::HashSet;

use crate::base::id::Ulid;
use crate::base::time::Timestamp;
use crate::store::timer::{Timer, TimerKind};

/// What was taken from the near timers and is not settled.
#[derive(Default)]
pub(super) struct InHand {
    taken: HashSet<Timer>,
    /// Of messages alone, whose identifiers no two accounts share.
    resting: HashSet<(Timestamp, Ulid)>,
}

impl InHand {
    pub(super) fn take(&mut self, timers: &[Timer]) {
        self.taken.extend(timers);
    }

    /// Whether it was in hand; it is not any more.
    pub(super) fn forget(&mut self, timer: &Timer) -> bool {
        let rested = is_message(timer) && self.resting.remove(&(timer.due, timer.id));
        self.taken.remove(timer) || rested
    }

    /// Has a taken timer rest.
    pub(super) fn rest(&mut self, timer: Timer) {
        debug_assert!(is_message(&timer), "only messages rest");
        if self.taken.remove(&timer) {
            self.resting.insert((timer.due, timer.id));
        }
    }

    /// Has a resting timer count as taken again.
    pub(super) fn rouse(&mut self, timer: Timer) {
        if self.resting.remove(&(timer.due, timer.id)) {
            self.taken.insert(timer);
        }
    }

    pub(super) fn knows(&self, timer: &Timer) -> bool {
        self.taken.contains(timer) || is_message(timer) && self.resting.contains(&(timer.due, timer.id))
    }

    /// Whether nobody works on anything.
    pub(super) fn is_idle(&self) -> bool {
        self.taken.is_empty()
    }
}

fn is_message(timer: &Timer) -> bool {
    timer.kind == TimerKind::Transfer
}
