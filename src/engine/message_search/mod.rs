//! Finding messages by recipient, sender, subject, status and stream. An index lists the blocks of messages that may
//! match, and only those are read. Other conditions filter the messages that were read. Used by the API's list and the
//! panel's search.
//!
//! Every page reads a bounded number of messages and blocks. Then it ends with a position to continue from, even if it
//! is not full. The newest messages are not in a block yet, and are read one by one.

use super::listing::{Page, PageRequest, last_id, range, until};
use super::messages::{MessageRecord, transfer};
use crate::base::id::{AccountId, KeyId, MessageId, Ulid};
use crate::base::time::Timestamp;
use crate::domain::address::Address;
use crate::domain::hostname::DomainName;
use crate::domain::stream::Stream;
use crate::domain::subject_words;
use crate::machine::transfer::Status;
use crate::store::Store;
use crate::store::error::StoreError;
use crate::store::op::message_index::{last_before_version, last_indexed};
use crate::store::read::{Order, Read, after_prefix, sound};
use crate::store::row::Row as _;
use crate::store::row::message::{MessageRow, TransferRow};
use crate::store::row::message_head::{MessageHead, TransferHead, has_text};
use crate::store::row::message_index::{IndexedBlock, METADATA_SINCE};
use crate::store::schema::{self, Table};
use crate::store::snapshot::Snapshot;

/// Maximum number of messages that one page reads.
const MESSAGES_MAX: usize = 10_000;
/// Maximum number of index blocks that one page reads: some four million messages.
const BLOCKS_MAX: usize = 16_384;

mod block_terms;
mod originals;
mod via;
mod waiting;

use block_terms::{BlockTerms, first_of_version};

pub use via::Via;

/// Conditions on messages. All given conditions must hold; `None` matches everything.
#[derive(Clone, Debug, Default)]
pub struct MessageFilter {
    /// The recipient.
    pub to: Option<Address>,
    /// The sender.
    pub from: Option<Address>,
    /// Words of the subject, as [`subject_words::wanted`] returns them. Each must be the prefix of a word in the
    /// subject.
    pub subject_words: Vec<String>,
    /// The message's identifier, taken from a Message-ID.
    pub id: Option<MessageId>,
    /// The Message-ID that a client set by SMTP.
    pub original_message_id: Option<String>,
    /// Submission interface.
    pub via: Option<Via>,
    /// Accepted statuses of the message. An empty list accepts every status.
    pub statuses: Vec<Status>,
    /// The stream.
    pub stream: Option<Stream>,
    /// Only messages created later.
    pub after: Option<Timestamp>,
    /// Only messages created earlier.
    pub before: Option<Timestamp>,
    /// The domain of the sender or of the recipient.
    pub domain: Option<DomainName>,
    /// The API key with which the message was sent.
    pub key: Option<KeyId>,
    /// Metadata pairs, names and values.
    pub metadata: Vec<(String, String)>,
    /// A metadata value, whatever its name.
    pub metadata_value: Option<String>,
    /// The code of the last answer.
    pub code: Option<u16>,
    /// Text that the last answer contains, in lower case.
    pub answer: Option<String>,
    /// Excludes messages that match one of these filters. Their times are ignored.
    pub without: Vec<Self>,
}

impl MessageFilter {
    /// Returns whether the filter has a condition on the message itself.
    pub fn narrows(&self) -> bool {
        let Self { to, from, subject_words, id, statuses, stream, domain, key, code, answer, .. } = self;
        let has_metadata = !self.metadata.is_empty() || self.metadata_value.is_some();
        let ways = self.original_message_id.is_some() || self.via.is_some() || has_metadata;
        let addresses = to.is_some() || from.is_some() || domain.is_some();
        let answers = code.is_some() || answer.is_some() || !statuses.is_empty();
        addresses || answers || ways || !subject_words.is_empty() || id.is_some() || stream.is_some() || key.is_some()
    }

    /// Returns whether the conditions on the first fields hold.
    fn may_take(&self, head: &MessageHead<'_>) -> bool {
        let has_domain = |name: &DomainName| [head.to_domain(), head.from_domain()].contains(&name.as_str());
        self.stream.is_none_or(|stream| head.stream == stream)
            && self.to.as_ref().is_none_or(|to| head.is_to(to))
            && self.from.as_ref().is_none_or(|from| head.is_from(from))
            && self.domain.as_ref().is_none_or(has_domain)
            && subject_words::has_all(head.subject.unwrap_or_default(), &self.subject_words)
    }

    /// Returns whether the stored bytes of a message contain all wanted values of metadata.
    fn may_have_values(&self, bytes: &[u8]) -> bool {
        let values = self.metadata.iter().map(|(_, value)| value).chain(&self.metadata_value);
        values.into_iter().all(|value| has_text(bytes, value))
    }

    /// Returns whether the conditions on the accepted message hold. Those on its outcome are checked elsewhere.
    fn takes(&self, row: &MessageRow) -> bool {
        let same = |wanted: &Option<Address>, address: &Address| {
            wanted.as_ref().is_none_or(|wanted| wanted.matches(address.local(), address.domain().as_str()))
        };
        self.stream.is_none_or(|stream| row.stream == stream)
            && same(&self.to, &row.to)
            && same(&self.from, &row.from)
            && self.domain.as_ref().is_none_or(|name| row.to.domain() == name || row.from.domain() == name)
            && self.key.is_none_or(|key| row.key == Some(key))
            && self.via.is_none_or(|via| via == Via::of(row))
            && self.metadata.iter().all(|(name, value)| row.metadata.get(name) == Some(value))
            && self.metadata_value.as_ref().is_none_or(|wanted| row.metadata.values().any(|value| value == wanted))
            && self.original_message_id.as_ref().is_none_or(|wanted| originals::is_original(row, wanted))
            && subject_words::has_all(row.subject.as_deref().unwrap_or_default(), &self.subject_words)
    }

    /// Returns whether the conditions on the outcome hold.
    fn takes_end(&self, transfer: &TransferRow) -> bool {
        let said = |wanted: &String| {
            transfer.last.smtp_response.as_ref().is_some_and(|answer| answer.to_lowercase().contains(wanted))
        };
        (self.statuses.is_empty() || self.statuses.contains(&transfer.state.status()))
            && self.code.is_none_or(|code| transfer.last.smtp_code == Some(code))
            && self.answer.as_ref().is_none_or(said)
    }

    /// Returns whether a message is excluded.
    fn excludes(&self, record: &MessageRecord) -> bool {
        let MessageRecord { id, row, transfer, .. } = record;
        let matches =
            |one: &Self| one.id.is_none_or(|wanted| wanted == *id) && one.takes(row) && one.takes_end(transfer);
        self.without.iter().any(matches)
    }
}

/// Returns the page of messages before `page.before`, newest first.
pub(super) fn search(
    store: &Store,
    account: AccountId,
    filter: &MessageFilter,
    page: PageRequest,
) -> Result<Page<MessageRecord>, StoreError> {
    if let Some(original) = &filter.original_message_id {
        return originals::search(&store.snapshot()?, account, original, filter, page);
    }
    let bounds = bounds(account, filter, page.before);
    run(&store.snapshot()?, account, filter, page.limit, bounds, Order::Descending)
}

/// Returns the page directly after `after`, in the order of all pages. Its `next` names the newest message read if
/// newer ones follow.
pub(super) fn search_newer(
    store: &Store,
    account: AccountId,
    filter: &MessageFilter,
    after: MessageId,
    limit: usize,
) -> Result<Page<MessageRecord>, StoreError> {
    let (from, to) = bounds(account, filter, None);
    let from = from.max(schema::message(account, MessageId(after.0.next())).to_vec());
    let mut page = run(&store.snapshot()?, account, filter, limit, (from, to), Order::Ascending)?;
    page.rows.reverse();
    Ok(page)
}

/// Returns the page of messages from `from` on, oldest first. Its `next` names the newest message read if newer ones
/// follow.
pub(super) fn search_from(
    store: &Store,
    account: AccountId,
    filter: &MessageFilter,
    from: MessageId,
    limit: usize,
) -> Result<Page<MessageRecord>, StoreError> {
    let (least, to) = bounds(account, filter, None);
    let from = least.max(schema::message(account, from).to_vec());
    run(&store.snapshot()?, account, filter, limit, (from, to), Order::Ascending)
}

/// Returns the time since which all messages of an account have indexed metadata; `None` if all messages have.
pub(super) fn metadata_indexed_since(store: &Store, account: AccountId) -> Result<Option<Timestamp>, StoreError> {
    let last = last_before_version(&store.snapshot()?, account, METADATA_SINCE)?;
    Ok(last.map(|last| last.0.timestamp().moved_by(1)))
}

/// Returns the range of keys to search. Identifiers order the list, so times become bounds on identifiers.
fn bounds(account: AccountId, filter: &MessageFilter, before: Option<Ulid>) -> (Vec<u8>, Vec<u8>) {
    let prefix = account.as_bytes();
    let upper = filter.before.map(|at| Ulid::new(at, [0; 10]));
    let upper = [upper, before, filter.id.map(|id| id.0.next())].into_iter().flatten().min();
    let lower = filter.after.map(|at| Ulid::new(at, [u8::MAX; 10]).next());
    let lower = lower.max(filter.id.map(|id| id.0)).unwrap_or_default();
    let from = [prefix.as_slice(), &lower.0].concat();
    let (_, to) = range(prefix, upper);
    (from, to)
}

/// A running search.
struct Search<'a> {
    snapshot: &'a Snapshot,
    filter: &'a MessageFilter,
    limit: usize,
    rows: Vec<MessageRecord>,
    /// Start of the next page, if this one ended before its bounds.
    next: Option<Ulid>,
    /// The message that was read last.
    reached: Option<Ulid>,
    looked_at: usize,
}

/// Returns the messages from key `from` to before key `to` that `filter` matches, in `order`.
fn run(
    snapshot: &Snapshot,
    account: AccountId,
    filter: &MessageFilter,
    limit: usize,
    (from, to): (Vec<u8>, Vec<u8>),
    order: Order,
) -> Result<Page<MessageRecord>, StoreError> {
    let mut search = Search { snapshot, filter, limit, rows: Vec::new(), next: None, reached: None, looked_at: 0 };
    if let Some(waiting) = waiting::messages(snapshot, account, filter, (&from, &to))? {
        search.look_up(account, waiting, order)?;
        return Ok(Page { rows: search.rows, next: search.next });
    }
    let terms = BlockTerms::new(filter);
    let from = match filter.block_version() {
        1 => from,
        version => from.max(first_of_version(snapshot, account, version)?),
    };
    let indexed = if terms.is_empty() { None } else { last_indexed(snapshot, account)? };
    let end = indexed.map_or_else(|| from.clone(), |last| schema::message(account, MessageId(last.0.next())).to_vec());
    let newest = (from.clone().max(end.clone()), to.clone());
    let blocks = (from, to.min(end));
    match order {
        Order::Ascending => {
            search.look_at_blocks(account, &blocks, &terms, order)?;
            search.look(&newest.0, &newest.1, order)?;
        }
        Order::Descending => {
            search.look(&newest.0, &newest.1, order)?;
            search.look_at_blocks(account, &blocks, &terms, order)?;
        }
    }
    Ok(Page { rows: search.rows, next: search.next })
}

impl Search<'_> {
    /// Reads the messages of the blocks that may contain all of `terms`.
    fn look_at_blocks(
        &mut self,
        account: AccountId,
        (from, to): &(Vec<u8>, Vec<u8>),
        terms: &BlockTerms,
        order: Order,
    ) -> Result<(), StoreError> {
        if from >= to || self.next.is_some() {
            return Ok(());
        }
        // A block's key is that of its last message. So a block that contains `to` has a key after `to`.
        let behind = after_prefix(account.as_bytes());
        let divided = self.snapshot.sound_keys(Table::MessageIndex, to, &behind, Order::Ascending, 1)?.pop();
        let end = divided.map_or_else(|| to.clone(), |key| after(&key));
        let (snapshot, mut blocks) = (self.snapshot, 0);
        snapshot.scan_sound(Table::MessageIndex, from, &end, order, &mut |key, value| {
            if blocks == BLOCKS_MAX {
                self.next = self.reached;
                return Ok(until(true));
            }
            blocks += 1;
            let Some(block) = sound(IndexedBlock::decode(value))? else { return Ok(until(false)) };
            if terms.may_be_in(&block) {
                let first = schema::message(account, block.first).to_vec();
                self.look(&first.max(from.clone()), &after(key).min(to.clone()), order)?;
            }
            if self.next.is_none() {
                self.reached = match order {
                    Order::Ascending => last_id(key),
                    Order::Descending => Some(block.first.0),
                };
            }
            Ok(until(self.next.is_some()))
        })
    }

    /// Reads the messages of a range of keys, one by one. If only some statuses match, their transfers are read first,
    /// because few messages may have such a status.
    fn look(&mut self, from: &[u8], to: &[u8], order: Order) -> Result<(), StoreError> {
        if self.next.is_some() {
            return Ok(());
        }
        let table = if self.filter.statuses.is_empty() { Table::Messages } else { Table::Transfers };
        self.snapshot.scan_sound(table, from, to, order, &mut |key, bytes| {
            // There is one more message than this page may hold or read, so another page follows.
            if self.is_full() {
                self.next = self.reached;
                return Ok(until(true));
            }
            self.looked_at += 1;
            let Some(id) = last_id(key) else { return Ok(until(false)) };
            self.reached = Some(id);
            match table {
                Table::Transfers if self.may_have_status(bytes) => {
                    if let Some(bytes) = sound(self.snapshot.get(Table::Messages, key))?.flatten() {
                        self.examine_row(id, key, &bytes)?;
                    }
                }
                Table::Transfers => {}
                _ => self.examine_row(id, key, bytes)?,
            }
            Ok(until(false))
        })
    }

    /// Reads these messages, which are sorted from old to new.
    fn look_up(&mut self, account: AccountId, mut ids: Vec<Ulid>, order: Order) -> Result<(), StoreError> {
        if matches!(order, Order::Descending) {
            ids.reverse();
        }
        for id in ids {
            if self.is_full() {
                self.next = self.reached;
                break;
            }
            self.look_at(account, id)?;
        }
        Ok(())
    }

    /// Reads one message.
    fn look_at(&mut self, account: AccountId, id: Ulid) -> Result<(), StoreError> {
        self.looked_at += 1;
        self.reached = Some(id);
        let key = schema::message(account, MessageId(id));
        match sound(self.snapshot.row::<MessageRow>(&key))?.flatten() {
            Some(row) => self.examine(MessageId(id), &key, row),
            None => Ok(()),
        }
    }

    /// Returns whether the page can't hold or read a further message.
    const fn is_full(&self) -> bool {
        self.rows.len() == self.limit || self.looked_at == MESSAGES_MAX
    }

    /// Returns whether a transfer may have one of the statuses, by the first fields of its row.
    fn may_have_status(&self, bytes: &[u8]) -> bool {
        TransferHead::read(bytes).is_none_or(|head| self.filter.statuses.contains(&head.state.status()))
    }

    /// Adds the message with this row, if it matches. Checks first what needs no decoding of the whole row.
    fn examine_row(&mut self, id: Ulid, key: &[u8], bytes: &[u8]) -> Result<(), StoreError> {
        let may_match = self.filter.may_have_values(bytes)
            && MessageHead::read(bytes).is_none_or(|head| self.filter.may_take(&head));
        match sound(may_match.then(|| MessageRow::decode(bytes)).transpose())?.flatten() {
            Some(row) => self.examine(MessageId(id), key, row),
            None => Ok(()),
        }
    }

    /// Adds the message at `key`, if it matches.
    fn examine(&mut self, id: MessageId, key: &[u8], row: MessageRow) -> Result<(), StoreError> {
        if self.filter.takes(&row)
            && let Some(transfer) = sound(transfer(self.snapshot, key))?
        {
            let record = MessageRecord::new(id, row, transfer);
            if self.filter.takes_end(&record.transfer) && !self.filter.excludes(&record) {
                self.rows.push(record);
            }
        }
        Ok(())
    }
}

/// Returns the first key after `key`.
fn after(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

#[cfg(test)]
mod tests;
