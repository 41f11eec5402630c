//! Looking at messages: one with its timeline and content, and lists of them; and withdrawing one (contract 3).

use std::collections::HashMap;
use std::sync::Arc;

use super::Engine;
use super::audit::Behalf;
use super::listing::{Page, PageRequest, last_id, range};
use crate::base::id::{AccountId, EventId, MessageId, Ulid};
use crate::base::time::Timestamp;
use crate::domain::address::Address;
use crate::domain::stream::Stream;
use crate::machine::transfer::Status;
use crate::store::Store;
use crate::store::content::Unreadable;
use crate::store::error::{Stop, StoreError};
use crate::store::op::cancel::{CancelMessage, CancelRefusal};
use crate::store::read::{Order, Read, after_prefix};
use crate::store::row::Row as _;
use crate::store::row::message::{MessageRow, TransferRow};
use crate::store::schema::{self, Table};

use super::listing::until;

/// Rows that one page of a filtered list looks at; then it ends, full or not, with a cursor to go on from.
const SCAN_MAX: usize = 20_000;

/// A message as its record shows it, without its content.
#[derive(Clone, Debug)]
pub struct MessageRecord {
    /// Its identifier.
    pub id: MessageId,
    /// What was accepted.
    pub row: MessageRow,
    /// How far its transfer is.
    pub transfer: TransferRow,
    /// When it is tried next, as far as is known: when its timer is due, or where it waits behind a site or relay that
    /// is held back, when that ends. None where no attempt comes any more.
    pub next_attempt_at: Option<Timestamp>,
}

impl MessageRecord {
    const fn new(id: MessageId, row: MessageRow, transfer: TransferRow) -> Self {
        let next_attempt_at = transfer.due;
        Self { id, row, transfer, next_attempt_at }
    }
}

/// Which messages are asked for. Absent members ask for nothing; the others hold together.
#[derive(Clone, Debug, Default)]
pub struct MessageFilter {
    /// The recipient.
    pub to: Option<Address>,
    /// The sender.
    pub from: Option<Address>,
    /// Words of the subject, in lower case: each must occur in it.
    pub subject_words: Vec<String>,
    /// The identifier that a Message-ID names.
    pub id: Option<MessageId>,
    /// The status.
    pub status: Option<Status>,
    /// The stream.
    pub stream: Option<Stream>,
    /// Only those created later.
    pub after: Option<Timestamp>,
    /// Only those created earlier.
    pub before: Option<Timestamp>,
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
        Ok(Some(self.foreseen(MessageRecord::new(id, row, transfer(&snapshot, &key)?))))
    }

    /// The record with its next attempt as the pump foresees it.
    fn foreseen(&self, record: MessageRecord) -> MessageRecord {
        let due = record.transfer.due;
        let is_due = due.is_some_and(|due| due <= self.clock.now());
        let held_until = if is_due { self.queue_view().and_then(|view| view.held_until(&record)) } else { None };
        // What is due at the very end is no attempt any more.
        let next_attempt_at = due.max(held_until).filter(|next| *next < record.row.give_up_at);
        MessageRecord { next_attempt_at, ..record }
    }

    fn all_foreseen(&self, page: Page<MessageRecord>) -> Page<MessageRecord> {
        let rows = page.rows.into_iter().map(|record| self.foreseen(record)).collect();
        Page { rows, ..page }
    }

    /// Whether a message of any account is past its content's deadline; what is no message never is.
    ///
    /// # Errors
    /// Those of the store.
    pub fn is_content_over(&self, id: MessageId) -> Result<bool, StoreError> {
        let all = PageRequest { before: None, limit: usize::MAX };
        for account in self.accounts(all)?.rows {
            if let Some(message) = self.message(account.id, id)? {
                return Ok(self.clock.now() >= message.row.content_expires_at);
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
        self.store.snapshot()?.scan(Table::Timeline, &prefix, &to, Order::Ascending, each)?;
        Ok(events)
    }

    /// What was said in the attempts of a message that failed, by the event that tells of the failure. Kept as long as
    /// the event log keeps that event.
    ///
    /// # Errors
    /// Those of the store.
    pub fn transcripts(&self, account: AccountId, id: MessageId) -> Result<HashMap<EventId, String>, StoreError> {
        let (prefix, mut said) = (schema::message(account, id), HashMap::new());
        let to = after_prefix(&prefix);
        self.store.snapshot()?.scan(Table::Transcripts, &prefix, &to, Order::Ascending, &mut |key, bytes| {
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
        message: &MessageRecord,
        use_it: impl FnOnce(Vec<u8>) -> T + Send + 'static,
    ) -> Result<Option<T>, StoreError> {
        if self.clock.now() >= message.row.content_expires_at {
            return Ok(None);
        }
        let (content, place, id) = (Arc::clone(self.store.content()), message.row.place, message.id);
        let read = tokio::task::spawn_blocking(move || match content.read(place, id) {
            Ok(bytes) => Ok(Some(use_it(bytes))),
            Err(Unreadable::Gone) => Ok(None),
            Err(Unreadable::Failed(error)) => Err(error),
        });
        read.await.unwrap_or(Err(StoreError::Panicked))
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
        let store = Arc::clone(&self.store);
        let search = tokio::task::spawn_blocking(move || search(&store, account, &filter, page));
        search.await.unwrap_or(Err(StoreError::Panicked)).map(|page| self.all_foreseen(page))
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
        let store = Arc::clone(&self.store);
        let search = tokio::task::spawn_blocking(move || search_newer(&store, account, &filter, after, limit));
        search.await.unwrap_or(Err(StoreError::Panicked)).map(|page| self.all_foreseen(page))
    }
}

fn search(
    store: &Store,
    account: AccountId,
    filter: &MessageFilter,
    page: PageRequest,
) -> Result<Page<MessageRecord>, StoreError> {
    gather(store, filter, bounds(account, filter, page.before), Order::Descending, page.limit)
}

/// The page right after `after`, in the order of all pages; its `next` names the newest row where still newer ones
/// follow.
fn search_newer(
    store: &Store,
    account: AccountId,
    filter: &MessageFilter,
    after: MessageId,
    limit: usize,
) -> Result<Page<MessageRecord>, StoreError> {
    let (from, to) = bounds(account, filter, None);
    let from = from.max(schema::message(account, MessageId(after.0.next())).to_vec());
    let range = if from > to { (from.clone(), from) } else { (from, to) };
    let mut page = gather(store, filter, range, Order::Ascending, limit)?;
    page.rows.reverse();
    Ok(page)
}

/// The messages of a range of keys that `filter` takes, in `order`.
fn gather(
    store: &Store,
    filter: &MessageFilter,
    (from, to): (Vec<u8>, Vec<u8>),
    order: Order,
    limit: usize,
) -> Result<Page<MessageRecord>, StoreError> {
    let snapshot = store.snapshot()?;
    let (mut rows, mut next, mut last, mut scanned) = (Vec::new(), None, None, 0);
    snapshot.scan(Table::Messages, &from, &to, order, &mut |key, bytes| {
        // There is a row beyond what this page may hold or look at, so another page follows.
        if rows.len() == limit || scanned == SCAN_MAX {
            next = last;
            return Ok(until(true));
        }
        scanned += 1;
        last = last_id(key);
        let row = MessageRow::decode(bytes)?;
        if let Some(id) = last
            && filter.takes(&row)
        {
            let transfer = transfer(&snapshot, key)?;
            if filter.status.is_none_or(|status| transfer.state.status() == status) {
                rows.push(MessageRecord::new(MessageId(id), row, transfer));
            }
        }
        Ok(until(false))
    })?;
    Ok(Page { rows, next })
}

/// The keys to go through. Times are asked of the identifiers, by which the list is ordered.
fn bounds(account: AccountId, filter: &MessageFilter, before: Option<Ulid>) -> (Vec<u8>, Vec<u8>) {
    let prefix = account.as_bytes();
    let upper = filter.before.map(|at| Ulid::new(at, [0; 10]));
    let upper = [upper, before, filter.id.map(|id| id.0.next())].into_iter().flatten().min();
    let lower = filter.after.map(|at| Ulid::new(at, [u8::MAX; 10]).next());
    let lower = lower.max(filter.id.map(|id| id.0)).unwrap_or_default();
    let from = [prefix.as_slice(), &lower.0].concat();
    let (_, to) = range(prefix, upper);
    if from > to { (from.clone(), from) } else { (from, to) }
}

impl MessageFilter {
    /// Whether what was accepted is asked for; its status is looked at elsewhere.
    fn takes(&self, row: &MessageRow) -> bool {
        let same = |wanted: &Option<Address>, address: &Address| {
            wanted.as_ref().is_none_or(|wanted| wanted.match_key() == address.match_key())
        };
        self.stream.is_none_or(|stream| row.stream == stream)
            && same(&self.to, &row.to)
            && same(&self.from, &row.from)
            && self.has_words(row.subject.as_deref().unwrap_or_default())
    }

    fn has_words(&self, subject: &str) -> bool {
        if self.subject_words.is_empty() {
            return true;
        }
        let subject = subject.to_lowercase();
        self.subject_words.iter().all(|word| subject.contains(word.as_str()))
    }
}

/// How far the message at `key` is. It is written with the message, so it is there.
fn transfer(read: &impl Read, key: &[u8]) -> Result<TransferRow, StoreError> {
    let fault = || StoreError::Row { table: Table::Transfers, fault: "a message has none".to_owned() };
    read.row(key)?.ok_or_else(fault)
}
