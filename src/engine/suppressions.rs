//! The account's suppressions: adding, removing, finding, importing and exporting them (contract 6).

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use super::Engine;
use super::audit::Behalf;
use super::background_thread::JobFailure;
use super::exports::ExportError;
use super::imports::ImportRefusal;
use super::listing::{Page, PageRequest, last_id, range, until};
use super::suppressed_messages::Leased;
use crate::base::id::{AccountId, Ulid};
use crate::domain::address::Address;
use crate::store::Store;
use crate::store::error::{OpError, StoreError};
use crate::store::op::suppression::{self, Added, Name, Suppress, Suppression, UnfinishedImport, Unsuppress};
use crate::store::op::suppression_count::{self, TooManySuppressions};
use crate::store::op::{Infallible, NotFound};
use crate::store::read::{Order, Read, after_prefix, sound};
use crate::store::row::Row as _;
use crate::store::row::suppression::{SuppressionReason, SuppressionRow};
use crate::store::schema::{self, Table};

/// Maximum number of rows that one page of a filtered list reads. Then the page ends with a cursor to continue, even if
/// it is not full.
const SCAN_MAX: usize = 20_000;

/// Conditions on suppressions. All given conditions must hold; `None` matches everything.
#[derive(Clone, Debug, Default)]
pub struct SuppressionFilter {
    /// The address.
    pub address: Option<Address>,
    /// A part of the address in lower case.
    pub part: Option<String>,
    /// Reason.
    pub reason: Option<SuppressionReason>,
}

impl SuppressionFilter {
    fn takes(&self, row: &SuppressionRow) -> bool {
        self.reason.is_none_or(|reason| row.reason == reason)
            && self.part.as_ref().is_none_or(|part| row.email.to_lowercase().contains(part))
    }
}

/// A position in the account's list of suppressions: after the row with this key, or at the start.
#[derive(Clone, Debug, Default)]
pub struct SuppressionsAfter(Option<Vec<u8>>);

/// Result of an import or of its dry run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Imported {
    /// Addresses that were not suppressed before.
    pub imported: usize,
    /// Addresses that were suppressed before, or that the list repeats.
    pub skipped: usize,
}

/// A valid list to import, read batch by batch.
pub trait SuppressionBatches: Send + Sync + 'static {
    /// Returns the number of suppressions in the list.
    fn count(&self) -> usize;
    /// Returns the number of batches. Each has [`crate::store::op::suppression::IMPORTED_MAX`] suppressions; the last
    /// batch may have fewer.
    fn batches(&self) -> usize;
    /// Reads a batch.
    fn batch(&self, number: usize) -> Vec<Suppression>;
}

impl Engine {
    /// Suppresses an address on the account's request, and ends mail that waits for it.
    ///
    /// # Errors
    /// The account has the maximum number of suppressions, or the store's failure.
    pub async fn suppress(
        &self,
        on: impl Into<Behalf>,
        suppression: Suppression,
    ) -> Result<Added, OpError<TooManySuppressions>> {
        self.check_space()?;
        let on = on.into();
        let (account, address) = (on.account, suppression.address.clone());
        let Leased { messages: waiting, leases, .. } = self.lease_waiting(account, [&address])?;
        let op = Suppress { account, suppression, waiting };
        let added = self.commit_leased_on(on, op, leases).await?;
        self.end_waiting(account, &[address]).await?;
        Ok(added)
    }

    /// Removes a suppression.
    ///
    /// # Errors
    /// [`NotFound`], or the store's failure.
    pub async fn unsuppress(&self, on: impl Into<Behalf>, name: Name) -> Result<(), OpError<NotFound>> {
        let on = on.into();
        let op = Unsuppress { account: on.account, name };
        self.commit_on(on, op).await.map(drop)
    }

    /// Returns a suppression of the account.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn suppression(&self, account: AccountId, name: &Name) -> Result<Option<SuppressionRow>, StoreError> {
        let snapshot = self.store.snapshot()?;
        let Some(key) = name.row_key(&snapshot, account)? else { return Ok(None) };
        suppression::find(&snapshot, account, &key)
    }

    /// Returns a page of the account's suppressions. If few match, a page may be short and still have a next one.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn suppressions(
        &self,
        account: AccountId,
        filter: SuppressionFilter,
        page: PageRequest,
    ) -> Result<Page<SuppressionRow>, StoreError> {
        self.off_thread(account, move |store| search(&store.snapshot()?, account, &filter, page)).await
    }

    /// Returns the result of an import of the list without making it.
    ///
    /// # Errors
    /// The refusal, or the store's failure.
    pub async fn preview_import(
        &self,
        account: AccountId,
        list: Arc<dyn SuppressionBatches>,
    ) -> Result<Imported, OpError<ImportRefusal>> {
        let store = Arc::clone(&self.store);
        let preview = move || {
            // Hashes take less memory than addresses. A collision is expected once in 10 trillion lists.
            let (random, mut new) = (RandomState::new(), Vec::<u64>::with_capacity(list.count()));
            for number in 0..list.batches() {
                let snapshot = store.snapshot()?;
                for suppression in list.batch(number) {
                    let key = schema::named(account, suppression.address.match_key().as_bytes());
                    if suppression::find(&snapshot, account, &key)?.is_none() {
                        new.push(random.hash_one(&key));
                    }
                }
            }
            new.sort_unstable();
            new.dedup();
            if new.len() as u64 > suppression_count::remaining(&store.snapshot()?, account)? {
                return Err(OpError::Refused(ImportRefusal::TooMany));
            }
            Ok(Imported { imported: new.len(), skipped: list.count() - new.len() })
        };
        self.beside(account, preview).await.unwrap_or_else(|not_done| match not_done {
            JobFailure::Crowded => Err(OpError::Refused(ImportRefusal::Crowded)),
            JobFailure::Failed => Err(OpError::Failed(StoreError::Panicked)),
        })
    }

    /// Runs work on the low-priority thread for lists.
    ///
    /// # Errors
    /// [`JobFailure`] if the thread is overloaded or the work panicked.
    pub async fn beside<T: Send + 'static>(
        &self,
        account: AccountId,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, JobFailure> {
        self.list_work.run(account, work).await
    }

    /// Passes the account's next `limit` suppressions, in the order of their addresses, to `write` on the thread for
    /// exports. Returns its result, and the position to continue from. Each call reads the current list, so a
    /// suppression that changes between two calls may be missing from both results.
    ///
    /// # Errors
    /// [`ExportError`].
    pub async fn export_suppressions<T: Send + 'static>(
        &self,
        account: AccountId,
        SuppressionsAfter(after): SuppressionsAfter,
        limit: usize,
        write: impl FnOnce(&[SuppressionRow]) -> T + Send + 'static,
    ) -> Result<(T, Option<SuppressionsAfter>), ExportError> {
        let store = Arc::clone(&self.store);
        let read = move || {
            // The smallest key greater than the last one. For the first page, the prefix of all keys.
            let from = after.map_or_else(|| account.as_bytes().to_vec(), |key| [&key[..], &[0]].concat());
            let (mut rows, mut last, mut looked) = (Vec::new(), Vec::new(), 0);
            let to = after_prefix(account.as_bytes());
            let snapshot = store.snapshot()?;
            let unfinished = UnfinishedImport::of(&snapshot, account)?;
            snapshot.scan_sound(Table::Suppressions, &from, &to, Order::Ascending, &mut |key, bytes| {
                rows.extend(sound(SuppressionRow::decode(bytes))?.filter(|row| !unfinished.hides(row)));
                last = key.to_vec();
                looked += 1;
                Ok(until(looked == limit))
            })?;
            Ok::<_, StoreError>((write(&rows), (looked == limit).then_some(SuppressionsAfter(Some(last)))))
        };
        Ok(self.exports.run(account, read).await??)
    }

    /// Reads the store for an account on a blocking thread.
    pub(super) async fn off_thread<T: Send + 'static>(
        &self,
        account: AccountId,
        work: impl FnOnce(&Store) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let store = Arc::clone(&self.store);
        self.blocking(account, move || work(&store)).await?
    }
}

pub(super) fn failure(stop: OpError<Infallible>) -> StoreError {
    match stop {
        OpError::Failed(error) => error,
        OpError::Refused(never) => match never {},
    }
}

fn search(
    read: &impl Read,
    account: AccountId,
    filter: &SuppressionFilter,
    page: PageRequest,
) -> Result<Page<SuppressionRow>, StoreError> {
    if let Some(address) = &filter.address {
        // An address has at most one suppression, so a scan is not needed.
        let row = suppression::find(read, account, &schema::named(account, address.match_key().as_bytes()))?;
        let is_asked_for = |row: &SuppressionRow| filter.takes(row) && page.before.is_none_or(|id| row.id.0 < id);
        return Ok(Page { rows: row.into_iter().filter(is_asked_for).collect(), next: None });
    }
    let unfinished = UnfinishedImport::of(read, account)?;
    let (from, to) = range(account.as_bytes(), page.before);
    let (mut rows, mut next, mut last, mut scanned) = (Vec::new(), None, None::<Ulid>, 0);
    read.scan_sound(Table::SuppressionsById, &from, &to, Order::Descending, &mut |key, match_key| {
        // There is one more row than this page may hold or read, so another page follows.
        if rows.len() == page.limit || scanned == SCAN_MAX {
            next = last;
            return Ok(until(true));
        }
        scanned += 1;
        last = last_id(key);
        let row: Option<SuppressionRow> = read.sound_row(&schema::named(account, match_key))?;
        rows.extend(row.filter(|row| filter.takes(row) && !unfinished.hides(row)));
        Ok(until(false))
    })?;
    Ok(Page { rows, next })
}
