//! Spilled messages: those that memory has no room for. They are in the store alone, with their timers as they are.
//! Memory has the place of the first one, and the time at which the first of them ends.

use std::time::Duration;

use super::QueuedMessage;
use crate::base::id::{AccountId, MessageId};
use crate::base::time::Timestamp;

/// Spilled messages whose time is over end within such an interval, so that they are not read for each of them.
const END_INTERVAL: Duration = Duration::from_secs(60);

/// The place of a message among all that wait: by due time first, like the timers of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// When the message was due.
    pub due: Timestamp,
    /// Its account.
    pub account: AccountId,
    /// The message.
    pub id: MessageId,
}

/// Some spilled messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Spill {
    /// None of them has an earlier place.
    pub from: Place,
    /// The earliest end of a message among them, or a time before it.
    pub ends_at: Timestamp,
}

impl Spill {
    /// This one message.
    pub const fn of(message: &QueuedMessage) -> Self {
        Self { from: message.place, ends_at: message.give_up_at }
    }

    /// These messages and `other`.
    #[must_use]
    pub fn and(self, other: Option<Self>) -> Self {
        other.map_or(self, |other| Self { from: self.from.min(other.from), ends_at: self.ends_at.min(other.ends_at) })
    }

    /// When the messages are read whose time is over.
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
    /// Whether a wake-up for reading was asked for that has not come yet.
    is_called: bool,
}

impl SpillArea {
    /// Adds messages. Returns when they are to be read at the latest, where that has changed.
    pub fn add(&mut self, spill: Spill) -> Option<Timestamp> {
        let before = self.spill.map(Spill::reads_at);
        let spill = spill.and(self.spill);
        self.spill = Some(spill);
        Some(spill.reads_at()).filter(|at| before != Some(*at))
    }

    /// Whether there is nothing spilled, and nothing being read.
    pub const fn is_empty(&self) -> bool {
        self.spill.is_none() && !self.is_reading
    }

    /// Whether they are being read.
    pub const fn is_reading(&self) -> bool {
        self.is_reading
    }

    /// Whether a message at `place` may be spilled.
    pub fn covers(&self, place: Place) -> bool {
        self.spill.is_some_and(|spill| spill.from <= place)
    }

    /// Whether it is time to read: the queue has room, or a message is at its end.
    pub fn is_due(&self, has_room: bool, now: Timestamp) -> bool {
        !self.is_reading && self.spill.is_some_and(|spill| has_room || spill.reads_at() <= now)
    }

    /// Whether a wake-up has to be asked for, where it is time to read.
    pub const fn calls(&mut self) -> bool {
        !std::mem::replace(&mut self.is_called, true)
    }

    /// The wake-up has come.
    pub const fn woken(&mut self) {
        self.is_called = false;
    }

    /// Begins to read what is spilled.
    pub const fn begin_reading(&mut self) -> Option<Spill> {
        self.is_reading = self.spill.is_some();
        self.spill.take()
    }

    /// Reading ends. `rest` is still spilled. Returns as [`Self::add`] does.
    pub fn end_reading(&mut self, rest: Option<Spill>) -> Option<Timestamp> {
        self.is_reading = false;
        rest.and_then(|rest| self.add(rest))
    }
}
