//! Timers in hand: *taken* by whoever serves them, until their rows are gone, or *resting*: taken, and put off in
//! memory alone until an alarm. A message is one of many, so little is kept of it.

use std::collections::HashSet;

use crate::base::id::Ulid;
use crate::base::time::Timestamp;
use crate::store::timer::{Timer, TimerKind};

/// A message's timer: no two accounts share an identifier.
type OfMessage = (Timestamp, Ulid);

/// Timers that were taken and are not settled.
#[derive(Default)]
pub(super) struct InHand {
    messages: HashSet<OfMessage>,
    resting: HashSet<OfMessage>,
    others: HashSet<Timer>,
}

impl InHand {
    pub(super) fn take(&mut self, timers: &[Timer]) {
        for timer in timers {
            match of_message(timer) {
                Some(message) => self.messages.insert(message),
                None => self.others.insert(*timer),
            };
        }
    }

    /// Whether it was in hand; it is not any more.
    pub(super) fn forget(&mut self, timer: &Timer) -> bool {
        match of_message(timer) {
            Some(message) => self.messages.remove(&message) | self.resting.remove(&message),
            None => self.others.remove(timer),
        }
    }

    /// Has a taken timer rest.
    pub(super) fn rest(&mut self, timer: Timer) {
        let message = of_message(&timer);
        debug_assert!(message.is_some(), "only messages rest");
        self.resting.extend(message.filter(|message| self.messages.remove(message)));
    }

    /// Has a resting timer count as taken again.
    pub(super) fn rouse(&mut self, timer: Timer) {
        self.messages.extend(of_message(&timer).filter(|message| self.resting.remove(message)));
    }

    pub(super) fn knows(&self, timer: &Timer) -> bool {
        match of_message(timer) {
            Some(message) => self.messages.contains(&message) || self.resting.contains(&message),
            None => self.others.contains(timer),
        }
    }

    /// Whether nobody works on a timer of `kind`.
    #[cfg(test)]
    pub(super) fn is_idle_at(&self, kind: TimerKind) -> bool {
        (kind != TimerKind::Transfer || self.messages.is_empty()) && self.others.iter().all(|timer| timer.kind != kind)
    }

    /// Whether nobody works on anything.
    pub(super) fn is_idle(&self) -> bool {
        self.messages.is_empty() && self.others.is_empty()
    }
}

fn of_message(timer: &Timer) -> Option<OfMessage> {
    (timer.kind == TimerKind::Transfer).then_some((timer.due, timer.id))
}
