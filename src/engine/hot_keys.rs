//! In-memory cache of API keys in use, so that authenticating a request needs no read of the store.
//!
//! An entry is a key's row in the store. It is valid only while the key has not changed since it was read
//! ([`KeyChanges`]), so an entry never survives a revocation. The caller checks the expiry at each use. Only existing
//! keys are cached, so guessed keys take no memory.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use crate::base::id::AccountId;
use crate::domain::api_key::ApiKey;
use crate::store::key_changes::{KeyChanges, KeyStamp};
use crate::store::row::suspension::SuspensionRow;

/// Maximum number of cached keys; each takes some hundred bytes.
const KEYS_MAX: usize = 8192;

/// The cache.
pub(super) struct HotKeys {
    by_hash: RwLock<HashMap<[u8; 32], HotKey>>,
    most: usize,
}

/// A key's row and the stamp of its read.
#[derive(Clone)]
pub(super) struct HotKey {
    pub(super) account: AccountId,
    pub(super) key: Arc<ApiKey>,
    /// The suspension of its account.
    pub(super) suspension: Option<Arc<SuspensionRow>>,
    /// The stamp from before the rows were read.
    pub(super) stamp: KeyStamp,
}

impl Default for HotKeys {
    fn default() -> Self {
        Self { by_hash: RwLock::default(), most: KEYS_MAX }
    }
}

impl HotKeys {
    /// Returns the key with this hash, if it is cached and has not changed since.
    pub(super) fn get(&self, hash: &[u8; 32], changes: &KeyChanges) -> Option<HotKey> {
        let by_hash = self.by_hash.read().unwrap_or_else(PoisonError::into_inner);
        let found = by_hash.get(hash)?;
        (changes.stamp(found.account, found.key.id) == found.stamp).then(|| found.clone())
    }

    /// Caches a key. A full cache is cleared first; keys in use are soon cached again.
    pub(super) fn put(&self, hot: HotKey) {
        let mut by_hash = self.by_hash.write().unwrap_or_else(PoisonError::into_inner);
        if by_hash.len() >= self.most && !by_hash.contains_key(&hot.key.hash) {
            by_hash.clear();
        }
        by_hash.insert(hot.key.hash, hot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::{KeyId, Ulid};
    use crate::base::time::Timestamp;
    use crate::domain::api_key::Scopes;

    #[test]
    fn the_cache_holds_at_most_its_maximum_of_keys() {
        let keys = HotKeys { by_hash: RwLock::default(), most: 3 };
        let changes = KeyChanges::default();
        for number in 0..10_u8 {
            let key = ApiKey {
                id: KeyId(Ulid([number; 16])),
                name: String::new(),
                prefix: String::new(),
                hash: [number; 32],
                stream: None,
                scopes: Scopes::ALL,
                created_at: Timestamp::from_millis(0),
                last_used_at: None,
                expires_at: None,
                revoked_at: None,
            };
            let account = AccountId(Ulid([1; 16]));
            let stamp = changes.stamp(account, key.id);
            keys.put(HotKey { account, stamp, key: Arc::new(key), suspension: None });
            assert!(keys.get(&[number; 32], &changes).is_some());
            assert!(keys.by_hash.read().unwrap().len() <= 3);
        }
        assert!(keys.get(&[0; 32], &changes).is_none());
    }
}
