//! Accounts whose attempts are blocked while `dev` erases their rows (contract 12.2). Their new attempts don't start,
//! and running attempts end first. So nothing from before the reset appears later.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::base::id::AccountId;

/// Blocked accounts, and running webhook requests.
#[derive(Clone, Default)]
pub struct BlockedAccounts(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Notify,
    has_erased: AtomicBool,
}

#[derive(Default)]
struct State {
    blocked: HashSet<AccountId>,
    posting: HashMap<AccountId, usize>,
}

/// Blocks an account until this value is dropped.
pub struct AccountBlock {
    accounts: BlockedAccounts,
    account: AccountId,
}

/// A running webhook request of an account, until it is dropped.
pub struct Posting {
    accounts: BlockedAccounts,
    account: AccountId,
}

impl BlockedAccounts {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Blocks `account` from now on.
    pub fn block(&self, account: AccountId) -> AccountBlock {
        self.0.has_erased.store(true, Relaxed);
        self.state().blocked.insert(account);
        self.0.changed.notify_waiters();
        AccountBlock { accounts: self.clone(), account }
    }

    /// Returns whether any account was ever blocked. If so, rows of work in memory may have been erased since.
    pub fn has_erased(&self) -> bool {
        self.0.has_erased.load(Relaxed)
    }

    /// Waits until `is_so` holds.
    async fn until(&self, is_so: impl Fn(&State) -> bool) {
        loop {
            // Subscribe before the check. Otherwise a change in between would be missed.
            let changed = self.0.changed.notified();
            if is_so(&self.state()) {
                return;
            }
            changed.await;
        }
    }

    /// Waits while `account` is blocked.
    pub async fn until_unblocked(&self, account: AccountId) {
        self.until(|state| !state.blocked.contains(&account)).await;
    }

    /// Waits until `account` is blocked.
    pub async fn until_blocked(&self, account: AccountId) {
        self.until(|state| state.blocked.contains(&account)).await;
    }

    /// Waits until `account` has no running webhook request.
    pub async fn until_idle(&self, account: AccountId) {
        self.until(|state| !state.posting.contains_key(&account)).await;
    }

    /// Registers a webhook request of `account`, once the account is not blocked.
    pub async fn post_when_unblocked(&self, account: AccountId) -> Posting {
        loop {
            if let Some(posting) = self.post(account) {
                return posting;
            }
            self.until_unblocked(account).await;
        }
    }

    /// Registers a webhook request of `account`; `None` if the account is blocked.
    fn post(&self, account: AccountId) -> Option<Posting> {
        let mut state = self.state();
        if state.blocked.contains(&account) {
            return None;
        }
        *state.posting.entry(account).or_default() += 1;
        Some(Posting { accounts: self.clone(), account })
    }
}

impl Drop for AccountBlock {
    fn drop(&mut self) {
        self.accounts.state().blocked.remove(&self.account);
        self.accounts.0.changed.notify_waiters();
    }
}

impl Drop for Posting {
    fn drop(&mut self) {
        let mut state = self.accounts.state();
        if let Some(count) = state.posting.get_mut(&self.account) {
            *count -= 1;
            if *count == 0 {
                state.posting.remove(&self.account);
                drop(state);
                self.accounts.0.changed.notify_waiters();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn blocking_waits_for_running_requests_and_prevents_new_ones() {
        let accounts = BlockedAccounts::default();
        let account = AccountId::default();
        let posting = accounts.post(account).unwrap();
        let blocked = accounts.block(account);
        assert!(accounts.post(account).is_none());
        accounts.until_blocked(account).await;
        let ((), ()) = tokio::join!(accounts.until_idle(account), async { drop(posting) });
        let ((), ()) = tokio::join!(accounts.until_unblocked(account), async { drop(blocked) });
        assert!(accounts.post(account).is_some());
    }
}
