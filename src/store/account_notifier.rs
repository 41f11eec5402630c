//! Change notifier: wakes the followers of an account's event log after each commit that appended one of its events or
//! revoked one of its keys.
//!
//! A notification says only that something changed; the follower reads a snapshot. Notifications that are not consumed
//! yet are merged, so nothing is queued.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use crate::base::id::AccountId;

/// Notifiers of the accounts that have followers.
#[derive(Default)]
pub struct AccountNotifier(Mutex<HashMap<AccountId, watch::Sender<()>>>);

impl AccountNotifier {
    /// Returns a receiver that is notified after every later commit that concerns the followers of `account`.
    pub fn listen(&self, account: AccountId) -> watch::Receiver<()> {
        let mut bells = self.bells();
        bells.retain(|_, bell| !bell.is_closed());
        bells.entry(account).or_insert_with(|| watch::channel(()).0).subscribe()
    }

    /// Notifies the followers of `accounts`. The writer calls this after the sync.
    pub(super) fn notify(&self, accounts: &BTreeSet<AccountId>) {
        if accounts.is_empty() {
            return;
        }
        let bells = self.bells();
        for bell in accounts.iter().filter_map(|account| bells.get(account)) {
            bell.send_replace(());
        }
    }

    fn bells(&self) -> MutexGuard<'_, HashMap<AccountId, watch::Sender<()>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::Ulid;

    #[test]
    fn notifies_only_the_named_account_and_drops_notifiers_without_followers() {
        let (bells, account, other) = (AccountNotifier::default(), AccountId(Ulid([1; 16])), AccountId(Ulid([2; 16])));
        let (first, second) = (bells.listen(account), bells.listen(account));
        bells.notify(&BTreeSet::from([other]));
        assert!(!first.has_changed().unwrap());
        bells.notify(&BTreeSet::from([account, other]));
        assert!(first.has_changed().unwrap() && second.has_changed().unwrap());
        drop((first, second));
        let _listens = bells.listen(other);
        assert_eq!(bells.bells().len(), 1);
    }
}
