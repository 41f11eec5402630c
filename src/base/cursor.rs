//! Opaque cursors: the place at which a listing continues, and its filters (contract 1).
//!
//! A cursor contains its filters, so it may be given without them. It also contains its account and list, so that it is
//! refused elsewhere. It names a place between rows, not a row, so it stays valid when its row is removed. A checksum
//! detects a cursor that was cut off or changed on its way.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use super::digest::sha256;
use super::id::{AccountId, Ulid};

const VERSION: u8 = 2;

/// Number of bytes of the checksum, the first of the SHA-256 of the content, which it follows.
const CHECKSUM: usize = 4;

/// Decoded content of a cursor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cursor {
    /// Version of this encoding.
    version: u8,
    /// Name of the list, such as `events`.
    pub list: String,
    /// Account of the list.
    pub account: AccountId,
    /// Rows strictly before this identifier come next.
    pub before: Ulid,
    /// The filters of the first page, name and value, in name order.
    pub filters: Vec<(String, String)>,
}

/// Error: the text is not a cursor of this list and account with these filters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("is not a cursor of this list with these filters; start again without one")]
pub struct InvalidCursor;

impl Cursor {
    /// Creates a cursor for the rows before `before`.
    pub fn new(list: &str, account: AccountId, before: Ulid, filters: Vec<(String, String)>) -> Self {
        Self { version: VERSION, list: list.to_owned(), account, before, filters }
    }

    /// Returns the opaque text for the caller.
    pub fn encode(&self) -> String {
        let mut bytes = postcard::to_stdvec(self).unwrap_or_default();
        bytes.extend(checksum(&bytes));
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// Decodes a cursor for `list` of `account`. `filters` are those of the request, and may be empty.
    ///
    /// # Errors
    /// [`InvalidCursor`] if the text is damaged or belongs to another list, account or set of filters.
    pub fn decode(
        text: &str,
        list: &str,
        account: AccountId,
        filters: &[(String, String)],
    ) -> Result<Self, InvalidCursor> {
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| InvalidCursor)?;
        let (content, sum) = bytes.split_last_chunk().ok_or(InvalidCursor)?;
        if *sum != checksum(content) {
            return Err(InvalidCursor);
        }
        let cursor: Self = postcard::from_bytes(content).map_err(|_| InvalidCursor)?;
        let fits = cursor.version == VERSION
            && cursor.list == list
            && cursor.account == account
            && (filters.is_empty() || filters == cursor.filters);
        if fits { Ok(cursor) } else { Err(InvalidCursor) }
    }
}

fn checksum(content: &[u8]) -> [u8; CHECKSUM] {
    *sha256(content).first_chunk().unwrap_or(&[0; CHECKSUM])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_works_without_filters_and_is_refused_with_others_or_for_another_account() {
        let account = AccountId(Ulid([1; 16]));
        let filters = vec![("type".to_owned(), "delivered".to_owned())];
        let cursor = Cursor::new("events", account, Ulid([9; 16]), filters.clone());
        let text = cursor.encode();
        assert_eq!(Cursor::decode(&text, "events", account, &[]).as_ref(), Ok(&cursor));
        assert_eq!(Cursor::decode(&text, "events", account, &filters).as_ref(), Ok(&cursor));
        let other = [("type".to_owned(), "bounced".to_owned())];
        assert!(Cursor::decode(&text, "events", account, &other).is_err());
        assert!(Cursor::decode(&text, "messages", account, &[]).is_err());
        assert!(Cursor::decode(&text, "events", AccountId(Ulid([2; 16])), &[]).is_err());
        assert!(Cursor::decode("%%%", "events", account, &[]).is_err());
    }

    #[test]
    fn a_cursor_with_any_changed_added_or_missing_character_is_refused() {
        let account = AccountId(Ulid([1; 16]));
        let text = Cursor::new("events", account, Ulid([9; 16]), vec![("to".to_owned(), "a".to_owned())]).encode();
        let is_refused = |text: &str| Cursor::decode(text, "events", account, &[]).is_err();
        for place in 0..text.len() {
            assert!(is_refused(&text[..place]), "cut off after {place}");
            for other in ["A", "B", "z", "_"].into_iter().filter(|other| text[place..=place] != **other) {
                assert!(is_refused(&format!("{}{other}{}", &text[..place], &text[place + 1..])), "{other} at {place}");
            }
        }
        for added in ["A", "AA", "AAA", "AAAA"] {
            assert!(is_refused(&format!("{text}{added}")), "{added}");
        }
    }
}
