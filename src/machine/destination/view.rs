//! Views of a destination: for the operator, for budgets, and for the reason why its next message waits.

use std::time::Duration;

use super::window::{Trust, WindowState};
use super::{Destination, HIGH, Moment, Place};
use crate::base::id::AccountId;
use crate::base::time::Timestamp;

/// Length from which a queue of a throttled site spills before all others.
const LONG: usize = 64;

/// Operator's view of a destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// Number of started messages.
    pub in_flight: usize,
    /// The end of the site's throttling.
    pub held_until: Option<Timestamp>,
    /// The last answer of the site.
    pub last_answer: Option<String>,
}

/// Reason why the next message can't be sent at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Obstacle {
    /// The site is throttled after a failure, or because an answer asked for a pause.
    Throttled {
        /// Start of the throttling.
        since: Timestamp,
        /// End; `None` while one attempt probes the site.
        until: Option<Timestamp>,
        /// The last answer of the site.
        last_answer: Option<String>,
    },
    /// The rate limit of the site is reached.
    Paced(Timestamp),
    /// The site requested fewer connections, and all of them are in use.
    Fewer(Timestamp),
    /// All connections of the site are in use.
    Window,
    /// All places of the site belong to messages that have no connection yet.
    Unconnected,
    /// There is no obstacle.
    Nothing,
}

impl Destination {
    /// Returns the number of waiting messages in memory.
    pub const fn len(&self) -> usize {
        self.queue.len()
    }

    /// Returns whether no message waits in memory.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns whether no more messages must be read from the store.
    pub const fn is_full(&self) -> bool {
        self.len() >= HIGH
    }

    /// Returns the trust in the site.
    pub const fn trust(&self) -> Trust {
        self.window.trust()
    }

    /// Returns whether a message at this position may be only in the store.
    pub fn covers(&self, place: Place) -> bool {
        self.spilled.covers(place)
    }

    /// Returns the number of kept connections that no started message will use.
    pub fn idle_connections(&self) -> usize {
        self.kept.saturating_sub(self.slots.len() - self.slots.connected())
    }

    /// Returns the time at which the next message may start, if it is known.
    pub const fn next_wake(&self) -> Option<Duration> {
        self.turn_at
    }

    /// Returns whether a message of another account than `account` could start instead of one that waits for a
    /// connection.
    pub fn has_other(&self, account: AccountId, moment: Moment) -> bool {
        let is_probed = self.window.state() == WindowState::Probing;
        let may = |other: &AccountId| {
            // The mail of an account that alone caused the backoff is not a better probe.
            let is_startable = if is_probed { self.blamed != Some(*other) } else { self.allows(other, moment) };
            *other != account && is_startable && !self.queue.lets_pass(other, moment.machine)
        };
        self.queue.has_of(may, self.marketing_slots(moment.wall) > 0)
    }

    /// Returns whether messages may be spilled.
    pub const fn may_spill(&self) -> bool {
        self.may_spill
    }

    /// Returns the weight of the destination: the one with the greatest weight spills first.
    pub fn weight(&self) -> (bool, usize) {
        (self.len() > LONG && self.window.state() != WindowState::Open, self.len())
    }

    /// Returns whether there is no state to keep.
    pub fn is_idle(&self, now: Timestamp) -> bool {
        let is_used = self.slots.len() > 0 || !self.is_empty() || self.kept > 0 || !self.spilled.is_empty();
        !is_used && self.held_until(now).is_none()
    }

    /// Returns the end of the site's throttling, if it is in the future.
    fn held_until(&self, now: Timestamp) -> Option<Timestamp> {
        match self.window.state() {
            WindowState::BackedOff(until) => Some(until).filter(|until| *until > now),
            WindowState::Probing | WindowState::Open => None,
        }
    }

    /// Returns the operator's view.
    pub fn view(&self, now: Timestamp) -> View {
        View { in_flight: self.slots.len(), held_until: self.held_until(now), last_answer: self.last_answer.clone() }
    }

    /// Returns the obstacle to sending the next message of `account` now.
    pub fn obstacle(&self, account: &AccountId, moment: Moment) -> Obstacle {
        let now = moment.wall;
        if let Some(since) = self.window.closed_at() {
            return Obstacle::Throttled { since, until: self.held_until(now), last_answer: self.last_answer.clone() };
        }
        let wait = self.spacing_wait(moment).max(self.requested.wait_of(account, moment));
        if !wait.is_zero() {
            return Obstacle::Paced(now + wait);
        }
        if self.slots.len() < self.connections(now) && self.allows(account, moment) {
            return Obstacle::Nothing;
        }
        if self.slots.connected() == 0 {
            return Obstacle::Unconnected;
        }
        let held = [self.slots.of(account), self.slots.len()];
        self.requested.fewer_until(account, held, now).map_or(Obstacle::Window, Obstacle::Fewer)
    }
}
