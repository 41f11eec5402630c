//! Messages of no destination that memory has no room for: they wait for names, or are paused. They are in the store
//! alone. Memory has the place of the first one, and the time at which the first of them ends.

use super::destination::{Spill, SpillArea};
use crate::base::time::Timestamp;

/// The messages.
#[derive(Debug, Default)]
pub struct UnassignedMessages {
    spilled: SpillArea,
    /// Whether they are to be read once more after the present reading.
    reads_again: bool,
}

impl UnassignedMessages {
    /// Adds messages. Returns when they are to be read at the latest, where that has changed.
    pub fn add(&mut self, spill: Spill) -> Option<Timestamp> {
        self.spilled.add(spill)
    }

    /// Whether there is nothing to read, and nothing is being read.
    pub const fn is_empty(&self) -> bool {
        self.spilled.is_empty()
    }

    /// Begins to read. While another reading goes on, the messages are read once more after it.
    pub const fn begin_reading(&mut self) -> Option<Spill> {
        self.reads_again = self.spilled.is_reading();
        if self.reads_again { None } else { self.spilled.begin_reading() }
    }

    /// Reading ends; `rest` is still in the store alone. Returns when to read again.
    pub fn end_reading(&mut self, rest: Option<Spill>, now: Timestamp) -> Option<Timestamp> {
        let again = std::mem::take(&mut self.reads_again).then_some(now);
        let reads_at = self.spilled.end_reading(rest);
        again.or(reads_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::{AccountId, MessageId};
    use crate::machine::destination::Place;

    const NOW: Timestamp = Timestamp::from_millis(60_000);

    #[test]
    fn a_call_during_a_reading_has_the_messages_read_once_more() {
        let place = Place { due: NOW, account: AccountId::default(), id: MessageId::default() };
        let spill = Spill { from: place, ends_at: Timestamp::from_millis(600_000) };
        let mut unassigned = UnassignedMessages::default();
        assert!(unassigned.is_empty() && unassigned.begin_reading().is_none());
        assert_eq!(unassigned.add(spill), Some(Timestamp::from_millis(600_000)));
        assert_eq!(unassigned.begin_reading(), Some(spill));
        assert_eq!((unassigned.begin_reading(), unassigned.is_empty()), (None, false));
        assert_eq!(unassigned.end_reading(Some(spill), NOW), Some(NOW));
        assert_eq!(unassigned.begin_reading(), Some(spill));
        assert_eq!((unassigned.end_reading(None, NOW), unassigned.is_empty()), (None, true));
    }
}
