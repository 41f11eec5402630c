//! What a batch changed, row by row, as bytes: what the journal keeps of it. Tables go by name and rows as they are, so
//! that laying them over the database again needs nothing of the code that made them.
//!
//! `count, (length, name)*` of the tables, then for each row `table, length of the key, length of the value, key,
//! value`; a row that was removed has [`REMOVED`] for a length and no value. Integers are little-endian. Bodies that
//! the record carries stand among the rows, under a name that no table has.

use crate::store::content::Carried;
use crate::store::error::StoreError;
use crate::store::schema::Table;

/// The length of a value that is not there any more. No value is that long: the database takes 3 GiB.
const REMOVED: u32 = u32::MAX;
/// Where bodies stand.
pub(super) const BODIES: &str = "content";

/// The changed rows of a batch, in the order in which they changed.
#[derive(Default)]
pub(in crate::store) struct Redo {
    tables: Vec<&'static str>,
    rows: Vec<u8>,
}

/// One row, as it is to be.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Change<'a> {
    pub(super) table: &'a str,
    pub(super) key: &'a [u8],
    /// None where the row is to be removed.
    pub(super) value: Option<&'a [u8]>,
}

impl Redo {
    /// Notes that `key` of `table` has `value` now, or none.
    pub(in crate::store) fn note(&mut self, table: Table, key: &[u8], value: Option<&[u8]>) {
        self.note_in(table.name(), key, value);
    }

    /// Carries a body.
    pub(in crate::store) fn carry(&mut self, body: &Carried) {
        self.note_in(BODIES, &body.key(), Some(&body.sealed));
    }

    fn note_in(&mut self, table: &'static str, key: &[u8], value: Option<&[u8]>) {
        let index = self.tables.iter().position(|known| *known == table).unwrap_or_else(|| {
            self.tables.push(table);
            self.tables.len() - 1
        });
        self.rows.push(u8::try_from(index).unwrap_or_else(|_| unreachable!("there are fewer than 256 tables")));
        self.rows.extend(length(key.len()).to_le_bytes());
        self.rows.extend(value.map_or(REMOVED, |value| length(value.len())).to_le_bytes());
        self.rows.extend(key);
        self.rows.extend(value.unwrap_or_default());
    }

    /// Writes the bytes behind those in `bytes`.
    pub(super) fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.push(byte(self.tables.len()));
        for table in &self.tables {
            bytes.push(byte(table.len()));
            bytes.extend(table.as_bytes());
        }
        bytes.extend(&self.rows);
    }
}

fn byte(count: usize) -> u8 {
    u8::try_from(count).unwrap_or_else(|_| unreachable!("tables and their names are fewer and shorter than 256"))
}

fn length(octets: usize) -> u32 {
    u32::try_from(octets).unwrap_or_else(|_| unreachable!("the database takes keys and values up to 3 GiB"))
}

/// The changes that `bytes` tell of.
///
/// # Errors
/// Bytes that [`Redo::encode`] does not make.
pub(super) fn decode(bytes: &[u8]) -> Result<Vec<Change<'_>>, StoreError> {
    let damaged = || StoreError::Database("the journal has a record that can't be read".to_owned());
    let mut rest = Rest(bytes);
    let tables = rest.byte().ok_or_else(damaged)?;
    let mut names = Vec::with_capacity(usize::from(tables));
    for _ in 0..tables {
        names.push(rest.name().ok_or_else(damaged)?);
    }
    let mut changes = Vec::new();
    while !rest.0.is_empty() {
        changes.push(rest.change(&names).ok_or_else(damaged)?);
    }
    Ok(changes)
}

/// What is not read yet.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    fn length(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    fn name(&mut self) -> Option<&'a str> {
        let length = self.byte()?;
        std::str::from_utf8(self.take(usize::from(length))?).ok()
    }

    fn change(&mut self, names: &[&'a str]) -> Option<Change<'a>> {
        let table = names.get(usize::from(self.byte()?))?;
        let (key, value) = (self.length()?, self.length()?);
        let key = self.take(key as usize)?;
        let value = if value == REMOVED { None } else { Some(self.take(value as usize)?) };
        Some(Change { table, key, value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(redo: &Redo) -> Vec<u8> {
        let mut bytes = Vec::new();
        redo.encode(&mut bytes);
        bytes
    }

    #[test]
    fn what_was_noted_is_read_again_in_its_order() {
        let mut redo = Redo::default();
        redo.note(Table::Messages, b"key", Some(b"value"));
        redo.note(Table::Timers, b"due", Some(b""));
        redo.note(Table::Messages, b"", None);
        let change = |table: Table, key, value| Change { table: table.name(), key, value };
        assert_eq!(
            decode(&encoded(&redo)).unwrap(),
            [
                change(Table::Messages, b"key", Some(b"value".as_slice())),
                change(Table::Timers, b"due", Some(b"")),
                change(Table::Messages, b"", None),
            ]
        );
        assert_eq!(decode(&encoded(&Redo::default())).unwrap(), []);
    }

    #[test]
    fn no_table_has_the_name_under_which_bodies_stand() {
        assert!(Table::ALL.iter().all(|table| table.name() != BODIES));
    }

    #[test]
    fn bytes_that_end_too_soon_or_name_no_table_are_refused() {
        let mut redo = Redo::default();
        redo.note(Table::Messages, b"key", Some(b"value"));
        let whole = encoded(&redo);
        let row_begins = 2 + Table::Messages.name().len();
        for end in (0..whole.len()).filter(|end| *end != row_begins) {
            assert!(decode(&whole[..end]).is_err(), "{end} of {}", whole.len());
        }
        let mut other_table = whole;
        other_table[row_begins] = 1;
        assert!(decode(&other_table).is_err());
    }
}
