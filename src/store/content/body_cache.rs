//! Body cache: the bodies, as sent, of messages accepted a moment ago. Most messages leave at once, and their bodies
//! then need not be read, opened and decompressed. The cache is bounded, and nothing depends on it: on a miss the body
//! is read from disk.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use crate::base::id::MessageId;
use crate::base::time::Timestamp;

/// Maximum length of a cached body. A longer one would evict many others.
const BODY_BYTES_MAX: usize = 256 * 1024;

/// The body cache.
pub(super) struct BodyCache {
    kept: Mutex<CachedBodies>,
    /// Maximum size of all cached bodies.
    bytes_max: usize,
}

#[derive(Default)]
struct CachedBodies {
    /// Bodies with the end of their bucket. Identifiers ascend, so the first is the oldest.
    bodies: BTreeMap<MessageId, (Timestamp, Vec<u8>)>,
    bytes: usize,
}

impl CachedBodies {
    /// Drops the oldest body; false if the cache is empty.
    fn drop_oldest(&mut self) -> bool {
        let Some((_, (_, body))) = self.bodies.pop_first() else { return false };
        self.bytes -= body.capacity();
        true
    }
}

impl BodyCache {
    /// Creates an empty cache that holds at most `bytes_max` bytes.
    pub(super) fn new(bytes_max: usize) -> Self {
        Self { kept: Mutex::default(), bytes_max }
    }

    /// Adds the body of `message` in `bucket`. Older bodies are dropped if it does not fit.
    pub(super) fn keep(&self, bucket: Timestamp, message: MessageId, body: Vec<u8>) {
        if body.capacity() > BODY_BYTES_MAX {
            return;
        }
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.bytes += body.capacity();
        // A repeated identifier replaces its body.
        kept.bytes -= kept.bodies.insert(message, (bucket, body)).map_or(0, |(_, replaced)| replaced.capacity());
        while kept.bytes > self.bytes_max && kept.drop_oldest() {}
    }

    /// Removes and returns the body of `message`.
    pub(super) fn take(&self, message: MessageId) -> Option<Vec<u8>> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, body) = kept.bodies.remove(&message)?;
        kept.bytes -= body.capacity();
        Some(body)
    }

    /// Drops the bodies of a bucket that has ended.
    pub(super) fn forget(&self, bucket: Timestamp) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.bodies.retain(|_, (of, _)| *of != bucket);
        kept.bytes = kept.bodies.values().map(|(_, body)| body.capacity()).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::Ulid;

    const BYTES_MAX: usize = 4 << 20;

    fn message(number: u128) -> MessageId {
        MessageId(Ulid(number.to_be_bytes()))
    }

    #[test]
    fn a_body_is_taken_once_and_the_oldest_are_evicted() {
        let fresh = BodyCache::new(BYTES_MAX);
        let count = BYTES_MAX / BODY_BYTES_MAX;
        for number in 0..=count {
            fresh.keep(Timestamp::ZERO, message(number as u128), vec![0; BODY_BYTES_MAX]);
        }
        assert_eq!(fresh.take(message(0)), None);
        assert_eq!(fresh.take(message(1)).map(|body| body.len()), Some(BODY_BYTES_MAX));
        assert_eq!(fresh.take(message(1)), None);
        fresh.keep(Timestamp::ZERO, message(0), b"an older one".to_vec());
        assert_eq!(fresh.take(message(2)).map(|body| body.len()), Some(BODY_BYTES_MAX), "the cache has space for it");
        assert_eq!(fresh.take(message(0)).as_deref(), Some(&b"an older one"[..]));
    }

    #[test]
    fn a_repeated_identifier_replaces_its_body_without_leaking_space() {
        let fresh = BodyCache::new(BYTES_MAX);
        for _ in 0..=2 * BYTES_MAX / BODY_BYTES_MAX {
            fresh.keep(Timestamp::ZERO, message(1), vec![0; BODY_BYTES_MAX]);
        }
        fresh.keep(Timestamp::ZERO, message(2), b"another".to_vec());
        assert_eq!(fresh.kept.lock().unwrap().bytes, BODY_BYTES_MAX + b"another".len());
        assert_eq!(fresh.take(message(1)).map(|body| body.len()), Some(BODY_BYTES_MAX));
        assert_eq!(fresh.take(message(2)).as_deref(), Some(&b"another"[..]));
        assert_eq!(fresh.kept.lock().unwrap().bytes, 0);
    }

    #[test]
    fn long_and_expired_bodies_are_not_cached() {
        let fresh = BodyCache::new(BYTES_MAX);
        fresh.keep(Timestamp::ZERO, message(1), vec![0; BODY_BYTES_MAX + 1]);
        fresh.keep(Timestamp::from_millis(1), message(2), vec![0; 100]);
        fresh.keep(Timestamp::from_millis(2), message(3), vec![0; 100]);
        fresh.forget(Timestamp::from_millis(1));
        assert_eq!((fresh.take(message(1)), fresh.take(message(2))), (None, None));
        assert_eq!(fresh.take(message(3)), Some(vec![0; 100]));
        assert_eq!(fresh.kept.lock().unwrap().bytes, 0);
    }
}
