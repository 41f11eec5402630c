//! Reading messages, with their timelines and content, and lists of them; canceling a message (contract 3).

use std::collections::HashMap;
use std::sync::Arc;

use super::Engine;
use super::audit::Behalf;
use super::listing::{Page, PageRequest, last_id};
use super::wait_reason::{Holds, Wait, WaitReason};
use crate::base::id::{AccountId, EventId, MessageId};
use crate::base::time::Timestamp;
use crate::store::content::Unreadable;
use crate::store::error::{OpError, StoreError};
use crate::store::op::cancel::{CancelMessage, CancelRefusal};
use crate::store::read::{Order, Read, after_prefix};
use crate::store::row::message::{MessageRow, TransferRow};
use crate::store::schema::{self, Table};

use super::listing::until;
use super::message_search::{metadata_indexed_since, search, search_from, search_newer};

pub use super::message_search::{MessageFilter, Via};

/// A message's record, without its content.
#[derive(Clone, Debug)]
pub struct MessageRecord {
    /// Identifier.
    pub id: MessageId,
    /// The accepted message.
    pub row: MessageRow,
    /// Progress of its transfer.
    pub transfer: TransferRow,
    /// Time of the next attempt, as far as it is known. It is the due time of the timer, or the end of the throttling
    /// of the site or relay. `None` if no attempt follows.
    pub next_attempt_at: Option<Timestamp>,
    /// Reason why the message waits; `None` if it has ended.
    pub waiting: Option<Wait>,
}

impl MessageRecord {
    pub(super) const fn new(id: MessageId, row: MessageRow, transfer: TransferRow) -> Self {
        let next_attempt_at = transfer.due;
        Self { id, row, transfer, next_attempt_at, waiting: None }
    }
}

impl Engine {
    /// Returns a message of the account.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn message(&self, account: AccountId, id: MessageId) -> Result<Option<MessageRecord>, StoreError> {
        let snapshot = self.store.snapshot()?;
        let key = schema::message(account, id);
        let Some(row) = snapshot.row(&key)? else { return Ok(None) };
        let record = MessageRecord::new(id, row, transfer(&snapshot, &key)?);
        Ok(Some(self.foreseen(record, &Holds::read(&snapshot, account)?)))
    }

    /// Returns the record with the reason for its wait, and with the next attempt that the dispatcher expects.
    fn foreseen(&self, record: MessageRecord, holds: &Holds) -> MessageRecord {
        let (due, waiting) = (record.transfer.due, self.wait_of(&record, holds));
        let delayed = waiting.as_ref().filter(|wait| matches!(wait.reason, WaitReason::Throttled | WaitReason::Relay));
        // A timer that is due at the deadline does not lead to an attempt.
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

    /// Returns whether a message of any account is past its content's deadline. False for an unknown message.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn is_content_over(&self, id: MessageId) -> Result<bool, StoreError> {
        let all = PageRequest { before: None, limit: usize::MAX };
        for account in self.accounts(all)?.rows {
            if let Some(message) = self.message(account.id, id)? {
                return Ok(self.clock.time().expiry >= message.row.content_expires_at);
            }
        }
        Ok(false)
    }

    /// Cancels a message that still waits and is not in flight.
    ///
    /// # Errors
    /// The refusal, or the store's failure.
    pub async fn cancel(&self, on: impl Into<Behalf>, message: MessageId) -> Result<(), OpError<CancelRefusal>> {
        let on = on.into();
        let account = on.account;
        if self.message(account, message)?.is_none() {
            return Err(OpError::Refused(CancelRefusal::NotFound));
        }
        let lease = self.leases.take_soon(message).await.ok_or(OpError::Refused(CancelRefusal::TooLate))?;
        self.commit_leased_on(on, CancelMessage { account, message }, vec![lease]).await
    }

    /// Returns the events of a message with their stored bytes, oldest first.
    ///
    /// # Errors
    /// Fails if the store fails.
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

    /// Returns the SMTP transcripts of a message's failed attempts, each with the event that reports it. A transcript
    /// is kept as long as its event.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn transcripts(&self, account: AccountId, id: MessageId) -> Result<HashMap<EventId, String>, StoreError> {
        let (prefix, mut said) = (schema::message(account, id), HashMap::new());
        let to = after_prefix(&prefix);
        self.store.snapshot()?.scan_sound(Table::Transcripts, &prefix, &to, Order::Ascending, &mut |key, bytes| {
            said.extend(last_id(key).map(|id| (EventId(id), String::from_utf8_lossy(bytes).into_owned())));
            Ok(until(false))
        })?;
        Ok(said)
    }

    /// Passes the signed message to `use_it`, off the async threads. `None` after its content's deadline.
    ///
    /// # Errors
    /// Fails if the store fails.
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

    /// Returns a page of the account's messages. If few messages match, a page may be short and still have a next one.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn messages(
        &self,
        account: AccountId,
        filter: MessageFilter,
        page: PageRequest,
    ) -> Result<Page<MessageRecord>, StoreError> {
        let filter = MessageFilter { before: self.bound_of_ids(filter.before), ..filter };
        let search = self.off_thread(account, move |store| search(store, account, &filter, page));
        search.await.and_then(|page| self.all_foreseen(account, page))
    }

    /// Returns the page of messages after `after`, newest first. Its `next` shows whether newer ones follow.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn newer_messages(
        &self,
        account: AccountId,
        filter: MessageFilter,
        after: MessageId,
        limit: usize,
    ) -> Result<Page<MessageRecord>, StoreError> {
        let filter = MessageFilter { before: self.bound_of_ids(filter.before), ..filter };
        let search = self.off_thread(account, move |store| search_newer(store, account, &filter, after, limit));
        search.await.and_then(|page| self.all_foreseen(account, page))
    }

    /// Returns the page of messages from `from` on, oldest first. Its `next` names the newest message read if newer
    /// ones follow. Blocks.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn messages_from(
        &self,
        account: AccountId,
        filter: &MessageFilter,
        from: MessageId,
        limit: usize,
    ) -> Result<Page<MessageRecord>, StoreError> {
        self.all_foreseen(account, search_from(&self.store, account, filter, from, limit)?)
    }

    /// Returns the time since which all messages of an account have indexed metadata; `None` if all messages have.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn metadata_indexed_since(&self, account: AccountId) -> Result<Option<Timestamp>, StoreError> {
        self.off_thread(account, move |store| metadata_indexed_since(store, account)).await
    }
}

/// Returns the transfer of the message at `key`. It is written with the message, so it exists.
pub(super) fn transfer(read: &impl Read, key: &[u8]) -> Result<TransferRow, StoreError> {
    read.row(key)?.ok_or_else(|| StoreError::missing(Table::Transfers))
}
