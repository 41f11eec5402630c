//! Throttles for many names and clients in bounded memory.
//!
//! ```text
//! below its limit   oldest attempt first   evicted early if the table is full
//! at its limit      first to expire first  removed when it expires, never earlier
//! ```
//!
//! An attacker who fails under invented names evicts entries that do not block anyone yet, but never an entry
//! that does. If every entry is at its limit, names and clients without an entry share one: guessing stays limited, and
//! so does memory. Filling the table takes more failures within the window than passwords can be hashed in it, and a
//! known browser has its own entry.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use super::throttle::{Throttle, TooManyFailures};

/// Maximum number of attempts in the window for all names and clients that share an entry because the table is full.
const SHARED_LIMIT: usize = 50;

/// Key of an entry: the hash of a name, a client or a browser.
pub type ThrottleKey = [u8; 32];

/// The throttles.
#[derive(Debug)]
pub struct ThrottleTable {
    most: usize,
    entries: HashMap<ThrottleKey, Entry>,
    /// The entries below their limit, ordered by newest attempt.
    below: BTreeSet<(Duration, ThrottleKey)>,
    /// The entries at their limit, ordered by the time at which they fall below it.
    at_limit: BTreeSet<(Duration, ThrottleKey)>,
    /// The entry that names and clients without their own entry share while the table is full.
    shared: Throttle,
}

#[derive(Debug)]
struct Entry {
    limit: usize,
    throttle: Throttle,
}

impl ThrottleTable {
    /// Creates a table of at most `most` entries.
    pub fn new(most: usize) -> Self {
        Self {
            most,
            entries: HashMap::new(),
            below: BTreeSet::new(),
            at_limit: BTreeSet::new(),
            shared: Throttle::default(),
        }
    }

    /// Starts an attempt of `key` at `now`, if fewer than `limit` have failed in the window or are in progress.
    ///
    /// # Errors
    /// [`TooManyFailures`] if that many have failed or are in progress.
    pub fn attempt(&mut self, key: ThrottleKey, limit: usize, now: Duration) -> Result<(), TooManyFailures> {
        self.expire(now);
        let mut entry = match self.take_out(&key) {
            Some(entry) => entry,
            None if self.has_place() => Entry { limit, throttle: Throttle::default() },
            None => return self.shared.attempt(SHARED_LIMIT, now),
        };
        let begun = entry.throttle.attempt(entry.limit, now);
        self.put_in(key, entry);
        begun
    }

    /// Removes the attempt of `key` that started at `begun`, so that it does not count.
    pub fn take_back(&mut self, key: &ThrottleKey, begun: Duration) {
        match self.take_out(key) {
            Some(mut entry) => {
                entry.throttle.take_back(begun);
                self.put_in(*key, entry);
            }
            None => self.shared.take_back(begun),
        }
    }

    /// Returns whether there is a place for one more entry. If the table is full, evicts the entry below its limit with
    /// the oldest attempts.
    fn has_place(&mut self) -> bool {
        if self.entries.len() < self.most {
            return true;
        }
        let Some((_, key)) = self.below.pop_first() else { return false };
        self.entries.remove(&key);
        true
    }

    /// Removes or moves the entries whose attempts have expired at `now`.
    fn expire(&mut self, now: Duration) {
        while let Some((until, key)) = self.at_limit.first().copied().filter(|(until, _)| *until <= now) {
            self.at_limit.remove(&(until, key));
            if let Some(mut entry) = self.entries.remove(&key) {
                entry.throttle.forget(now);
                self.put_in(key, entry);
            }
        }
        while let Some((newest, key)) = self.below.first().copied() {
            if self.entries.get(&key).is_some_and(|entry| !entry.throttle.is_idle(now)) {
                break;
            }
            self.below.remove(&(newest, key));
            self.entries.remove(&key);
        }
    }

    fn take_out(&mut self, key: &ThrottleKey) -> Option<Entry> {
        let entry = self.entries.remove(key)?;
        let (is_at_limit, time) = entry.place();
        let set = if is_at_limit { &mut self.at_limit } else { &mut self.below };
        set.remove(&(time, *key));
        Some(entry)
    }

    fn put_in(&mut self, key: ThrottleKey, entry: Entry) {
        if entry.throttle.count() == 0 {
            return;
        }
        let (is_at_limit, time) = entry.place();
        let set = if is_at_limit { &mut self.at_limit } else { &mut self.below };
        set.insert((time, key));
        self.entries.insert(key, entry);
    }
}

impl Entry {
    /// Returns whether the entry is at its limit, and its position in that order.
    fn place(&self) -> (bool, Duration) {
        let is_at_limit = self.throttle.count() >= self.limit;
        let time = if is_at_limit { self.throttle.free_at(self.limit) } else { self.throttle.newest() };
        (is_at_limit, time)
    }
}

#[cfg(test)]
mod tests {
    use super::super::throttle::WINDOW;
    use super::*;
    use proptest::prelude::*;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn key(name: u16) -> ThrottleKey {
        let mut key = [0; 32];
        key[..2].copy_from_slice(&name.to_be_bytes());
        key
    }

    fn closed(table: &mut ThrottleTable, name: u16, now: Duration) {
        for _ in 0..3 {
            table.attempt(key(name), 3, now).unwrap();
        }
    }

    #[test]
    fn invented_names_never_evict_an_entry_at_its_limit() {
        let mut table = ThrottleTable::new(10);
        closed(&mut table, 1, at(0));
        for name in 100..9000 {
            table.attempt(key(name), 3, at(1)).unwrap();
        }
        assert_eq!(table.attempt(key(1), 3, at(2)).unwrap_err().retry_after_secs, 898);
        assert_eq!(table.entries.len(), 10);
        assert!(table.attempt(key(1), 3, at(900)).is_ok());
    }

    #[test]
    fn the_entry_below_its_limit_with_the_oldest_attempts_is_evicted_first() {
        let mut table = ThrottleTable::new(2);
        for (name, second) in [(1, 0), (2, 1), (1, 2), (3, 3)] {
            table.attempt(key(name), 3, at(second)).unwrap();
        }
        assert!(table.entries.contains_key(&key(1)) && !table.entries.contains_key(&key(2)));
    }

    #[test]
    fn if_all_entries_are_at_their_limit_new_names_share_one() {
        let mut table = ThrottleTable::new(2);
        closed(&mut table, 1, at(0));
        closed(&mut table, 2, at(0));
        let admitted = (100..300).filter(|name| table.attempt(key(*name), 3, at(1)).is_ok()).count();
        assert_eq!((admitted, table.entries.len()), (SHARED_LIMIT, 2));
        table.take_back(&key(100), at(1));
        assert!(table.attempt(key(300), 3, at(1)).is_ok(), "one attempt was removed");
        assert!(table.attempt(key(1), 3, at(1)).is_err() && table.attempt(key(2), 3, at(1)).is_err());
        assert!(table.attempt(key(301), 3, at(900)).is_ok());
    }

    #[test]
    fn a_removed_attempt_does_not_count() {
        let mut table = ThrottleTable::new(2);
        for second in 0..50 {
            table.attempt(key(1), 3, at(second)).unwrap();
            table.take_back(&key(1), at(second));
        }
        assert!(table.entries.is_empty() && table.below.is_empty() && table.at_limit.is_empty());
    }

    proptest! {
        #[test]
        fn memory_is_bounded_and_a_blocking_entry_keeps_blocking(
            steps in prop::collection::vec((0_u16..12, 0_u64..400, any::<bool>()), 0..300),
        ) {
            let mut table = ThrottleTable::new(5);
            let mut now = Duration::ZERO;
            let mut closed_until: HashMap<u16, Duration> = HashMap::new();
            for (name, wait, is_taken_back) in steps {
                now += at(wait / 8);
                let outcome = table.attempt(key(name), 2, now);
                let is_closed = closed_until.get(&name).is_some_and(|until| now < *until);
                prop_assert!(outcome.is_err() || !is_closed, "{} at {:?}", name, now);
                if outcome.is_ok() && is_taken_back {
                    table.take_back(&key(name), now);
                }
                closed_until = table.at_limit.iter().map(|(until, key)| (u16::from_be_bytes([key[0], key[1]]), *until)).collect();
                prop_assert!(table.entries.len() <= 5);
                prop_assert_eq!(table.entries.len(), table.below.len() + table.at_limit.len());
                prop_assert!(closed_until.values().all(|until| *until <= now + WINDOW));
            }
        }
    }
}
