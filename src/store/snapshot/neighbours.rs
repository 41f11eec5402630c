//! Proof that a row is absent. A damaged key hides its row: a lookup ends beside it or takes a wrong branch. So a
//! lookup without a result checks the rows on both sides of the place where it ended. The row counts as absent only if
//! they are intact and in order.

use redb::{AccessGuard, ReadOnlyTable, ReadableTableMetadata as _, StorageError};

use crate::store::checksum::Values;
use crate::store::read::Order;
use crate::store::schema::Table;

type NeighbourTable = ReadOnlyTable<&'static [u8], &'static [u8]>;
type Entry<'a> = (AccessGuard<'a, &'static [u8]>, AccessGuard<'a, &'static [u8]>);

/// Maximum number of damaged rows that are skipped on each side. A few may have damaged values; more mean a damaged
/// page.
const PASSED: usize = 4;

/// The rows on one side of a place.
#[derive(PartialEq, Eq)]
enum Side {
    /// The nearest intact row is on this side, and no damaged row before it belongs to the place.
    Sound,
    /// There are no rows.
    Empty,
    /// The missing row may be here.
    InDoubt,
}

/// Returns whether there is no row at `key`, after a lookup found none.
///
/// # Errors
/// Errors of redb.
pub(super) fn is_absent(
    opened: &NeighbourTable,
    values: Values,
    table: Table,
    key: &[u8],
) -> Result<bool, StorageError> {
    let after = side(opened.range::<&[u8]>(key..)?, values, (table, key), Order::Ascending)?;
    let before = before(opened, values, table, key)?;
    let is_seemingly_empty = before == Side::Empty && after == Side::Empty;
    Ok(before != Side::InDoubt && after != Side::InDoubt && (!is_seemingly_empty || opened.len()? == 0))
}

/// Returns whether a scan that begins at `key` misses no row before its first.
///
/// # Errors
/// Errors of redb.
pub(super) fn begins_at(
    opened: &NeighbourTable,
    values: Values,
    table: Table,
    key: &[u8],
) -> Result<bool, StorageError> {
    Ok(before(opened, values, table, key)? != Side::InDoubt)
}

fn before(opened: &NeighbourTable, values: Values, table: Table, key: &[u8]) -> Result<Side, StorageError> {
    side(opened.range::<&[u8]>(..key)?.rev(), values, (table, key), Order::Descending)
}

/// Checks one side. `rows` begin next to `key` and lead away from it.
fn side<'a>(
    rows: impl Iterator<Item = Result<Entry<'a>, StorageError>>,
    values: Values,
    (table, key): (Table, &[u8]),
    order: Order,
) -> Result<Side, StorageError> {
    let mut side = Side::Empty;
    for (number, row) in rows.enumerate() {
        let (found, stored) = row?;
        let is_sound = values.open(table.name(), found.value(), stored.value()).is_some();
        if is_sound && order.is_before(key, found.value()) {
            return Ok(Side::Sound);
        }
        let is_of_key = values.open(table.name(), key, stored.value()).is_some();
        if is_sound || is_of_key || number == PASSED {
            return Ok(Side::InDoubt);
        }
        side = Side::Sound;
    }
    Ok(side)
}
