//! Pages of a list, newest first. A page ends at an identifier, and the next begins strictly before it, so rows that
//! come or go between two pages are neither repeated nor make others skipped (contract 4).

use std::ops::ControlFlow;

use crate::base::id::Ulid;
use crate::store::error::StoreError;
use crate::store::read::{Order, Read, after_prefix, sound};
use crate::store::row::Row;

/// Which part of a list is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageRequest {
    /// Rows strictly before this identifier; from the newest on where absent.
    pub before: Option<Ulid>,
    /// Rows at most.
    pub limit: usize,
}

/// One page.
#[derive(Debug)]
pub struct Page<T> {
    /// The rows, newest first.
    pub rows: Vec<T>,
    /// Where the next page begins; none at the end.
    pub next: Option<Ulid>,
}

impl<T> Page<T> {
    /// A page of `rows`, each with its identifier, of which there is one more than asked for where another page
    /// follows.
    pub(super) fn cut(mut rows: Vec<(Ulid, T)>, limit: usize) -> Self {
        let more = rows.len() > limit;
        rows.truncate(limit);
        let next = rows.last().filter(|_| more).map(|(id, _)| *id);
        Self { rows: rows.into_iter().map(|(_, row)| row).collect(), next }
    }
}

/// The keys that begin with `prefix` and go on with an identifier before `before`.
pub(super) fn range(prefix: &[u8], before: Option<Ulid>) -> (Vec<u8>, Vec<u8>) {
    let to = before.map_or_else(|| after_prefix(prefix), |before| [prefix, &before.0].concat());
    (prefix.to_vec(), to)
}

/// A page of the rows whose keys are `prefix` and an identifier.
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

/// The identifier at a key's end.
pub(super) fn last_id(key: &[u8]) -> Option<Ulid> {
    key.last_chunk().copied().map(Ulid)
}

/// Goes on until `done`.
pub(super) const fn until(done: bool) -> ControlFlow<()> {
    if done { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}
