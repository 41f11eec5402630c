//! Slots of the started messages of a destination. Each message has one until it has ended.

use std::collections::BTreeMap;
use std::time::Duration;

use super::QueuedMessage;
use crate::base::id::AccountId;

/// Identifies a started message. Slots are never reused.
pub type Slot = u64;

/// The started messages.
#[derive(Debug, Clone, Default)]
pub(super) struct Slots {
    started: BTreeMap<Slot, StartedSlot>,
    last: Slot,
    marketing: usize,
    connected: usize,
}

#[derive(Debug, Clone)]
struct StartedSlot {
    message: QueuedMessage,
    /// Start of the attempt on the monotonic clock.
    at: Duration,
    /// Whether the message has a connection or is opening one.
    is_connected: bool,
}

impl Slots {
    pub(super) fn len(&self) -> usize {
        self.started.len()
    }

    /// Returns whether the message of `slot` has not ended.
    #[cfg(test)]
    pub(super) fn has(&self, slot: Slot) -> bool {
        self.started.contains_key(&slot)
    }

    pub(super) const fn marketing(&self) -> usize {
        self.marketing
    }

    /// Returns the number of messages with a connection.
    pub(super) const fn connected(&self) -> usize {
        self.connected
    }

    /// Returns the number of messages of an account.
    pub(super) fn of(&self, account: &AccountId) -> usize {
        self.started.values().filter(|started| started.message.place.account == *account).count()
    }

    /// Returns whether an account has a message.
    pub(super) fn has_of(&self, account: &AccountId) -> bool {
        self.started.values().any(|started| started.message.place.account == *account)
    }

    /// Returns the start of the message that started last.
    pub(super) fn last_start(&self) -> Option<Duration> {
        self.started.last_key_value().map(|(_, started)| started.at)
    }

    /// Returns the account and the start of a message that has not ended.
    pub(super) fn get(&self, slot: Slot) -> Option<(AccountId, Duration)> {
        self.started.get(&slot).map(|started| (started.message.place.account, started.at))
    }

    /// Returns the number of messages that began by `at` and that their accounts have beyond `share` messages each.
    pub(super) fn beyond(&self, share: usize, at: Duration) -> usize {
        let mut held = BTreeMap::<_, [usize; 2]>::new();
        for started in self.started.values() {
            let [all, old] = held.entry(started.message.place.account).or_default();
            *all += 1;
            *old += usize::from(started.at <= at);
        }
        held.into_values().map(|[all, old]| all.saturating_sub(share).min(old)).sum()
    }

    pub(super) fn add(&mut self, message: QueuedMessage, at: Duration) -> Slot {
        self.last += 1;
        self.marketing += usize::from(message.is_marketing());
        self.started.insert(self.last, StartedSlot { message, at, is_connected: false });
        self.last
    }

    pub(super) fn set_connected(&mut self, slot: Slot, is_connected: bool) {
        let Some(started) = self.started.get_mut(&slot) else { return };
        self.connected -= usize::from(started.is_connected);
        self.connected += usize::from(is_connected);
        started.is_connected = is_connected;
    }

    pub(super) fn remove(&mut self, slot: Slot) -> Option<QueuedMessage> {
        let StartedSlot { message, is_connected, .. } = self.started.remove(&slot)?;
        self.connected -= usize::from(is_connected);
        self.marketing -= usize::from(message.is_marketing());
        Some(message)
    }
}
