//! Change counters of API keys. They let callers cache keys outside the store without ever using a stale one.
//!
//! The writer counts once a batch is durable and before it answers. When a caller learns that a key is revoked, every
//! cached copy is therefore already stale. Every write to the table counts, regardless of the operation.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use super::schema::{self, Table};
use crate::base::id::{AccountId, KeyId};

/// Keys share counters, so that the number of keys is not limited. When a key changes, keys with the same counter are
/// looked up again too.
const COUNTERS: usize = 1024;

/// Counter of suspensions, which affect all keys of an account. They are rare enough to share one.
const SUSPENSIONS: usize = COUNTERS;

/// The counters.
#[derive(Debug)]
pub struct KeyChanges([AtomicU64; COUNTERS + 1]);

/// A version of a key's rows. It equals a later stamp if the key has not changed between them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyStamp(u64, u64);

impl Default for KeyChanges {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl KeyChanges {
    /// Returns the stamp of a key and of its account's suspension. A stamp taken before a snapshot is valid for the
    /// rows of that snapshot.
    pub fn stamp(&self, account: AccountId, key: KeyId) -> KeyStamp {
        let count = |counter: usize| self.0[counter].load(SeqCst);
        KeyStamp(count(counter(&schema::api_key(account, key))), count(SUSPENSIONS))
    }

    /// Counts the changes of a commit.
    pub(super) fn committed(&self, changed: &[usize]) {
        for counter in changed {
            self.0[*counter].fetch_add(1, SeqCst);
        }
    }
}

/// Returns the counter of a write to `table` at `row_key`, if there is one.
pub(super) fn changed(table: Table, row_key: &[u8]) -> Option<usize> {
    match table {
        Table::Keys => Some(counter(row_key)),
        Table::Suspensions => Some(SUSPENSIONS),
        _ => None,
    }
}

/// Returns the counter from the end of the identifier, which is random.
fn counter(row_key: &[u8]) -> usize {
    row_key.last_chunk().map_or(0, |end| usize::from(u16::from_be_bytes(*end)) % COUNTERS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::time::Timestamp;
    use crate::domain::api_key::{ApiKey, Scopes};
    use crate::store::op::account::{CreateKey, RenameKey, RevokeKey, TouchKey};
    use crate::store::testing::{START, TestStore};

    fn new_key() -> ApiKey {
        ApiKey {
            id: KeyId::default(),
            name: "app".to_owned(),
            prefix: "pr_live_".to_owned(),
            hash: [7; 32],
            stream: None,
            scopes: Scopes::ALL,
            created_at: Timestamp::ZERO,
            last_used_at: None,
            expires_at: None,
            revoked_at: None,
        }
    }

    #[test]
    fn a_change_is_counted_before_its_answer_and_nothing_else_is_counted() {
        let test = TestStore::new();
        let sender = test.sender();
        let account = sender.account;
        let key = test.done(CreateKey { account, key: new_key() }).id;
        let stamp = || test.store().key_changes().stamp(account, key);
        let made = stamp();
        sender.accept("b@example.net");
        assert!(test.commit(RevokeKey { account, key: KeyId::default() }).is_err());
        assert_eq!(stamp(), made);
        test.done(RenameKey { account, key, name: Some("new".to_owned()) });
        let renamed = stamp();
        test.done(TouchKey { account, key, at: START });
        let touched = stamp();
        test.done(RevokeKey { account, key });
        assert!(made != renamed && renamed != touched && touched != stamp());
    }
}
