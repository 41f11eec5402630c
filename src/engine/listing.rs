//! Pages of a list, newest first. A page ends at an identifier, and the next begins strictly before it. Rows added or
//! removed between two pages are not repeated, and cause no other row to be skipped (contract 4).

use std::ops::ControlFlow;

use super::Engine;
use crate::base::id::Ulid;
use crate::base::time::Timestamp;
use crate::store::error::StoreError;
use crate::store::read::{Order, Read, after_prefix, sound};
use crate::store::row::Row;

impl Engine {
    /// Returns the bound on the identifiers of rows from before this time. After a clock that was ahead was corrected,
    /// new identifiers have later times than their rows. A time that has not passed therefore includes all identifiers.
    pub fn bound_of_ids(&self, before: Option<Timestamp>) -> Option<Timestamp> {
        let before = before?;
        if before < self.clock.now() {
            return Some(before);
        }
        // If the store fails, so does the listing.
        let newest = self.store.newest_id().unwrap_or_default();
        Some(before.max(newest.timestamp().moved_by(1)))
    }
}

/// Position and size of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageRequest {
    /// Only rows strictly before this identifier; `None` for the newest page.
    pub before: Option<Ulid>,
    /// Maximum number of rows.
    pub limit: usize,
}

/// One page.
#[derive(Debug)]
pub struct Page<T> {
    /// The rows, newest first.
    pub rows: Vec<T>,
    /// Start of the next page; `None` at the end.
    pub next: Option<Ulid>,
}

impl<T> Page<T> {
    /// Builds a page from `rows` with their identifiers. If there is one row more than `limit`, another page follows.
    pub(super) fn cut(mut rows: Vec<(Ulid, T)>, limit: usize) -> Self {
        let more = rows.len() > limit;
        rows.truncate(limit);
        let next = rows.last().filter(|_| more).map(|(id, _)| *id);
        Self { rows: rows.into_iter().map(|(_, row)| row).collect(), next }
    }
}

/// Returns the range of keys that consist of `prefix` and an identifier before `before`.
pub(super) fn range(prefix: &[u8], before: Option<Ulid>) -> (Vec<u8>, Vec<u8>) {
    let to = before.map_or_else(|| after_prefix(prefix), |before| [prefix, &before.0].concat());
    (prefix.to_vec(), to)
}

/// Returns a page of the rows whose keys consist of `prefix` and an identifier.
pub(super) fn rows<R: Row>(
    read: &impl Read,
    prefix: &[u8],
    request: PageRequest,
) -> Result<Page<(Ulid, R)>, StoreError> {
    let (from, to) = range(prefix, request.before);
    let mut found = Vec::new();
    read.scan_sound(R::TABLE, &from, &to, Order::Descending, &mut |key, bytes| {
        if let Some(id) = last_id(key) {
            found.extend(sound(R::decode(bytes))?.map(|row| (id, (id, row))));
        }
        Ok(until(found.len() > request.limit))
    })?;
    Ok(Page::cut(found, request.limit))
}

/// Returns the identifier at the end of a key.
pub(super) fn last_id(key: &[u8]) -> Option<Ulid> {
    key.last_chunk().copied().map(Ulid)
}

/// Continues until `done`.
pub(super) const fn until(done: bool) -> ControlFlow<()> {
    if done { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}
