//! Paused messages: their account is suspended, or has paused its mail for their site. They are ordered by their
//! expiry.

use std::collections::BTreeMap;

use super::destination::{Place, QueuedMessage};
use crate::base::id::AccountId;
use crate::base::time::Timestamp;

/// Maximum number of paused messages in memory: some 10 MB. Tests use a smaller limit.
const MESSAGES_MAX: usize = if cfg!(test) { 64 } else { 65_536 };

/// The messages.
#[derive(Debug, Default)]
pub struct PausedMessages(BTreeMap<(Timestamp, Place), QueuedMessage>);

impl PausedMessages {
    /// Adds a message. Returns false if the limit is reached.
    pub fn add(&mut self, message: QueuedMessage) -> bool {
        let has_room = self.0.len() < MESSAGES_MAX;
        if has_room {
            self.0.insert((message.give_up_at, message.place), message);
        }
        has_room
    }

    /// Returns the earliest expiry.
    pub fn first_end(&self) -> Option<Timestamp> {
        self.0.first_key_value().map(|((end, _), _)| *end)
    }

    /// Removes the expired messages.
    pub fn take_ended(&mut self, now: Timestamp) -> Vec<QueuedMessage> {
        let mut ended = Vec::new();
        while let Some(entry) = self.0.first_entry().filter(|entry| entry.key().0 <= now) {
            ended.push(entry.remove());
        }
        ended
    }

    /// Removes the messages of an account.
    pub fn take_of(&mut self, account: AccountId) -> Vec<QueuedMessage> {
        self.0.extract_if(.., |_, message| message.place.account == account).map(|(_, message)| message).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::{MessageId, Ulid};
    use crate::domain::stream::Stream;

    fn message(n: u8) -> QueuedMessage {
        let (account, id) = (AccountId(Ulid([n % 2; 16])), MessageId(Ulid([n; 16])));
        let place = Place { due: Timestamp::ZERO, account, id };
        QueuedMessage { place, stream: Stream::Transactional, give_up_at: Timestamp::from_millis(u64::from(n)) }
    }

    #[test]
    fn messages_leave_at_their_end_or_with_their_account() {
        let mut paused = PausedMessages::default();
        assert!([5, 3, 4, 6].into_iter().all(|n| paused.add(message(n))));
        assert_eq!(paused.first_end(), Some(Timestamp::from_millis(3)));
        assert_eq!(paused.take_ended(Timestamp::from_millis(4)), [message(3), message(4)]);
        assert_eq!(paused.take_of(AccountId(Ulid([1; 16]))), [message(5)]);
        assert_eq!(paused.take_ended(Timestamp::MAX), [message(6)]);
        assert_eq!(paused.first_end(), None);
    }

    #[test]
    fn holds_at_most_the_maximum_number_of_messages() {
        let mut paused = PausedMessages::default();
        assert_eq!((0..100).filter(|n| paused.add(message(*n))).count(), MESSAGES_MAX);
    }
}
