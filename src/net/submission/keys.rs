//! Counts the connections on which each API key has logged in. Each [`KeyPass`] is one of them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::base::id::KeyId;

/// The counts.
pub(super) struct Keys {
    counts: Arc<Mutex<HashMap<KeyId, usize>>>,
    max: usize,
}

/// A permit for one connection of a key, released when it is dropped.
pub(super) struct KeyPass {
    counts: Arc<Mutex<HashMap<KeyId, usize>>>,
    key: KeyId,
}

impl Keys {
    /// Allows `max` connections per key.
    pub(super) fn new(max: usize) -> Self {
        Self { counts: Arc::default(), max }
    }

    /// Returns a permit for one more connection of `key`, if the limit allows it.
    pub(super) fn enter(&self, key: KeyId) -> Option<KeyPass> {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(key).or_default();
        if *count >= self.max {
            return None;
        }
        *count += 1;
        Some(KeyPass { counts: Arc::clone(&self.counts), key })
    }
}

impl Drop for KeyPass {
    fn drop(&mut self) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let is_last = counts.get_mut(&self.key).is_none_or(|count| {
            *count = count.saturating_sub(1);
            *count == 0
        });
        if is_last {
            counts.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::Ulid;

    #[test]
    fn each_key_has_its_own_count_and_permits_are_released() {
        let keys = Keys::new(2);
        let (one, other) = (KeyId(Ulid([1; 16])), KeyId(Ulid([2; 16])));
        let first = keys.enter(one).unwrap();
        let _second = keys.enter(one).unwrap();
        assert!(keys.enter(one).is_none() && keys.enter(other).is_some());
        drop(first);
        assert!(keys.enter(one).is_some());
        assert_eq!(keys.counts.lock().unwrap().len(), 1);
    }
}
