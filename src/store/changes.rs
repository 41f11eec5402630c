//! Rows as they are to be: what an operation changed, what its batch did, what the journal keeps and then the database
//! takes.
//!
//! They lie over whatever was there before: a read asks here first, and a scan goes through both as through one.

use std::collections::{BTreeMap, btree_map};
use std::iter::Peekable;
use std::ops::Bound::{Excluded, Included};
use std::ops::ControlFlow;

use redb::WriteTransaction;

use super::checksum;
use super::error::StoreError;
use super::read::{Each, OnDamage, Order, Read};
use super::schema::Table;

/// Rows by key; none where one is to be removed.
type Rows = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// Changes by table: few tables, in the order in which they were first changed.
#[derive(Default)]
pub(super) struct Changes(Vec<(Table, Rows)>);

impl Changes {
    /// Has `key` of `table` have `value`, or none.
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

    /// The changed rows of a table, where there are any.
    pub(super) fn of(&self, table: Table) -> Option<&Rows> {
        self.0.iter().find(|(known, _)| *known == table).map(|(_, rows)| rows)
    }

    /// The tables that have changes, with those.
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

    /// Calls `each` with the rows of `below` as they are with these changes.
    ///
    /// # Errors
    /// Those of `below`, and those of `each`.
    pub(super) fn scan_over(
        &self,
        below: &dyn Read,
        table: Table,
        (from, to): (&[u8], &[u8]),
        order: Order,
        on_damage: OnDamage,
        each: &mut Each<'_>,
    ) -> Result<(), StoreError> {
        if from >= to {
            return Ok(());
        }
        let Some(rows) = self.of(table) else { return below.scan_with(table, (from, to), order, on_damage, each) };
        let range = rows.range::<[u8], _>((Included(from), Excluded(to)));
        let mut changed = Turn(InOrder { range, order }.peekable());
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
        // Those behind the last row of `below`; whether they were the last for `each` says nothing any more.
        if flow.is_continue() { changed.pass(each, |_| true).map(drop) } else { Ok(()) }
    }

    /// All of them, table by table.
    pub(super) fn into_rows(self) -> impl Iterator<Item = (Table, Vec<u8>, Option<Vec<u8>>)> {
        self.0.into_iter().flat_map(|(table, rows)| rows.into_iter().map(move |(key, value)| (table, key, value)))
    }

    /// Writes them into `transaction`, each value with its checksum.
    ///
    /// # Errors
    /// Those of the database.
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

/// The changes of a range that are not passed yet, in the order of a scan.
struct Turn<'a>(Peekable<InOrder<'a>>);

impl<'a> Turn<'a> {
    /// Calls `each` with those that are there while `is_next` says so of their keys.
    fn pass(&mut self, each: &mut Each<'_>, is_next: impl Fn(&[u8]) -> bool) -> Result<ControlFlow<()>, StoreError> {
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
