//! Row checksums. Every stored value ends with a CRC-32 of its table's name, its key and itself, so that a value that
//! was changed on the disk, or belongs to another row, is found when it is read. Called wherever bytes meet the
//! database: operations, rows and the journal know values without checksums.
//!
//! A CRC finds random damage: every change of up to 32 neighbouring bits, and all but one in four thousand million
//! others. It is no protection against somebody who writes to the file on purpose.

use super::schema::{Table, meta};

/// Bytes of a checksum, after the value.
const LENGTH: usize = 4;

/// Whether the values of a database carry checksums.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Values {
    /// Those of format 1 do not.
    Plain,
    /// Those of every later format do.
    Checked,
}

impl Values {
    /// Those of a store of this format; none where the store is empty.
    pub(super) const fn of_format(format: Option<u32>) -> Self {
        match format {
            Some(1) => Self::Plain,
            Some(_) | None => Self::Checked,
        }
    }

    /// The value as a database stores it.
    pub(super) fn stored(self, table: &str, key: &[u8], value: &[u8]) -> Vec<u8> {
        match self {
            Self::Plain => value.to_vec(),
            Self::Checked => stored(table, key, value),
        }
    }

    /// The value of what a database stores, unless its checksum does not fit.
    pub(super) fn open<'a>(self, table: &str, key: &[u8], stored: &'a [u8]) -> Option<&'a [u8]> {
        match self {
            Self::Plain => Some(stored),
            Self::Checked => open(table, key, stored),
        }
    }
}

/// The value with its checksum, as it is stored.
pub(super) fn stored(table: &str, key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut stored = Vec::with_capacity(value.len() + LENGTH);
    store(table, key, value, &mut stored);
    stored
}

/// Replaces what is in `stored` by the value with its checksum.
pub(super) fn store(table: &str, key: &[u8], value: &[u8], stored: &mut Vec<u8>) {
    stored.clear();
    stored.extend_from_slice(value);
    if !is_bare(table, key) {
        stored.extend_from_slice(&of(table, key, value));
    }
}

/// The value without its checksum, unless that does not fit.
pub(super) fn open<'a>(table: &str, key: &[u8], stored: &'a [u8]) -> Option<&'a [u8]> {
    if is_bare(table, key) {
        return Some(stored);
    }
    let (value, checksum) = stored.split_last_chunk::<LENGTH>()?;
    (of(table, key, value) == *checksum).then_some(value)
}

/// The format stands alone: it says whether there are checksums, to earlier versions of this program too.
fn is_bare(table: &str, key: &[u8]) -> bool {
    key == meta::FORMAT && table == Table::Meta.name()
}

/// The lengths keep the end of one part apart from the beginning of the next.
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
    fn a_value_opens_only_whole_and_at_its_own_place() {
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
        assert_eq!(open("keys", b"key", &[0; 40]), None, "zeros are no row");
    }

    #[test]
    fn the_format_has_no_checksum_so_that_every_version_reads_it() {
        assert_eq!(stored("meta", meta::FORMAT, &[0, 0, 0, 2]), [0, 0, 0, 2]);
        assert_eq!(stored("meta", meta::LAST_ID, &[1]).len(), 5);
        assert_eq!(stored("keys", meta::FORMAT, &[1]).len(), 5);
    }
}
