//! A consistent view of everything committed. Cheap to open; never held over an await, or it pins freed pages.

use std::cell::OnceCell;

use redb::{ReadOnlyTable, ReadTransaction};

use super::error::StoreError;
use super::read::{Each, Order, Read};
use super::schema::Table;

type Opened = ReadOnlyTable<&'static [u8], &'static [u8]>;

/// A view of the store as it was when the snapshot was taken.
pub struct Snapshot {
    transaction: ReadTransaction,
    tables: [OnceCell<Opened>; Table::ALL.len()],
}

impl Snapshot {
    pub(super) fn new(transaction: ReadTransaction) -> Self {
        Self { transaction, tables: std::array::from_fn(|_| OnceCell::new()) }
    }

    /// The view itself, for whoever copies all of it.
    pub(super) const fn transaction(&self) -> &ReadTransaction {
        &self.transaction
    }

    fn table(&self, table: Table) -> Result<&Opened, StoreError> {
        let cell = &self.tables[table as usize];
        if let Some(opened) = cell.get() {
            return Ok(opened);
        }
        let opened = self.transaction.open_table(table.definition())?;
        Ok(cell.get_or_init(|| opened))
    }
}

impl Read for Snapshot {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.table(table)?.get(key)?.map(|guard| guard.value().to_vec()))
    }

    fn scan(&self, table: Table, from: &[u8], to: &[u8], order: Order, each: &mut Each<'_>) -> Result<(), StoreError> {
        if from >= to {
            return Ok(());
        }
        let mut range = self.table(table)?.range::<&[u8]>(from..to)?;
        loop {
            let next = match order {
                Order::Ascending => range.next(),
                Order::Descending => range.next_back(),
            };
            let Some(entry) = next else { return Ok(()) };
            let (key, value) = entry?;
            if each(key.value(), value.value())?.is_break() {
                return Ok(());
            }
        }
    }
}
