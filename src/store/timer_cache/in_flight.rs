//! Taken timers. A worker serves each until its row is removed. Messages that wait in a queue are taken too, and count
//! as settled while their queue is suspended. There may be very many messages, so each takes little memory.

use std::collections::{HashMap, HashSet};

use crate::base::id::Ulid;
use crate::base::time::Timestamp;
use crate::store::timer::{Timer, TimerKind};

/// A message's timer. No two accounts share an identifier.
type OfMessage = (Timestamp, Ulid);

/// Identifies a queue of messages.
pub type QueueNumber = u64;

/// Timers that are taken and not settled.
#[derive(Default)]
pub(super) struct TimersInFlight {
    /// Messages, and the queue in which each waits.
    messages: HashMap<OfMessage, Option<QueueNumber>>,
    queues: HashMap<QueueNumber, Queue>,
    /// Messages that wait in suspended queues.
    suspended: usize,
    others: HashSet<Timer>,
}

#[derive(Default)]
struct Queue {
    messages: usize,
    is_suspended: bool,
}

impl TimersInFlight {
    pub(super) fn take(&mut self, timers: &[Timer]) {
        for timer in timers {
            if let Some(message) = of_message(timer) {
                self.messages.entry(message).or_insert(None);
            } else {
                self.others.insert(*timer);
            }
        }
    }

    /// Removes a timer, and returns whether it was taken.
    pub(super) fn forget(&mut self, timer: &Timer) -> bool {
        let Some(message) = of_message(timer) else { return self.others.remove(timer) };
        let Some(queue) = self.messages.remove(&message) else { return false };
        queue.into_iter().for_each(|queue| self.leave(queue));
        true
    }

    /// Assigns a taken message to `queue`, or to none. A settled message is skipped.
    pub(super) fn move_to(&mut self, timer: &Timer, queue: Option<QueueNumber>) {
        let entry = of_message(timer).and_then(|message| self.messages.get_mut(&message));
        debug_assert!(timer.kind == TimerKind::Transfer, "only messages wait in queues");
        let Some(entry) = entry else { return };
        if let Some(before) = std::mem::replace(entry, queue) {
            self.leave(before);
        }
        if let Some(queue) = queue {
            let queue = self.queues.entry(queue).or_default();
            queue.messages += 1;
            self.suspended += usize::from(queue.is_suspended);
        }
    }

    fn leave(&mut self, number: QueueNumber) {
        let Some(queue) = self.queues.get_mut(&number) else { return };
        queue.messages -= 1;
        self.suspended -= usize::from(queue.is_suspended);
        if queue.messages == 0 && !queue.is_suspended {
            self.queues.remove(&number);
        }
    }

    /// Suspends or resumes a queue.
    pub(super) fn suspend(&mut self, number: QueueNumber, is_suspended: bool) {
        let queue = self.queues.entry(number).or_default();
        if queue.is_suspended {
            self.suspended -= queue.messages;
        }
        if is_suspended {
            self.suspended += queue.messages;
        }
        queue.is_suspended = is_suspended;
        if queue.messages == 0 && !is_suspended {
            self.queues.remove(&number);
        }
    }

    pub(super) fn knows(&self, timer: &Timer) -> bool {
        match of_message(timer) {
            Some(message) => self.messages.contains_key(&message),
            None => self.others.contains(timer),
        }
    }

    /// Returns whether no worker has a timer of `kind`.
    #[cfg(test)]
    pub(super) fn is_idle_at(&self, kind: TimerKind) -> bool {
        let is_transfer = kind == TimerKind::Transfer;
        (!is_transfer || self.messages.len() == self.suspended) && self.others.iter().all(|timer| timer.kind != kind)
    }

    /// Returns whether no worker has a timer.
    pub(super) fn is_idle(&self) -> bool {
        self.messages.len() == self.suspended && self.others.is_empty()
    }
}

fn of_message(timer: &Timer) -> Option<OfMessage> {
    (timer.kind == TimerKind::Transfer).then_some((timer.due, timer.id))
}
