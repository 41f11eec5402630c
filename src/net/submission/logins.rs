//! Counts the connections on which each API key and each account has logged in. Each [`LoginPermit`] is one of them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::base::id::{AccountId, KeyId};

/// The counts.
pub(super) struct Logins {
    counts: Arc<Mutex<Counts>>,
    max_per_key: usize,
    max: usize,
}

#[derive(Default)]
struct Counts {
    by_key: HashMap<KeyId, usize>,
    by_account: HashMap<AccountId, usize>,
}

/// A permit for one connection of a key, released when it is dropped.
pub(super) struct LoginPermit {
    counts: Arc<Mutex<Counts>>,
    account: AccountId,
    key: KeyId,
}

/// The limit that prevents a login.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TooManyLogins {
    OfKey,
    OfAccount,
}

impl Logins {
    /// Allows `max_per_key` connections per key, of `max` in all.
    pub(super) fn new(max_per_key: usize, max: usize) -> Self {
        Self { counts: Arc::default(), max_per_key, max }
    }

    /// Returns a permit for one more connection of `account` by `key`. With half of all connections an account gets no
    /// more once only an eighth is `free`: the rest is for others.
    ///
    /// # Errors
    /// The limit that is reached.
    pub(super) fn enter(&self, account: AccountId, key: KeyId, free: usize) -> Result<LoginPermit, TooManyLogins> {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let of_key = counts.by_key.get(&key).copied().unwrap_or(0);
        let of_account = counts.by_account.get(&account).copied().unwrap_or(0);
        if of_key >= self.max_per_key {
            return Err(TooManyLogins::OfKey);
        }
        if of_account >= self.max / 2 && free < self.max / 8 {
            return Err(TooManyLogins::OfAccount);
        }
        counts.by_key.insert(key, of_key + 1);
        counts.by_account.insert(account, of_account + 1);
        Ok(LoginPermit { counts: Arc::clone(&self.counts), account, key })
    }
}

impl Drop for LoginPermit {
    fn drop(&mut self) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        decrease(&mut counts.by_key, self.key);
        decrease(&mut counts.by_account, self.account);
    }
}

fn decrease<K: std::hash::Hash + Eq>(counts: &mut HashMap<K, usize>, key: K) {
    let is_last = counts.get_mut(&key).is_none_or(|count| {
        *count = count.saturating_sub(1);
        *count == 0
    });
    if is_last {
        counts.remove(&key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::Ulid;

    const ACCOUNT: AccountId = AccountId(Ulid([7; 16]));

    fn key(number: u8) -> KeyId {
        KeyId(Ulid([number; 16]))
    }

    #[test]
    fn each_key_has_its_own_count_and_permits_are_released() {
        let logins = Logins::new(2, 100);
        let first = logins.enter(ACCOUNT, key(1), 50).unwrap();
        let _second = logins.enter(ACCOUNT, key(1), 50).unwrap();
        assert!(logins.enter(ACCOUNT, key(1), 50).is_err() && logins.enter(ACCOUNT, key(2), 50).is_ok());
        drop(first);
        assert!(logins.enter(ACCOUNT, key(1), 50).is_ok());
        assert_eq!(logins.counts.lock().unwrap().by_key.len(), 1);
    }

    #[test]
    fn an_account_with_half_of_all_connections_leaves_the_last_eighth_to_others() {
        let logins = Logins::new(100, 16);
        let held: Vec<_> = (0..8).map(|number| logins.enter(ACCOUNT, key(number), 1).unwrap()).collect();
        assert!(matches!(logins.enter(ACCOUNT, key(9), 1), Err(TooManyLogins::OfAccount)));
        assert!(logins.enter(AccountId(Ulid([8; 16])), key(9), 1).is_ok());
        assert!(logins.enter(ACCOUNT, key(9), 2).is_ok(), "no other needs them");
        drop(held);
        assert!(logins.counts.lock().unwrap().by_account.is_empty());
    }
}
