//! Row checksums. Every stored value ends with a CRC-32 of its table's name, its key and itself. A read therefore
//! detects a value that was changed on disk or belongs to another row. Checksums are added and checked at the
//! database's edge: operations, rows and the journal handle values without them.
//!
//! A CRC detects random damage: every change of up to 32 adjacent bits, and all but one in four billion others. It does
//! not protect against deliberate changes of the file.

use super::schema::{Table, meta};

/// Number of bytes of a checksum, which follows the value.
const LENGTH: usize = 4;

/// Whether the values of a database carry checksums.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Values {
    /// Values of format 1 have no checksums.
    Plain,
    /// Values of every later format have checksums.
    Checked,
}

impl Values {
    /// Returns the kind of values in a store of this format; `None` is an empty store.
    pub(super) const fn of_format(format: Option<u32>) -> Self {
        match format {
            Some(1) => Self::Plain,
            Some(_) | None => Self::Checked,
        }
    }

    /// Returns the value as the database stores it.
    pub(super) fn stored(self, table: &str, key: &[u8], value: &[u8]) -> Vec<u8> {
        match self {
            Self::Plain => value.to_vec(),
            Self::Checked => stored(table, key, value),
        }
    }

    /// Returns the value from its stored bytes, or `None` if the checksum does not match.
    pub(super) fn open<'a>(self, table: &str, key: &[u8], stored: &'a [u8]) -> Option<&'a [u8]> {
        match self {
            Self::Plain => Some(stored),
            Self::Checked => open(table, key, stored),
        }
    }
}

/// Returns the value followed by its checksum.
pub(super) fn stored(table: &str, key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut stored = Vec::with_capacity(value.len() + LENGTH);
    store(table, key, value, &mut stored);
    stored
}

/// Replaces the content of `stored` by the value followed by its checksum.
pub(super) fn store(table: &str, key: &[u8], value: &[u8], stored: &mut Vec<u8>) {
    stored.clear();
    stored.extend_from_slice(value);
    if !is_bare(table, key) {
        stored.extend_from_slice(&of(table, key, value));
    }
}

/// Returns the value without its checksum, or `None` if the checksum does not match.
pub(super) fn open<'a>(table: &str, key: &[u8], stored: &'a [u8]) -> Option<&'a [u8]> {
    if is_bare(table, key) {
        return Some(stored);
    }
    let (value, checksum) = stored.split_last_chunk::<LENGTH>()?;
    (of(table, key, value) == *checksum).then_some(value)
}

/// Returns whether this is the format row, which has no checksum. Its value says whether the other rows have checksums,
/// and earlier versions of Postrider read it too.
fn is_bare(table: &str, key: &[u8]) -> bool {
    key == meta::FORMAT && table == Table::Meta.name()
}

/// Returns the checksum. Length prefixes separate each part from the next.
fn of(table: &str, key: &[u8], value: &[u8]) -> [u8; LENGTH] {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(table.as_bytes());
    hasher.update(&[0]);
    hasher.update(&key.len().to_le_bytes());
    hasher.update(key);
    hasher.update(value);
    hasher.finalize().to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_opens_only_undamaged_and_under_its_own_key() {
        let sealed = stored("keys", b"key", b"value");
        assert_eq!(open("keys", b"key", &sealed), Some(&b"value"[..]));
        assert_eq!(open("domains", b"key", &sealed), None);
        assert_eq!(open("keys", b"kez", &sealed), None);
        assert_eq!(open("keys", b"keyv", &stored("keys", b"key", b"vvalue")), None);
        for bit in 0..sealed.len() * 8 {
            let mut damaged = sealed.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(open("keys", b"key", &damaged), None, "bit {bit}");
        }
        for length in 0..sealed.len() {
            assert_eq!(open("keys", b"key", &sealed[..length]), None);
        }
        assert_eq!(open("keys", b"key", &[0; 40]), None, "zeros are not a valid row");
    }

    #[test]
    fn the_format_row_has_no_checksum_so_every_version_reads_it() {
        assert_eq!(stored("meta", meta::FORMAT, &[0, 0, 0, 2]), [0, 0, 0, 2]);
        assert_eq!(stored("meta", meta::LAST_ID, &[1]).len(), 5);
        assert_eq!(stored("keys", meta::FORMAT, &[1]).len(), 5);
    }
}
