//! Row changes in memory: those of one operation, of its batch, or of the journal records that the database does not
//! have yet.
//!
//! They are an overlay: a read looks here first and then in the rows below; a scan merges both.

use std::collections::{BTreeMap, btree_map};
use std::iter::Peekable;
use std::ops::Bound::{Excluded, Included};
use std::ops::ControlFlow;

use redb::WriteTransaction;

use super::checksum;
use super::error::StoreError;
use super::read::{OnDamage, Order, Read, RowCallback};
use super::schema::Table;

/// New value of each changed row by key; `None` for a removed row.
type Rows = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// Changes by table. There are few tables, in the order of their first change.
#[derive(Default)]
pub(super) struct Changes(Vec<(Table, Rows)>);

impl Changes {
    /// Sets `key` of `table` to `value`, or removes it.
    pub(super) fn put(&mut self, table: Table, key: Vec<u8>, value: Option<Vec<u8>>) {
        match self.0.iter_mut().find(|(known, _)| *known == table) {
            Some((_, rows)) => drop(rows.insert(key, value)),
            None => self.0.push((table, Rows::from([(key, value)]))),
        }
    }

    /// Returns the new value of `key` in `table`, if it changed.
    pub(super) fn get(&self, table: Table, key: &[u8]) -> Option<Option<&[u8]>> {
        self.of(table)?.get(key).map(Option::as_deref)
    }

    /// Returns the changed rows of a table, if any.
    pub(super) fn of(&self, table: Table) -> Option<&Rows> {
        self.0.iter().find(|(known, _)| *known == table).map(|(_, rows)| rows)
    }

    /// Returns the changed tables with their rows.
    pub(super) fn tables(&self) -> &[(Table, Rows)] {
        &self.0
    }

    /// Returns the number of changed rows.
    pub(super) fn count(&self) -> usize {
        self.0.iter().map(|(_, rows)| rows.len()).sum()
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Calls `each` with the rows of `below` after applying these changes.
    ///
    /// # Errors
    /// Errors of `below` and of `each`.
    pub(super) fn scan_over(
        &self,
        below: &dyn Read,
        table: Table,
        (from, to): (&[u8], &[u8]),
        order: Order,
        on_damage: OnDamage,
        each: &mut RowCallback<'_>,
    ) -> Result<(), StoreError> {
        if from >= to {
            return Ok(());
        }
        let Some(rows) = self.of(table) else { return below.scan_with(table, (from, to), order, on_damage, each) };
        let range = rows.range::<[u8], _>((Included(from), Excluded(to)));
        let mut changed = MergeCursor(InOrder { range, order }.peekable());
        let mut flow = ControlFlow::Continue(());
        below.scan_with(table, (from, to), order, on_damage, &mut |key, value| {
            flow = changed.pass(each, |changed| order.is_before(changed, key))?;
            if flow.is_continue() {
                flow = match changed.0.next_if(|(changed, _)| *changed == key) {
                    Some((key, Some(value))) => each(key, value)?,
                    Some((_, None)) => ControlFlow::Continue(()),
                    None => each(key, value)?,
                };
            }
            Ok(flow)
        })?;
        // Pass the changed rows after the last row of `below`.
        if flow.is_continue() { changed.pass(each, |_| true).map(drop) } else { Ok(()) }
    }

    /// Returns all changed rows, table by table.
    pub(super) fn into_rows(self) -> impl Iterator<Item = (Table, Vec<u8>, Option<Vec<u8>>)> {
        self.0.into_iter().flat_map(|(table, rows)| rows.into_iter().map(move |(key, value)| (table, key, value)))
    }

    /// Writes the changes into `transaction`, each value with its checksum.
    ///
    /// # Errors
    /// Database errors.
    pub(super) fn write_to(&self, transaction: &WriteTransaction) -> Result<(), StoreError> {
        let mut stored = Vec::new();
        for (table, rows) in &self.0 {
            let mut opened = transaction.open_table(table.definition())?;
            for (key, value) in rows {
                match value {
                    Some(value) => {
                        checksum::store(table.name(), key, value, &mut stored);
                        drop(opened.insert(key.as_slice(), stored.as_slice())?);
                    }
                    None => drop(opened.remove(key.as_slice())?),
                }
            }
        }
        Ok(())
    }
}

/// Changes in a range that the scan has not passed yet, in scan order.
struct MergeCursor<'a>(Peekable<InOrder<'a>>);

impl<'a> MergeCursor<'a> {
    /// Calls `each` with the next changed rows as long as `is_next` accepts their keys. Removed rows are skipped.
    fn pass(
        &mut self,
        each: &mut RowCallback<'_>,
        is_next: impl Fn(&[u8]) -> bool,
    ) -> Result<ControlFlow<()>, StoreError> {
        while let Some((key, value)) = self.0.next_if(|(key, _)| is_next(key)) {
            if let Some(value) = value
                && each(key, value)?.is_break()
            {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}

struct InOrder<'a> {
    range: btree_map::Range<'a, Vec<u8>, Option<Vec<u8>>>,
    order: Order,
}

impl<'a> Iterator for InOrder<'a> {
    type Item = (&'a [u8], Option<&'a [u8]>);

    fn next(&mut self) -> Option<Self::Item> {
        let next = match self.order {
            Order::Ascending => self.range.next(),
            Order::Descending => self.range.next_back(),
        };
        next.map(|(key, value)| (key.as_slice(), value.as_deref()))
    }
}
