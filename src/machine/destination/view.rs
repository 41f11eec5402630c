//! Views of a destination: for the operator, for budgets, and why its next message waits.

use std::time::Duration;

use super::window::{Standing, Trust};
use super::{Destination, HIGH, Moment, Place};
use crate::base::id::AccountId;
use crate::base::time::Timestamp;

/// A queue this long spills before any other where its site is throttled.
const LONG: usize = 64;

/// Operator's view of a destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// Messages that have started.
    pub in_flight: usize,
    /// The end of the time for which the site gets nothing.
    pub held_until: Option<Timestamp>,
    /// The last answer of the site.
    pub last_answer: Option<String>,
}

/// Obstacle to sending the next message at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Obstacle {
    /// The site is throttled since a failure or an answer that asked for patience.
    Throttled {
        /// When that began.
        since: Timestamp,
        /// None while one attempt probes the site.
        until: Option<Timestamp>,
        /// The last answer of the site.
        last_answer: Option<String>,
    },
    /// The site takes so many messages a minute.
    Paced(Timestamp),
    /// The site has asked for fewer connections, and all of them are in use.
    Fewer(Timestamp),
    /// All connections of the site are in use.
    Window,
    /// There is none.
    Nothing,
}

impl Destination {
    /// The number of messages that wait in memory.
    pub const fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether no message waits in memory.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether no more messages are to be read from the store.
    pub const fn is_full(&self) -> bool {
        self.len() >= HIGH
    }

    /// Returns the trust in the site.
    pub const fn trust(&self) -> Trust {
        self.window.trust()
    }

    /// Whether a message with this place may be in the store alone.
    pub fn covers(&self, place: Place) -> bool {
        self.spilled.covers(place)
    }

    /// Kept connections that no started message will use.
    pub fn idle_connections(&self) -> usize {
        self.kept.saturating_sub(self.slots.len() - self.slots.connected())
    }

    /// When the next message may start, if it waits for its turn in the minute.
    pub const fn next_wake(&self) -> Option<Duration> {
        self.spaced_until
    }

    /// Whether a message of another account than `account` could start instead of one that waits for a connection.
    pub fn has_other(&self, account: AccountId, moment: Moment) -> bool {
        self.queue.has_other(account, self.marketing_room(moment.wall) > 0, moment.machine)
    }

    /// Whether messages may be left to the store alone.
    pub const fn may_spill(&self) -> bool {
        self.may_spill
    }

    /// The destination of the greatest weight spills first.
    pub fn weight(&self) -> (bool, usize) {
        (self.len() > LONG && self.window.standing() != Standing::Open, self.len())
    }

    /// Whether nothing is known that is worth keeping.
    pub fn is_idle(&self, now: Timestamp) -> bool {
        let is_used = self.slots.len() > 0 || !self.is_empty() || self.kept > 0 || !self.spilled.is_empty();
        !is_used && self.held_until(now).is_none()
    }

    /// The end of the time for which the site gets nothing, where it is still to come.
    fn held_until(&self, now: Timestamp) -> Option<Timestamp> {
        match self.window.standing() {
            Standing::Held(until) => Some(until).filter(|until| *until > now),
            Standing::Probing | Standing::Open => None,
        }
    }

    /// Returns the operator's view.
    pub fn view(&self, now: Timestamp) -> View {
        View { in_flight: self.slots.len(), held_until: self.held_until(now), last_answer: self.last_answer.clone() }
    }

    /// Returns the obstacle to sending the next message at once.
    pub fn obstacle(&mut self, moment: Moment) -> Obstacle {
        let now = moment.wall;
        if let Some(since) = self.window.closed_at() {
            return Obstacle::Throttled { since, until: self.held_until(now), last_answer: self.last_answer.clone() };
        }
        let wait = self.spacing_wait(moment);
        if !wait.is_zero() {
            return Obstacle::Paced(now + wait);
        }
        if self.slots.len() < self.window.connections(now) {
            return Obstacle::Nothing;
        }
        self.window.fewer_until(now).map_or(Obstacle::Window, Obstacle::Fewer)
    }
}
