//! Waiting messages of a destination: transactional ones first, and accounts in turn.

use std::collections::BTreeMap;
use std::time::Duration;

use super::QueuedMessage;
use crate::base::id::AccountId;
use crate::base::time::Timestamp;
use crate::domain::stream::Stream;
use crate::machine::fair_queue::FairQueue;

/// Time for which an account's messages let others pass after one of them got no connection.
pub const LETS_PASS: Duration = Duration::from_secs(5);

/// The waiting messages.
#[derive(Debug, Clone)]
pub(super) struct MessageQueue {
    transactional: FairQueue<QueuedMessage>,
    marketing: FairQueue<QueuedMessage>,
    /// Accounts without a free connection for this destination, and the end of the time for which they let others pass.
    letting_pass: BTreeMap<AccountId, Duration>,
    /// The earliest end of a message, or a time before it.
    ends_at: Timestamp,
}

impl Default for MessageQueue {
    fn default() -> Self {
        Self {
            transactional: FairQueue::default(),
            marketing: FairQueue::default(),
            letting_pass: BTreeMap::new(),
            ends_at: Timestamp::MAX,
        }
    }
}

impl MessageQueue {
    pub(super) const fn len(&self) -> usize {
        self.transactional.len() + self.marketing.len()
    }

    pub(super) const fn marketing_len(&self) -> usize {
        self.marketing.len()
    }

    const fn of(&mut self, stream: Stream) -> &mut FairQueue<QueuedMessage> {
        match stream {
            Stream::Transactional => &mut self.transactional,
            Stream::Marketing => &mut self.marketing,
        }
    }

    const fn in_stream(&self, stream: Stream) -> &FairQueue<QueuedMessage> {
        match stream {
            Stream::Transactional => &self.transactional,
            Stream::Marketing => &self.marketing,
        }
    }

    pub(super) fn push(&mut self, message: QueuedMessage) {
        self.ends_at = self.ends_at.min(message.give_up_at);
        self.of(message.stream).push(message.place.account, message);
    }

    /// Puts a message back before the others of its account. The account lets others pass for a while.
    pub(super) fn put_back(&mut self, message: QueuedMessage, machine: Duration) {
        self.ends_at = self.ends_at.min(message.give_up_at);
        self.letting_pass.retain(|_, until| *until > machine);
        self.letting_pass.insert(message.place.account, machine + LETS_PASS);
        self.of(message.stream).push_front(message.place.account, message);
    }

    /// Returns the account whose turn it is, among those for which `may` returns true.
    pub(super) fn next(&self, stream: Stream, may: impl Fn(&AccountId) -> bool) -> Option<AccountId> {
        self.in_stream(stream).next_owner(may)
    }

    /// Returns the number of accounts with messages of a stream.
    pub(super) fn accounts(&self, stream: Stream) -> usize {
        self.in_stream(stream).owners()
    }

    /// Returns whether the account lets others pass.
    pub(super) fn lets_pass(&self, account: &AccountId, machine: Duration) -> bool {
        self.letting_pass.get(account).is_some_and(|until| *until > machine)
    }

    /// Removes the account's next message. Its turn passes to another account.
    pub(super) fn pop(&mut self, stream: Stream, account: AccountId) -> Option<QueuedMessage> {
        self.of(stream).pop_of(|other| *other == account)
    }

    /// Returns whether there is a message of an account for which `may` returns true.
    pub(super) fn has_of(&self, may: impl Fn(&AccountId) -> bool, has_marketing_slots: bool) -> bool {
        self.transactional.has_of(&may) || has_marketing_slots && self.marketing.has_of(&may)
    }

    /// Removes the messages that expire by `until`, of one account or of all.
    pub(super) fn extract_ending(&mut self, until: Timestamp, of: Option<AccountId>) -> Vec<QueuedMessage> {
        if self.ends_at > until {
            return Vec::new();
        }
        let is_of = |message: &QueuedMessage| of.is_none_or(|account| account == message.place.account);
        let is_late = |message: &QueuedMessage| message.give_up_at <= until && is_of(message);
        let mut late = self.transactional.extract(is_late);
        late.append(&mut self.marketing.extract(is_late));
        let rest = self.transactional.iter().chain(self.marketing.iter());
        self.ends_at = rest.map(|message| message.give_up_at).min().unwrap_or(Timestamp::MAX);
        late
    }

    /// Removes `count` messages, marketing first.
    pub(super) fn shed(&mut self, count: usize) -> Vec<QueuedMessage> {
        let mut shed = self.marketing.shed(count);
        shed.append(&mut self.transactional.shed(count - shed.len()));
        shed
    }

    /// Removes all messages.
    pub(super) fn clear(&mut self) -> Vec<QueuedMessage> {
        let mut all = self.transactional.extract(|_| true);
        all.append(&mut self.marketing.extract(|_| true));
        all
    }
}
