//! Looking at messages: one with its timeline and content, and lists of them; and withdrawing one (contract 3).

use std::collections::HashMap;
use std::sync::Arc;

use super::Engine;
use super::audit::Behalf;
use super::listing::{Page, PageRequest, last_id};
use super::wait::{Holds, Wait, WaitReason};
use crate::base::id::{AccountId, EventId, MessageId};
use crate::base::time::Timestamp;
use crate::store::content::Unreadable;
use crate::store::error::{Stop, StoreError};
use crate::store::op::cancel::{CancelMessage, CancelRefusal};
use crate::store::read::{Order, Read, after_prefix};
use crate::store::row::message::{MessageRow, TransferRow};
use crate::store::schema::{self, Table};

use super::listing::until;
use super::message_search::{metadata_indexed_since, search, search_from, search_newer};

pub use super::message_search::{MessageFilter, Via};

/// A message as its record shows it, without its content.
#[derive(Clone, Debug)]
pub struct MessageRecord {
    /// Its identifier.
    pub id: MessageId,
    /// The accepted message.
    pub row: MessageRow,
    /// Progress of its transfer.
    pub transfer: TransferRow,
    /// When it is tried next, as far as is known: when its timer is due, or where it waits behind a site or relay that
    /// is held back, when that ends. None where no attempt comes any more.
    pub next_attempt_at: Option<Timestamp>,
    /// Why it waits. None where it has ended.
    pub waiting: Option<Wait>,
}

impl MessageRecord {
    pub(super) const fn new(id: MessageId, row: MessageRow, transfer: TransferRow) -> Self {
        let next_attempt_at = transfer.due;
        Self { id, row, transfer, next_attempt_at, waiting: None }
    }
}

impl Engine {
    /// A message of the account.
    ///
    /// # Errors
    /// Those of the store.
    pub fn message(&self, account: AccountId, id: MessageId) -> Result<Option<MessageRecord>, StoreError> {
        let snapshot = self.store.snapshot()?;
        let key = schema::message(account, id);
        let Some(row) = snapshot.row(&key)? else { return Ok(None) };
        let record = MessageRecord::new(id, row, transfer(&snapshot, &key)?);
        Ok(Some(self.foreseen(record, &Holds::read(&snapshot, account)?)))
    }

    /// The record with the reason why it waits, and with its next attempt as the dispatcher foresees it.
    fn foreseen(&self, record: MessageRecord, holds: &Holds) -> MessageRecord {
        let (due, waiting) = (record.transfer.due, self.wait_of(&record, holds));
        let delayed = waiting.as_ref().filter(|wait| matches!(wait.reason, WaitReason::Throttled | WaitReason::Relay));
        // A timer due at the deadline is no attempt any more.
        let next_attempt_at = due
            .max(delayed.and_then(|wait| wait.until))
            .filter(|next| *next < self.clock.time().deadline(record.row.give_up_at));
        MessageRecord { next_attempt_at, waiting, ..record }
    }

    fn all_foreseen(&self, account: AccountId, page: Page<MessageRecord>) -> Result<Page<MessageRecord>, StoreError> {
        let holds = Holds::read(&self.store.snapshot()?, account)?;
        let rows = page.rows.into_iter().map(|record| self.foreseen(record, &holds)).collect();
        Ok(Page { rows, ..page })
    }

    /// Whether a message of any account is past its content's deadline; what is no message never is.
    ///
    /// # Errors
    /// Those of the store.
    pub fn is_content_over(&self, id: MessageId) -> Result<bool, StoreError> {
        let all = PageRequest { before: None, limit: usize::MAX };
        for account in self.accounts(all)?.rows {
            if let Some(message) = self.message(account.id, id)? {
                return Ok(self.clock.time().expiry >= message.row.content_expires_at);
            }
        }
        Ok(false)
    }

    /// Withdraws a message that still waits and is not on the wire.
    ///
    /// # Errors
    /// The refusal, or the store's failure.
    pub async fn cancel(&self, on: impl Into<Behalf>, message: MessageId) -> Result<(), Stop<CancelRefusal>> {
        let on = on.into();
        let account = on.account;
        if self.message(account, message)?.is_none() {
            return Err(Stop::Refused(CancelRefusal::NotFound));
        }
        let lease = self.leases.take_soon(message).await.ok_or(Stop::Refused(CancelRefusal::TooLate))?;
        self.commit_leased_on(on, CancelMessage { account, message }, vec![lease]).await
    }

    /// The events of a message as the bytes that were written once, oldest first.
    ///
    /// # Errors
    /// Those of the store.
    pub fn timeline(&self, account: AccountId, id: MessageId) -> Result<Vec<Vec<u8>>, StoreError> {
        let prefix = schema::message(account, id);
        let mut events = Vec::new();
        let each = &mut |_: &[u8], bytes: &[u8]| {
            events.push(bytes.to_vec());
            Ok(until(false))
        };
        let to = after_prefix(&prefix);
        self.store.snapshot()?.scan_sound(Table::Timeline, &prefix, &to, Order::Ascending, each)?;
        Ok(events)
    }

    /// Returns the SMTP transcripts of a message's failed attempts, by the event that reports each. Kept as long as
    /// the event log keeps that event.
    ///
    /// # Errors
    /// Those of the store.
    pub fn transcripts(&self, account: AccountId, id: MessageId) -> Result<HashMap<EventId, String>, StoreError> {
        let (prefix, mut said) = (schema::message(account, id), HashMap::new());
        let to = after_prefix(&prefix);
        self.store.snapshot()?.scan_sound(Table::Transcripts, &prefix, &to, Order::Ascending, &mut |key, bytes| {
            said.extend(last_id(key).map(|id| (EventId(id), String::from_utf8_lossy(bytes).into_owned())));
            Ok(until(false))
        })?;
        Ok(said)
    }

    /// The signed message, read by `use_it` off the async threads; none from its content's deadline on.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn content<T: Send + 'static>(
        &self,
        account: AccountId,
        message: &MessageRecord,
        use_it: impl FnOnce(Vec<u8>) -> T + Send + 'static,
    ) -> Result<Option<T>, StoreError> {
        if self.clock.time().expiry >= message.row.content_expires_at {
            return Ok(None);
        }
        let (store, place, id) = (Arc::clone(&self.store), message.row.place, message.id);
        let now = self.clock.time().expiry;
        let read = move || match store.body(place, id, now) {
            Ok(bytes) => Ok(Some(use_it(bytes))),
            Err(Unreadable::Gone) => Ok(None),
            Err(Unreadable::Failed(error)) => Err(error),
        };
        self.blocking(account, read).await?
    }

    /// A page of the account's messages. Where few match it may hold less than was asked for and still name a next one.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn messages(
        &self,
        account: AccountId,
        filter: MessageFilter,
        page: PageRequest,
    ) -> Result<Page<MessageRecord>, StoreError> {
        let search = self.off_thread(account, move |store| search(store, account, &filter, page));
        search.await.and_then(|page| self.all_foreseen(account, page))
    }

    /// The page of messages that follow `after` in time, newest first; its `next` says whether still newer ones do.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn newer_messages(
        &self,
        account: AccountId,
        filter: MessageFilter,
        after: MessageId,
        limit: usize,
    ) -> Result<Page<MessageRecord>, StoreError> {
        let search = self.off_thread(account, move |store| search_newer(store, account, &filter, after, limit));
        search.await.and_then(|page| self.all_foreseen(account, page))
    }

    /// The page of messages from `from` on, oldest first; its `next` names the newest message looked at where still
    /// newer ones follow. Blocks.
    ///
    /// # Errors
    /// Those of the store.
    pub fn messages_from(
        &self,
        account: AccountId,
        filter: &MessageFilter,
        from: MessageId,
        limit: usize,
    ) -> Result<Page<MessageRecord>, StoreError> {
        self.all_foreseen(account, search_from(&self.store, account, filter, from, limit)?)
    }

    /// The time from which on all messages of an account are found by their metadata; none where that holds for all of
    /// them.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn metadata_indexed_since(&self, account: AccountId) -> Result<Option<Timestamp>, StoreError> {
        self.off_thread(account, move |store| metadata_indexed_since(store, account)).await
    }
}

/// Returns the transfer of the message at `key`. It is written with the message, so it exists.
pub(super) fn transfer(read: &impl Read, key: &[u8]) -> Result<TransferRow, StoreError> {
    read.row(key)?.ok_or_else(|| StoreError::missing(Table::Transfers))
}
