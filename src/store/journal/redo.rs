//! Redo record of a batch: its row changes as bytes, in the journal's format. Tables are named and rows are raw, so
//! that a replay does not depend on the code that made the changes.
//!
//! A version, `count, (length, name)*` of the tables, then for each row `table, length of the key, length of the value,
//! key, value`; a removed row has [`REMOVED`] for a length and no value. Integers are little-endian. Inlined bodies are
//! among the rows, under a name that no table has. Records of format 1 have no version.

use super::record::Layout;
use crate::store::changes::Changes;
use crate::store::content::InlinedBody;
use crate::store::error::StoreError;
use crate::store::schema::Table;

/// Version of payloads that are written now. Records of format 1 have none.
const VERSION: u8 = 2;

/// Length that marks a removed row. No value is that long: the maximum of the database is 3 GiB.
const REMOVED: u32 = u32::MAX;
/// Table name of inlined bodies.
pub(in crate::store) const BODIES: &str = "content";

/// One changed row.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::store) struct Change<'a> {
    pub(in crate::store) table: &'a str,
    pub(in crate::store) key: &'a [u8],
    /// New value; `None` if the row is removed.
    pub(in crate::store) value: Option<&'a [u8]>,
}

/// Appends `changes` and the inlined `bodies` to `bytes`.
pub(super) fn encode(changes: &Changes, bodies: &[InlinedBody], bytes: &mut Vec<u8>) {
    bytes.push(VERSION);
    let tables = changes.tables();
    let names = tables.iter().map(|(table, _)| table.name()).chain([BODIES]);
    bytes.push(byte(tables.len() + 1));
    for name in names {
        bytes.push(byte(name.len()));
        bytes.extend(name.as_bytes());
    }
    for (index, (_, rows)) in tables.iter().enumerate() {
        rows.iter().for_each(|(key, value)| put(bytes, index, key, value.as_deref()));
    }
    bodies.iter().for_each(|body| put(bytes, tables.len(), &body.key(), Some(&body.sealed)));
}

/// Returns a payload with only one body.
pub(in crate::store) fn encode_body(key: &[u8], sealed: &[u8]) -> Vec<u8> {
    let mut bytes = vec![VERSION, 1, byte(BODIES.len())];
    bytes.extend(BODIES.as_bytes());
    put(&mut bytes, 0, key, Some(sealed));
    bytes
}

fn put(bytes: &mut Vec<u8>, table: usize, key: &[u8], value: Option<&[u8]>) {
    bytes.push(byte(table));
    bytes.extend(length(key.len()).to_le_bytes());
    bytes.extend(value.map_or(REMOVED, |value| length(value.len())).to_le_bytes());
    bytes.extend(key);
    bytes.extend(value.unwrap_or_default());
}

fn byte(count: usize) -> u8 {
    u8::try_from(count).unwrap_or_else(|_| unreachable!("tables and their names are fewer and shorter than 256"))
}

fn length(length: usize) -> u32 {
    u32::try_from(length).unwrap_or_else(|_| unreachable!("the database takes keys and values up to 3 GiB"))
}

/// Returns the changes in a record's payload.
///
/// # Errors
/// Bytes that [`encode`] does not produce, or an unknown version.
pub(super) fn decode(layout: Layout, bytes: &[u8]) -> Result<Vec<Change<'_>>, StoreError> {
    let damaged = || StoreError::Database("the journal has a record that can't be read".to_owned());
    let mut rest = UnreadBytes(bytes);
    if layout == Layout::Second {
        match rest.byte().ok_or_else(damaged)? {
            VERSION => {}
            other => {
                let what = format!("the journal has a record of version {other}; use a newer version of Postrider");
                return Err(StoreError::Database(what));
            }
        }
    }
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

/// Returns whether `bytes` begin like a payload of the first layout, with a count of tables and a table's name.
pub(super) fn begins_first_layout(bytes: &[u8]) -> bool {
    let mut rest = UnreadBytes(bytes);
    let count = rest.byte().unwrap_or(0);
    let name = rest.name();
    count > 0 && name.is_some_and(|name| name == BODIES || Table::ALL.iter().any(|table| table.name() == name))
}

/// Bytes that are not decoded yet.
struct UnreadBytes<'a>(&'a [u8]);

impl<'a> UnreadBytes<'a> {
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

    type TestChange = (Table, &'static [u8], Option<&'static [u8]>);

    fn encoded(rows: &[TestChange]) -> Vec<u8> {
        let mut changes = Changes::default();
        rows.iter().for_each(|(table, key, value)| changes.put(*table, key.to_vec(), value.map(<[u8]>::to_vec)));
        let mut bytes = Vec::new();
        encode(&changes, &[], &mut bytes);
        bytes
    }

    #[test]
    fn decodes_an_encoded_payload() {
        let rows: [TestChange; 3] = [
            (Table::Messages, b"", None),
            (Table::Messages, b"key", Some(b"value")),
            (Table::Timers, b"due", Some(b"")),
        ];
        let expected = rows.map(|(table, key, value)| Change { table: table.name(), key, value });
        assert_eq!(decode(Layout::Second, &encoded(&rows)).unwrap(), expected);
        assert_eq!(decode(Layout::Second, &encoded(&[])).unwrap(), []);
    }

    #[test]
    fn a_payload_of_another_version_is_refused() {
        let mut other = encoded(&[(Table::Messages, b"key", Some(b"value"))]);
        let first = other.split_off(1);
        assert_eq!(decode(Layout::First, &first).unwrap().len(), 1, "a payload of format 1 only lacks the version");
        assert!(begins_first_layout(&first));
        other[0] += 1;
        assert!(decode(Layout::Second, &[other, first].concat()).is_err());
    }

    #[test]
    fn no_table_is_named_like_the_entry_for_bodies() {
        assert!(Table::ALL.iter().all(|table| table.name() != BODIES));
    }

    #[test]
    fn refuses_truncated_payloads_and_unknown_tables() {
        let whole = encoded(&[(Table::Messages, b"key", Some(b"value"))]);
        let row_begins = 4 + Table::Messages.name().len() + BODIES.len();
        for end in (0..whole.len()).filter(|end| *end != row_begins) {
            assert!(decode(Layout::Second, &whole[..end]).is_err(), "{end} of {}", whole.len());
        }
        let mut other_table = whole;
        other_table[row_begins] = 2;
        assert!(decode(Layout::Second, &other_table).is_err());
    }
}
