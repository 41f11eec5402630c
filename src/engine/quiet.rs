//! Accounts that are kept quiet while `dev` erases their rows (contract 12.2). No attempt of theirs begins, and
//! attempts under way end first, so nothing from before the reset appears later.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::base::id::AccountId;

/// The accounts that are quiet, and the webhook requests that are under way.
#[derive(Clone, Default)]
pub struct QuietAccounts(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Notify,
    has_erased: AtomicBool,
}

#[derive(Default)]
struct State {
    quiet: HashSet<AccountId>,
    posting: HashMap<AccountId, usize>,
}

/// An account is quiet until this is dropped.
pub struct Quiet {
    accounts: QuietAccounts,
    account: AccountId,
}

/// A webhook request of an account that is under way, until this is dropped.
pub struct Posting {
    accounts: QuietAccounts,
    account: AccountId,
}

impl QuietAccounts {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps `account` quiet from now on.
    pub fn hush(&self, account: AccountId) -> Quiet {
        self.0.has_erased.store(true, Relaxed);
        self.state().quiet.insert(account);
        self.0.changed.notify_waiters();
        Quiet { accounts: self.clone(), account }
    }

    /// Whether an account was ever quiet: what waits in memory may have been erased since.
    pub fn has_erased(&self) -> bool {
        self.0.has_erased.load(Relaxed)
    }

    /// Waits until `is_so` says that the state is as wanted.
    async fn until(&self, is_so: impl Fn(&State) -> bool) {
        loop {
            // Asked for before the look, so that no change in between is missed.
            let changed = self.0.changed.notified();
            if is_so(&self.state()) {
                return;
            }
            changed.await;
        }
    }

    /// Waits while `account` is quiet.
    pub async fn spoken(&self, account: AccountId) {
        self.until(|state| !state.quiet.contains(&account)).await;
    }

    /// Waits until `account` is to be quiet.
    pub async fn hushed(&self, account: AccountId) {
        self.until(|state| state.quiet.contains(&account)).await;
    }

    /// Waits until no webhook request of `account` is under way.
    pub async fn ended(&self, account: AccountId) {
        self.until(|state| !state.posting.contains_key(&account)).await;
    }

    /// Notes a webhook request of `account`, once the account is not quiet.
    pub async fn post_when_spoken(&self, account: AccountId) -> Posting {
        loop {
            if let Some(posting) = self.post(account) {
                return posting;
            }
            self.spoken(account).await;
        }
    }

    /// Notes a webhook request of `account`; none where the account is quiet.
    fn post(&self, account: AccountId) -> Option<Posting> {
        let mut state = self.state();
        if state.quiet.contains(&account) {
            return None;
        }
        *state.posting.entry(account).or_default() += 1;
        Some(Posting { accounts: self.clone(), account })
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        self.accounts.state().quiet.remove(&self.account);
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
    async fn what_is_under_way_is_waited_for_and_nothing_new_begins() {
        let accounts = QuietAccounts::default();
        let account = AccountId::default();
        let posting = accounts.post(account).unwrap();
        let quiet = accounts.hush(account);
        assert!(accounts.post(account).is_none());
        accounts.hushed(account).await;
        let ((), ()) = tokio::join!(accounts.ended(account), async { drop(posting) });
        let ((), ()) = tokio::join!(accounts.spoken(account), async { drop(quiet) });
        assert!(accounts.post(account).is_some());
    }
}
