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
        let mut senders = self.senders();
        senders.retain(|_, sender| !sender.is_closed());
        senders.entry(account).or_insert_with(|| watch::channel(()).0).subscribe()
    }

    /// Notifies the followers of `accounts`. The writer calls this after the sync.
    pub(super) fn notify(&self, accounts: &BTreeSet<AccountId>) {
        if accounts.is_empty() {
            return;
        }
        let senders = self.senders();
        for sender in accounts.iter().filter_map(|account| senders.get(account)) {
            sender.send_replace(());
        }
    }

    fn senders(&self) -> MutexGuard<'_, HashMap<AccountId, watch::Sender<()>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::Ulid;

    #[test]
    fn notifies_only_the_named_account_and_drops_notifiers_without_followers() {
        let (notifier, account, other) =
            (AccountNotifier::default(), AccountId(Ulid([1; 16])), AccountId(Ulid([2; 16])));
        let (first, second) = (notifier.listen(account), notifier.listen(account));
        notifier.notify(&BTreeSet::from([other]));
        assert!(!first.has_changed().unwrap());
        notifier.notify(&BTreeSet::from([account, other]));
        assert!(first.has_changed().unwrap() && second.has_changed().unwrap());
        drop((first, second));
        let _listens = notifier.listen(other);
        assert_eq!(notifier.senders().len(), 1);
    }
}
