//! The account's suppressions: adding, lifting, looking, and whole lists in and out (contract 6).

use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Engine;
use super::audit::Behalf;
use super::beside::NotDone;
use super::listing::{Page, PageRequest, last_id, range, until};
use super::waiting::Leased;
use crate::base::id::{AccountId, Ulid};
use crate::domain::address::Address;
use crate::domain::audit::{Action, Change};
use crate::store::Store;
use crate::store::error::{Stop, StoreError};
use crate::store::op::suppression::{Added, ImportSuppressions, Name, Suppress, Suppression, Unsuppress};
use crate::store::op::{Never, NotThere};
use crate::store::read::{Order, Read, after_prefix, sound};
use crate::store::row::Row as _;
use crate::store::row::suppression::{SuppressionReason, SuppressionRow};
use crate::store::schema::{self, Table};

/// Rows that one page of a filtered list looks at; then it ends, full or not, with a cursor to go on from.
const SCAN_MAX: usize = 20_000;
/// The longest pause between two batches of an import.
const PAUSE_MAX: Duration = Duration::from_millis(50);

/// Which suppressions are asked for. Absent members ask for nothing; the others hold together.
#[derive(Clone, Debug, Default)]
pub struct SuppressionFilter {
    /// The address.
    pub address: Option<Address>,
    /// Why.
    pub reason: Option<SuppressionReason>,
}

impl SuppressionFilter {
    fn takes(&self, row: &SuppressionRow) -> bool {
        self.reason.is_none_or(|reason| row.reason == reason)
    }
}

/// A place in the account's list of suppressions: after the row with this key, or at its beginning.
#[derive(Clone, Debug, Default)]
pub struct SuppressionsAfter(Option<Vec<u8>>);

/// What an import did, or would do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Imported {
    /// Addresses that were not suppressed before.
    pub imported: usize,
    /// Addresses that were, or that the list names again.
    pub skipped: usize,
}

/// A list to import that has no faults, read batch by batch.
pub trait SuppressionBatches: Send + Sync + 'static {
    /// Suppressions in the list.
    fn count(&self) -> usize;
    /// Batches of [`crate::store::op::suppression::IMPORTED_MAX`] suppressions, the last one of fewer.
    fn batches(&self) -> usize;
    /// Reads a batch.
    fn batch(&self, number: usize) -> Vec<Suppression>;
}

impl Engine {
    /// Suppresses an address because the account says so, and ends what waits for it.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn suppress(&self, on: impl Into<Behalf>, suppression: Suppression) -> Result<Added, StoreError> {
        let on = on.into();
        let (account, address) = (on.account, suppression.address.clone());
        let Leased { messages: waiting, leases, .. } = self.lease_waiting(account, [&address])?;
        let op = Suppress { account, suppression, waiting };
        let added = self.commit_leased_on(on, op, leases).await.map_err(failure)?;
        self.end_waiting(account, &[address]).await?;
        Ok(added)
    }

    /// Lifts a suppression.
    ///
    /// # Errors
    /// [`NotThere`], or the store's failure.
    pub async fn unsuppress(&self, on: impl Into<Behalf>, name: Name) -> Result<(), Stop<NotThere>> {
        let on = on.into();
        let op = Unsuppress { account: on.account, name };
        self.commit_on(on, op).await.map(drop)
    }

    /// A suppression of the account.
    ///
    /// # Errors
    /// Those of the store.
    pub fn suppression(&self, account: AccountId, name: &Name) -> Result<Option<SuppressionRow>, StoreError> {
        let snapshot = self.store.snapshot()?;
        let Some(key) = name.row_key(&snapshot, account)? else { return Ok(None) };
        snapshot.row(&key)
    }

    /// A page of the account's suppressions. Where few match it may hold less than was asked for and still name a next
    /// one.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn suppressions(
        &self,
        account: AccountId,
        filter: SuppressionFilter,
        page: PageRequest,
    ) -> Result<Page<SuppressionRow>, StoreError> {
        self.off_thread(move |store| search(&store.snapshot()?, account, &filter, page)).await
    }

    /// Suppresses a whole list, batch by batch. It runs to its end even if the caller goes away. While submissions
    /// wait, it pauses after each batch for as long as the batch took.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn import_suppressions(
        self: &Arc<Self>,
        on: impl Into<Behalf>,
        list: Arc<dyn SuppressionBatches>,
    ) -> Result<Imported, StoreError> {
        let (on, count) = (on.into(), list.count());
        self.note(&on, Change::new(Action::SuppressionsImported, "", format!("a list of {count}"))).await?;
        let (engine, account) = (Arc::clone(self), on.account);
        let imported = tokio::spawn(async move {
            let mut imported = 0;
            for number in 0..list.batches() {
                let read = Arc::clone(&list);
                // A batch is little work, and an import that has begun is never refused for want of a turn.
                let batch = engine.off_thread(move |_| Ok(read.batch(number))).await?;
                imported += engine.import_batch(account, batch).await?;
            }
            Ok(Imported { imported, skipped: count - imported })
        });
        imported.await.unwrap_or(Err(StoreError::Panicked))
    }

    async fn import_batch(&self, account: AccountId, batch: Vec<Suppression>) -> Result<usize, StoreError> {
        let began = tokio::time::Instant::now();
        let addresses: Vec<_> = batch.iter().map(|suppression| suppression.address.clone()).collect();
        let Leased { messages: waiting, leases, .. } = self.lease_waiting(account, &addresses)?;
        let op = ImportSuppressions { account, suppressions: batch, waiting };
        let imported = self.commit_leased(op, leases).await.map_err(failure)?;
        self.end_waiting(account, &addresses).await?;
        if self.waiting_submissions.load(Ordering::Acquire) > 0 {
            tokio::time::sleep(began.elapsed().min(PAUSE_MAX)).await;
        }
        Ok(imported)
    }

    /// Returns what importing the list would do now.
    ///
    /// # Errors
    /// [`NotDone`] where the thread for lists has too much to do; those of the store.
    pub async fn preview_import(
        &self,
        account: AccountId,
        list: Arc<dyn SuppressionBatches>,
    ) -> Result<Result<Imported, StoreError>, NotDone> {
        let store = Arc::clone(&self.store);
        let preview = move || {
            // Hashes take an eighth of the addresses; two that are alike are one in 10 million million lists.
            let (random, mut new) = (RandomState::new(), HashSet::<u64>::new());
            for number in 0..list.batches() {
                let snapshot = store.snapshot()?;
                for suppression in list.batch(number) {
                    let key = schema::named(account, suppression.address.match_key().as_bytes());
                    if snapshot.get(Table::Suppressions, &key)?.is_none() {
                        new.insert(random.hash_one(&key));
                    }
                }
            }
            Ok(Imported { imported: new.len(), skipped: list.count() - new.len() })
        };
        self.beside(account, preview).await
    }

    /// Does work on the low-priority thread for lists.
    ///
    /// # Errors
    /// [`NotDone`] where the thread has too much to do, or the work panicked.
    pub async fn beside<T: Send + 'static>(
        &self,
        account: AccountId,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, NotDone> {
        self.list_work.run(account, work).await
    }

    /// Reads the account's next `limit` suppressions in the order of their addresses, and where the list goes on. Each
    /// call reads the list as it is then, so a suppression that changes between two calls may be in neither.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn suppressions_after(
        &self,
        account: AccountId,
        SuppressionsAfter(after): SuppressionsAfter,
        limit: usize,
    ) -> Result<(Vec<SuppressionRow>, Option<SuppressionsAfter>), StoreError> {
        self.off_thread(move |store| {
            // The least key that is greater than the last one; at first, than the prefix of all.
            let from = after.map_or_else(|| account.as_bytes().to_vec(), |key| [&key[..], &[0]].concat());
            let (mut rows, mut last, mut looked) = (Vec::new(), Vec::new(), 0);
            let to = after_prefix(account.as_bytes());
            store.snapshot()?.scan_sound(Table::Suppressions, &from, &to, Order::Ascending, &mut |key, bytes| {
                rows.extend(sound(SuppressionRow::decode(bytes))?);
                last = key.to_vec();
                looked += 1;
                Ok(until(looked == limit))
            })?;
            Ok((rows, (looked == limit).then_some(SuppressionsAfter(Some(last)))))
        })
        .await
    }

    /// Does what may take a while where no other request waits for it.
    async fn off_thread<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Store) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let store = Arc::clone(&self.store);
        tokio::task::spawn_blocking(move || work(&store)).await.unwrap_or(Err(StoreError::Panicked))
    }
}

fn failure(stop: Stop<Never>) -> StoreError {
    match stop {
        Stop::Failed(error) => error,
        Stop::Refused(never) => match never {},
    }
}

fn search(
    read: &impl Read,
    account: AccountId,
    filter: &SuppressionFilter,
    page: PageRequest,
) -> Result<Page<SuppressionRow>, StoreError> {
    if let Some(address) = &filter.address {
        // An address has one suppression at most, so there is nothing to go through.
        let row: Option<SuppressionRow> = read.row(&schema::named(account, address.match_key().as_bytes()))?;
        let is_asked_for = |row: &SuppressionRow| filter.takes(row) && page.before.is_none_or(|id| row.id.0 < id);
        return Ok(Page { rows: row.into_iter().filter(is_asked_for).collect(), next: None });
    }
    let (from, to) = range(account.as_bytes(), page.before);
    let (mut rows, mut next, mut last, mut scanned) = (Vec::new(), None, None::<Ulid>, 0);
    read.scan_sound(Table::SuppressionsById, &from, &to, Order::Descending, &mut |key, match_key| {
        // There is a row beyond what this page may hold or look at, so another page follows.
        if rows.len() == page.limit || scanned == SCAN_MAX {
            next = last;
            return Ok(until(true));
        }
        scanned += 1;
        last = last_id(key);
        let row: Option<SuppressionRow> = read.sound_row(&schema::named(account, match_key))?;
        rows.extend(row.filter(|row| filter.takes(row)));
        Ok(until(false))
    })?;
    Ok(Page { rows, next })
}
