//! Spilled messages: those that do not fit into memory. They are only in the store, with their timers. Memory has the
//! position of the first one, and the time at which the first of them expires.

use std::time::Duration;

use super::QueuedMessage;
use crate::base::id::{AccountId, MessageId};
use crate::base::time::Timestamp;

/// Spilled messages that expire within this interval end together, so that the store is not read for each of them.
const END_INTERVAL: Duration = Duration::from_secs(60);

/// Position of a message among all waiting ones: by due time first, like the store's timers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// Due time of the message.
    pub due: Timestamp,
    /// Account.
    pub account: AccountId,
    /// The message.
    pub id: MessageId,
}

/// Some spilled messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Spill {
    /// The earliest position of a message among them, or a position before it.
    pub from: Place,
    /// The earliest expiry of a message among them, or a time before it.
    pub ends_at: Timestamp,
}

impl Spill {
    /// Creates the set of one message.
    pub const fn of(message: &QueuedMessage) -> Self {
        Self { from: message.place, ends_at: message.give_up_at }
    }

    /// Returns the union of these messages and `other`.
    #[must_use]
    pub fn and(self, other: Option<Self>) -> Self {
        other.map_or(self, |other| Self { from: self.from.min(other.from), ends_at: self.ends_at.min(other.ends_at) })
    }

    /// Returns the time at which the expired messages are read.
    fn reads_at(self) -> Timestamp {
        let interval = u64::try_from(END_INTERVAL.as_millis()).unwrap_or(u64::MAX);
        Timestamp::from_millis(self.ends_at.as_millis().div_ceil(interval).saturating_mul(interval))
    }
}

/// The spilled messages of one queue, and whether they are being read.
#[derive(Debug, Clone, Default)]
pub struct SpillArea {
    spill: Option<Spill>,
    is_reading: bool,
    /// Whether a requested wake-up for reading is outstanding.
    is_called: bool,
}

impl SpillArea {
    /// Adds messages. Returns the latest time for reading them, if it has changed.
    pub fn add(&mut self, spill: Spill) -> Option<Timestamp> {
        let before = self.spill.map(Spill::reads_at);
        let spill = spill.and(self.spill);
        self.spill = Some(spill);
        Some(spill.reads_at()).filter(|at| before != Some(*at))
    }

    /// Returns whether no message is spilled or being read.
    pub const fn is_empty(&self) -> bool {
        self.spill.is_none() && !self.is_reading
    }

    /// Returns whether the spilled messages are being read.
    pub const fn is_reading(&self) -> bool {
        self.is_reading
    }

    /// Returns whether a message at `place` may be spilled.
    pub fn covers(&self, place: Place) -> bool {
        self.spill.is_some_and(|spill| spill.from <= place)
    }

    /// Returns whether the spilled messages must be read now: the queue has space, or a message has expired.
    pub fn is_due(&self, has_room: bool, now: Timestamp) -> bool {
        !self.is_reading && self.spill.is_some_and(|spill| has_room || spill.reads_at() <= now)
    }

    /// Returns whether a wake-up must be requested, if they must be read now.
    pub const fn calls(&mut self) -> bool {
        !std::mem::replace(&mut self.is_called, true)
    }

    /// Records that the wake-up is due.
    pub const fn woken(&mut self) {
        self.is_called = false;
    }

    /// Begins to read the spilled messages.
    pub const fn begin_reading(&mut self) -> Option<Spill> {
        self.is_reading = self.spill.is_some();
        self.spill.take()
    }

    /// Ends reading. `rest` is still spilled. Returns the same as [`Self::add`].
    pub fn end_reading(&mut self, rest: Option<Spill>) -> Option<Timestamp> {
        self.is_reading = false;
        rest.and_then(|rest| self.add(rest))
    }
}
