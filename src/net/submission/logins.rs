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

    /// Returns a permit for one more connection of `account` by `key`. Once less than a quarter of all connections is
    /// `free`, an account with a sixteenth gets no more: the rest is for others.
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
        if free < self.max / 4 && of_account >= self.max / 16 {
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
    fn a_few_accounts_never_hold_all_connections() {
        const MAX: usize = 512;
        let logins = Logins::new(MAX, MAX);
        let mut held = Vec::new();
        let mut enter = |account| {
            let free = MAX - held.len() - 1;
            let permit = logins.enter(AccountId(Ulid([account; 16])), key(account), free)?;
            held.push(permit);
            Ok(held.len())
        };
        let mut fill = |account| std::iter::from_fn(|| enter(account).ok()).last();
        assert_eq!(fill(1), Some(384), "a single account gets most of them");
        assert_eq!([2, 3, 4].map(&mut fill), [Some(416), Some(448), Some(480)]);
        assert!(matches!(enter(1), Err(TooManyLogins::OfAccount)));
        assert!(enter(5).is_ok());
        drop(held);
        assert!(logins.counts.lock().unwrap().by_account.is_empty());
    }
}
