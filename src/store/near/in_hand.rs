//! Taken timers. A worker serves each until its row is removed. A *suspended* one is taken and postponed, in memory
//! only, until an alarm. There may be very many messages, so each takes little memory.

use std::collections::HashSet;

use crate::base::id::Ulid;
use crate::base::time::Timestamp;
use crate::store::timer::{Timer, TimerKind};

/// A message's timer. No two accounts share an identifier.
type OfMessage = (Timestamp, Ulid);

/// Timers that are taken and not settled.
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

    /// Removes a timer, and returns whether it was taken.
    pub(super) fn forget(&mut self, timer: &Timer) -> bool {
        match of_message(timer) {
            Some(message) => self.messages.remove(&message) | self.resting.remove(&message),
            None => self.others.remove(timer),
        }
    }

    /// Suspends a taken timer.
    pub(super) fn rest(&mut self, timer: Timer) {
        let message = of_message(&timer);
        debug_assert!(message.is_some(), "only messages rest");
        self.resting.extend(message.filter(|message| self.messages.remove(message)));
    }

    /// Resumes a suspended timer.
    pub(super) fn rouse(&mut self, timer: Timer) {
        self.messages.extend(of_message(&timer).filter(|message| self.resting.remove(message)));
    }

    pub(super) fn knows(&self, timer: &Timer) -> bool {
        match of_message(timer) {
            Some(message) => self.messages.contains(&message) || self.resting.contains(&message),
            None => self.others.contains(timer),
        }
    }

    /// Whether no timer of `kind` is being worked on.
    #[cfg(test)]
    pub(super) fn is_idle_at(&self, kind: TimerKind) -> bool {
        (kind != TimerKind::Transfer || self.messages.is_empty()) && self.others.iter().all(|timer| timer.kind != kind)
    }

    /// Whether no timer is being worked on.
    pub(super) fn is_idle(&self) -> bool {
        self.messages.is_empty() && self.others.is_empty()
    }
}

fn of_message(timer: &Timer) -> Option<OfMessage> {
    (timer.kind == TimerKind::Transfer).then_some((timer.due, timer.id))
}
