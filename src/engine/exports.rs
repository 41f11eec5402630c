//! Exports of an account's messages and events, oldest first. The next part is read when the client has taken the one
//! before, each from a snapshot of its own, so that an export costs the memory of one part and keeps no old pages of
//! the database from reuse.
//!
//! Parts are read and written on one thread of low priority, which accounts take in turns. An export has one part in
//! work at most, so one account's exports hold up another's by a part.

use std::sync::Arc;

use super::Engine;
use super::beside::{Beside, NotDone};
use super::events::EventFilter;
use super::executor::Executor;
use super::listing::Page;
use super::messages::{MessageFilter, MessageRecord};
use super::seats::{Seat, Seats};
use crate::base::id::{AccountId, MessageId, Ulid};
use crate::store::error::StoreError;

/// Rows of an export at most.
pub const ROWS_MAX: usize = 1_000_000;
/// Exports at once.
const AT_ONCE: usize = 64;
/// Exports of one account at once. Fewer than the jobs that it may have on the thread.
pub const OF_ACCOUNT_AT_ONCE: usize = 4;
/// Rows of a part at most.
const PART_ROWS: usize = 250;
/// Bytes of records after which a part ends.
const PART_BYTES: usize = 128 * 1024;
/// Bytes of a message's record beside its longer texts.
const RECORD_BYTES: usize = 1024;

/// The seats of exports, and the thread that reads them.
pub(super) struct Exports {
    seats: Seats,
    thread: Beside,
}

impl Exports {
    /// Starts the thread, which calls `lower_priority` first.
    pub(super) fn new(executor: Executor, lower_priority: fn()) -> Self {
        let thread = Beside::new(executor, "exports", lower_priority);
        Self { seats: Seats::new(AT_ONCE, OF_ACCOUNT_AT_ONCE), thread }
    }
}

/// The rows of an export.
#[derive(Clone, Debug)]
pub enum ExportFilter {
    /// Messages.
    Messages(Box<MessageFilter>),
    /// Events.
    Events(EventFilter),
}

/// The rows of one part.
#[derive(Debug)]
pub enum ExportPart {
    /// Messages.
    Messages(Vec<MessageRecord>),
    /// Events, as the bytes that were written once.
    Events(Vec<Vec<u8>>),
}

/// An export under way.
pub struct Export {
    engine: Arc<Engine>,
    account: AccountId,
    filter: ExportFilter,
    /// Where the next part begins; none after the last one.
    from: Option<Ulid>,
    /// Rows that it may still have.
    left: usize,
    _seat: Seat,
}

/// Why a part could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The thread has too much to do, or the work panicked.
    #[error("the thread for exports did not read a part")]
    NotDone(NotDone),
    /// The store failed.
    #[error(transparent)]
    Failed(#[from] StoreError),
}

impl Engine {
    /// Begins an export; none where as many are under way already as may be.
    pub fn export(self: &Arc<Self>, account: AccountId, filter: ExportFilter) -> Option<Export> {
        let seat = self.exports.seats.take(account)?;
        let (engine, from) = (Arc::clone(self), Some(Ulid::default()));
        Some(Export { engine, account, filter, from, left: ROWS_MAX, _seat: seat })
    }

    /// The part of an export from `from` on, and where the export goes on.
    fn export_part(
        &self,
        account: AccountId,
        filter: &ExportFilter,
        from: Ulid,
        limit: usize,
    ) -> Result<(ExportPart, Option<Ulid>), StoreError> {
        let (part, next) = match filter {
            ExportFilter::Messages(filter) => {
                let Page { mut rows, mut next } = self.messages_from(account, filter, MessageId(from), limit)?;
                let count = count_within(&rows, PART_BYTES);
                if count < rows.len() {
                    rows.truncate(count);
                    next = rows.last().map(|record| record.id.0);
                }
                (ExportPart::Messages(rows), next)
            }
            ExportFilter::Events(filter) => {
                let Page { rows, next } = self.events_from(account, *filter, from, (limit, PART_BYTES))?;
                (ExportPart::Events(rows), next)
            }
        };
        Ok((part, next.map(Ulid::next)))
    }
}

/// The number of records up to the one that reaches `bytes`, by the members whose length the caller chooses.
fn count_within(records: &[MessageRecord], bytes: usize) -> usize {
    let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    let mut left = bytes;
    let reaches = |record: &MessageRecord| {
        let MessageRecord { row, transfer, .. } = record;
        let metadata: usize = row.metadata.iter().map(|(name, value)| name.len() + value.len()).sum();
        let texts = text(&row.subject) + text(&row.unsubscribe_url) + text(&transfer.last.smtp_response);
        left = left.saturating_sub(metadata + texts + RECORD_BYTES);
        left == 0
    };
    records.iter().position(reaches).map_or(records.len(), |last| last + 1)
}

impl Export {
    /// Whether the last part was read.
    pub const fn is_over(&self) -> bool {
        self.from.is_none()
    }

    /// Reads the next part, and has `write` make the bytes of it, on the thread for exports. Parts may be empty.
    ///
    /// # Errors
    /// [`ExportError`].
    pub async fn next<T: Send + 'static>(
        &mut self,
        write: impl FnOnce(&ExportPart) -> T + Send + 'static,
    ) -> Result<Option<T>, ExportError> {
        let Some(from) = self.from.take() else { return Ok(None) };
        let (engine, account, filter) = (Arc::clone(&self.engine), self.account, self.filter.clone());
        let limit = self.left.min(PART_ROWS);
        let read = move || {
            let (part, next) = engine.export_part(account, &filter, from, limit)?;
            Ok::<_, StoreError>((write(&part), part.len(), next))
        };
        let read = self.engine.exports.thread.run(account, read).await;
        let (written, count, next) = read.map_err(ExportError::NotDone)??;
        self.left -= count;
        self.from = next.filter(|_| self.left > 0);
        Ok(Some(written))
    }
}

impl ExportPart {
    fn len(&self) -> usize {
        match self {
            Self::Messages(rows) => rows.len(),
            Self::Events(rows) => rows.len(),
        }
    }
}
