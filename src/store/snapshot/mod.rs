//! A consistent view of everything committed. Cheap to open. It must never be held over an await, because it pins freed
//! pages.

mod neighbours;

use std::cell::OnceCell;
use std::ops::ControlFlow;
use std::sync::Arc;

use redb::{ReadOnlyTable, ReadTransaction, StorageError, TableError};

use super::checksum::Values;
use super::damage::{Damage, guarded};
use super::error::StoreError;
use super::health::Health;
use super::read::{OnDamage, Order, Read, RowCallback};
use super::schema::Table;

type SnapshotTable = ReadOnlyTable<&'static [u8], &'static [u8]>;

/// A view of the store at one moment.
pub struct Snapshot {
    transaction: ReadTransaction,
    tables: [OnceCell<SnapshotTable>; Table::ALL.len()],
    damage: Arc<Damage>,
    values: Values,
    health: Option<Arc<Health>>,
}

/// Callback for each key and its stored bytes with the checksum.
pub(super) type StoredValueVisitor<'a> = dyn FnMut(&[u8], &[u8]) -> Result<ControlFlow<()>, StoreError> + 'a;

impl Snapshot {
    /// Creates a view from `transaction`, of a database whose values have checksums. `damage` counts the damage found.
    pub(super) fn new(transaction: ReadTransaction, damage: Arc<Damage>) -> Self {
        let tables = std::array::from_fn(|_| OnceCell::new());
        Self { transaction, tables, damage, values: Values::Checked, health: None }
    }

    /// Returns the view such that an I/O error of a read fails the store. redb refuses everything after one, so nothing
    /// could be recorded any more.
    pub(super) fn watched_by(self, health: Arc<Health>) -> Self {
        Self { health: Some(health), ..self }
    }

    /// Returns redb's error about a read, after it has failed the store. Damage does not: other rows may be intact.
    pub(super) fn fail(&self, error: StoreError) -> StoreError {
        if let (Some(health), StoreError::Database(_)) = (&self.health, &error) {
            health.fail(&error);
        }
        error
    }

    /// Returns the view of a database with `values` of another format.
    pub(super) fn with(self, values: Values) -> Self {
        Self { values, ..self }
    }

    /// Returns the transaction, to copy everything.
    pub(super) const fn transaction(&self) -> &ReadTransaction {
        &self.transaction
    }

    fn table(&self, table: Table) -> Result<&SnapshotTable, StoreError> {
        let cell = &self.tables[table as usize];
        if let Some(opened) = cell.get() {
            return Ok(opened);
        }
        let opened = match guarded(|| self.transaction.open_table(table.definition())) {
            Ok(Ok(opened)) => opened,
            Ok(Err(TableError::Storage(StorageError::Corrupted(fault)))) | Err(fault) => {
                return Err(self.damage.pages(table, &[], fault));
            }
            Ok(Err(error)) => return Err(self.fail(error.into())),
        };
        Ok(cell.get_or_init(|| opened))
    }

    /// Returns redb's answer about `key` if its pages can be read.
    fn read<T>(
        &self,
        table: Table,
        key: &[u8],
        answer: Result<Result<T, StorageError>, String>,
    ) -> Result<T, StoreError> {
        match answer {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(StorageError::Corrupted(fault))) | Err(fault) => Err(self.damage.pages(table, key, fault)),
            Ok(Err(error)) => Err(self.fail(error.into())),
        }
    }

    /// Returns whether a lookup finds a row at `key`, even with a wrong checksum. Damage may hide the row, so use this
    /// for counts and not for decisions.
    ///
    /// # Errors
    /// Database errors.
    pub(super) fn finds(&self, table: Table, key: &[u8]) -> Result<bool, StoreError> {
        let opened = self.table(table)?;
        self.read(table, key, guarded(|| Ok(opened.get(key)?.is_some())))
    }

    /// Calls `each` with everything stored in a range of keys, even with a wrong checksum.
    ///
    /// # Errors
    /// Database errors, errors of `each`, and pages that can't be read, after which the scan ends.
    pub(super) fn scan_stored(
        &self,
        table: Table,
        (from, to): (&[u8], &[u8]),
        order: Order,
        each: &mut StoredValueVisitor<'_>,
    ) -> Result<(), StoreError> {
        if from >= to {
            return Ok(());
        }
        let opened = self.table(table)?;
        let mut range = self.read(table, from, guarded(|| opened.range::<&[u8]>(from..to)))?;
        loop {
            let next = guarded(|| {
                let next = match order {
                    Order::Ascending => range.next(),
                    Order::Descending => range.next_back(),
                };
                let entry = next.transpose()?;
                // redb may notice a damaged page only here.
                let _bytes = entry.as_ref().map(|(key, value)| key.value().len() + value.value().len());
                Ok(entry)
            });
            let Some((key, stored)) = self.read(table, from, next)? else { return Ok(()) };
            if each(key.value(), stored.value())?.is_break() {
                return Ok(());
            }
        }
    }
}

impl Read for Snapshot {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let opened = self.table(table)?;
        let stored = guarded(|| Ok(opened.get(key)?.map(|stored| stored.value().to_vec())));
        let Some(mut stored) = self.read(table, key, stored)? else {
            let is_absent =
                self.read(table, key, guarded(|| neighbours::is_absent(opened, self.values, table, key)))?;
            return if is_absent { Ok(None) } else { Err(self.damage.hidden(table, key)) };
        };
        let length = self.values.open(table.name(), key, &stored).map(<[u8]>::len);
        stored.truncate(length.ok_or_else(|| self.damage.row(table, key))?);
        Ok(Some(stored))
    }

    fn scan_with(
        &self,
        table: Table,
        range: (&[u8], &[u8]),
        order: Order,
        on_damage: OnDamage,
        each: &mut RowCallback<'_>,
    ) -> Result<(), StoreError> {
        if on_damage == OnDamage::Fail && range.0 < range.1 {
            let opened = self.table(table)?;
            let is_whole = guarded(|| neighbours::begins_at(opened, self.values, table, range.0));
            if !self.read(table, range.0, is_whole)? {
                return Err(self.damage.hidden(table, range.0));
            }
        }
        self.scan_stored(table, range, order, &mut |key, stored| match (
            self.values.open(table.name(), key, stored),
            on_damage,
        ) {
            (Some(value), _) => each(key, value),
            (None, OnDamage::Fail) => Err(self.damage.row(table, key)),
            (None, OnDamage::Skip) => {
                self.damage.row(table, key);
                Ok(ControlFlow::Continue(()))
            }
            (None, OnDamage::Key) => {
                self.damage.row(table, key);
                each(key, &[])
            }
        })
    }
}
