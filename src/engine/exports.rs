//! Exports of an account's messages and events, oldest first. The next part is read after the client has taken the
//! previous one, each from a new snapshot. So an export needs memory for one part only, and does not prevent the
//! database from reusing old pages.
//!
//! Parts are read and written on one low-priority thread, and accounts take turns. An export has one part at a time on
//! it, so one account delays another by at most one part.

use std::sync::Arc;

use super::Engine;
use super::background_thread::{BackgroundThread, JobFailure};
use super::events::EventFilter;
use super::executor::Executor;
use super::listing::Page;
use super::messages::{MessageFilter, MessageRecord};
use super::work_slots::{WorkSlot, WorkSlots};
use crate::base::id::{AccountId, MessageId, Ulid};
use crate::store::error::StoreError;

/// Maximum number of rows of an export.
pub const ROWS_MAX: usize = 1_000_000;
/// Maximum number of running exports.
const AT_ONCE: usize = 64;
/// Maximum number of further running exports, each of an account that has no other. Clients that read slowly keep an
/// export running for a long time.
const RESERVE: usize = 192;
/// Maximum number of running exports of one account. It is less than the account's maximum of jobs on the thread.
pub const OF_ACCOUNT_AT_ONCE: usize = 4;
/// Maximum number of rows of a part.
const PART_ROWS: usize = 250;
/// Size in bytes of records after which a part ends.
const PART_BYTES: usize = 128 * 1024;
/// Size in bytes of a message's record, without its longer texts.
const RECORD_BYTES: usize = 1024;

/// Slots for exports, and the thread that reads them.
pub(super) struct Exports {
    slots: WorkSlots,
    thread: BackgroundThread,
}

impl Exports {
    /// Starts the thread, which calls `lower_priority` first.
    pub(super) fn new(executor: Executor, lower_priority: fn()) -> Self {
        let thread = BackgroundThread::new(executor, "exports", lower_priority);
        Self { slots: WorkSlots::new(AT_ONCE, OF_ACCOUNT_AT_ONCE).with_reserve(RESERVE), thread }
    }

    /// Reads and writes a part on the thread.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        account: AccountId,
        part: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ExportError> {
        self.thread.run(account, part).await.map_err(ExportError::NotDone)
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
    /// Events, as stored bytes.
    Events(Vec<Vec<u8>>),
}

/// A running export.
pub struct Export {
    engine: Arc<Engine>,
    account: AccountId,
    filter: ExportFilter,
    /// Start of the next part; `None` after the last one.
    from: Option<Ulid>,
    /// Number of rows that may still follow.
    left: usize,
    _slot: WorkSlot,
}

/// A slot of a running export, released when dropped.
pub struct ExportSlot(#[expect(dead_code, reason = "held until the export ends")] WorkSlot);

/// Reason why a part was not read.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The thread is overloaded, or the work panicked.
    #[error("the thread for exports did not read a part")]
    NotDone(JobFailure),
    /// The store failed.
    #[error(transparent)]
    Failed(#[from] StoreError),
}

impl Engine {
    /// Starts an export; `None` if too many are running.
    pub fn export(self: &Arc<Self>, account: AccountId, filter: ExportFilter) -> Option<Export> {
        let slot = self.exports.slots.take(account)?;
        let (engine, from) = (Arc::clone(self), Some(Ulid::default()));
        Some(Export { engine, account, filter, from, left: ROWS_MAX, _slot: slot })
    }

    /// Takes a slot for an export of suppressions; `None` if too many exports are running.
    pub fn export_slot(&self, account: AccountId) -> Option<ExportSlot> {
        self.exports.slots.take(account).map(ExportSlot)
    }

    /// Returns the part of an export from `from` on, and the start of the next part.
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

/// Returns the number of records up to the one that reaches `bytes`. Only members of variable length count.
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
    /// Returns whether the last part was read.
    pub const fn is_over(&self) -> bool {
        self.from.is_none()
    }

    /// Reads the next part and passes it to `write`, on the thread for exports. Parts may be empty.
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
        let (written, count, next) = self.engine.exports.run(account, read).await??;
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
