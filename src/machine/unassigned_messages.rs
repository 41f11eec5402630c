//! Unassigned messages: spilled messages without a destination, because they wait for lookups or are paused. They are
//! only in the store. Memory has the position of the first one, and the time at which the first of them expires.

use super::destination::{Spill, SpillArea};
use crate::base::time::Timestamp;

/// The messages.
#[derive(Debug, Default)]
pub struct UnassignedMessages {
    spilled: SpillArea,
    /// Whether the messages must be read once more after the current read.
    reads_again: bool,
}

impl UnassignedMessages {
    /// Adds messages. Returns the latest time for reading them, if it has changed.
    pub fn add(&mut self, spill: Spill) -> Option<Timestamp> {
        self.spilled.add(spill)
    }

    /// Returns whether there is nothing to read, and no read is running.
    pub const fn is_empty(&self) -> bool {
        self.spilled.is_empty()
    }

    /// Begins a read. If another one is running, the messages are read once more after it.
    pub const fn begin_reading(&mut self) -> Option<Spill> {
        self.reads_again = self.spilled.is_reading();
        if self.reads_again { None } else { self.spilled.begin_reading() }
    }

    /// Ends a read; `rest` is still only in the store. Returns the time of the next read.
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
    fn a_request_during_a_read_causes_another_read() {
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
