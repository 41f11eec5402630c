//! The content that was destroyed at its deadline. It stays deleted if the clock is set back afterwards, when its
//! deadline lies ahead again.

use serde::{Deserialize, Serialize};

use super::Row;
use crate::base::id::{MessageId, Ulid};
use crate::base::time::Timestamp;
use crate::store::schema::Table;

/// Maximum number of steps back of the clock that are distinguished. A further one drops the first.
const STEPS_MAX: usize = 64;

/// The destroyed content: one entry, and one more for each step back of the clock to before an entry's deadline. One of
/// the facts about the store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DestroyedContent(Vec<Destroyed>);

/// Content with a deadline up to `until`, of messages accepted before it was destroyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Destroyed {
    until: Timestamp,
    last_message: Ulid,
}

impl DestroyedContent {
    /// Adds the content with a deadline up to `until`. `last_message` is the last message that was accepted.
    pub fn add(&mut self, until: Timestamp, last_message: Ulid) {
        self.0.retain(|earlier| earlier.until > until);
        self.0.push(Destroyed { until, last_message });
        if self.0.len() > STEPS_MAX {
            self.0.remove(0);
        }
    }

    /// Returns whether the content of `message`, with the deadline `end`, was destroyed.
    pub fn has(&self, end: Timestamp, message: MessageId) -> bool {
        self.0.iter().any(|destroyed| end <= destroyed.until && message.0 <= destroyed.last_message)
    }

    /// Returns the latest deadline of destroyed content.
    pub fn latest(&self) -> Timestamp {
        self.0.first().map_or(Timestamp::ZERO, |destroyed| destroyed.until)
    }
}

impl Row for DestroyedContent {
    const TABLE: Table = Table::Meta;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(hour: u64) -> Timestamp {
        Timestamp::from_millis(hour * 3_600_000)
    }

    fn id(number: u8) -> MessageId {
        MessageId(Ulid([number; 16]))
    }

    #[test]
    fn messages_accepted_after_a_step_back_are_not_destroyed_by_what_was_destroyed_before() {
        let mut destroyed = DestroyedContent::default();
        assert!(!destroyed.has(at(1), id(1)));
        destroyed.add(at(9), id(1).0);
        destroyed.add(at(10), id(2).0);
        assert!(destroyed.has(at(10), id(2)) && !destroyed.has(at(11), id(2)));
        // The clock goes back from 10 to 5. Message 3 has the deadline 8, and message 4 the deadline 6.
        assert!(!destroyed.has(at(8), id(3)));
        destroyed.add(at(6), id(4).0);
        assert!(destroyed.has(at(10), id(2)) && destroyed.has(at(6), id(4)) && !destroyed.has(at(8), id(3)));
        assert_eq!((destroyed.latest(), destroyed.0.len()), (at(10), 2));
        // The time of the first entry has come again: one entry covers both.
        destroyed.add(at(10), id(5).0);
        assert!(destroyed.has(at(8), id(3)));
        assert_eq!((destroyed.latest(), destroyed.0.len()), (at(10), 1));
    }

    #[test]
    fn the_number_of_entries_is_limited() {
        let mut destroyed = DestroyedContent::default();
        (0..100).for_each(|step: u8| destroyed.add(at(200 - u64::from(step)), id(step).0));
        assert_eq!(destroyed.0.len(), STEPS_MAX);
        assert!(destroyed.has(at(101), id(99)));
    }
}
