//! Reads the slots of a log in order. A reader that is behind fetches several slots at once.
//!
//! Memory is bounded: fetched slots stay sealed until it is their turn, and only the first of a fetch may be large. A
//! slot may have a hundred times its size once it is opened.

use std::collections::VecDeque;

use bytes::Bytes;

use super::error::ReplicaError;
use super::objects::{ReplicaObjects, Slot};
use crate::engine::bucket::join_all;
use crate::store::replica::ObjectName;

/// Number of slots that must be found one after the other before several are fetched at once.
const SINGLE: usize = 4;
/// Maximum number of slots that are fetched at once.
const WIDTH_MAX: usize = 16;
/// Maximum size of a slot that is fetched before its turn, in bytes. Larger ones are fetched alone.
pub(super) const AHEAD_BYTES_MAX: u64 = 4 << 20;

/// A reader of slots.
#[derive(Default)]
pub(super) struct ReadAhead {
    /// Sealed slots with their numbers.
    found: VecDeque<(u64, Bytes)>,
    /// The slot that was missing at the last fetch.
    missing: Option<u64>,
    /// Slots found since one was missing.
    hits: usize,
}

impl ReadAhead {
    /// Returns the slot `number`, if the log has it.
    ///
    /// # Errors
    /// Errors of the bucket; an object that does not open.
    pub(super) async fn next(&mut self, objects: &ReplicaObjects, number: u64) -> Result<Option<Slot>, ReplicaError> {
        if self.found.front().is_none_or(|(found, _)| *found != number) {
            self.fetch(objects, number).await?;
        }
        let Some((number, bytes)) = self.found.pop_front() else { return Ok(None) };
        objects.open_slot(number, &bytes).map(Some)
    }

    /// Returns whether the last fetch found the slots before `number`, but not `number`.
    pub(super) fn ended_at(&self, number: u64) -> bool {
        self.missing == Some(number) && self.found.is_empty()
    }

    /// Returns the size of the slots that are kept until it is their turn.
    #[cfg(test)]
    pub(super) fn bytes_ahead(&self) -> usize {
        self.found.iter().map(|(_, bytes)| bytes.len()).sum()
    }

    /// Fetches several slots next, because the log is growing.
    pub(super) fn widen(&mut self) {
        (self.hits, self.missing) = (self.hits.max(SINGLE * 2), None);
    }

    async fn fetch(&mut self, objects: &ReplicaObjects, first: u64) -> Result<(), ReplicaError> {
        (self.missing, self.found) = (None, VecDeque::new());
        let width = if self.hits < SINGLE { 1 } else { self.hits.min(WIDTH_MAX) };
        let answers = join_all((first..).take(width).map(|number| async move {
            let name = ObjectName::Slot(number).to_string();
            match number == first {
                true => objects.bucket.read(&name).await,
                // One byte more shows whether the slot is larger.
                false => objects.bucket.read_range(&name, 0, AHEAD_BYTES_MAX + 1).await,
            }
        }));
        for (number, answer) in (first..).zip(answers.await) {
            match answer {
                Ok(Some(bytes)) if number == first || bytes.len() as u64 <= AHEAD_BYTES_MAX => {
                    self.found.push_back((number, bytes));
                    self.hits += 1;
                }
                Ok(None) => {
                    (self.missing, self.hits) = (Some(number), 0);
                    break;
                }
                Err(error) if number == first => return Err(error.into()),
                // The slot is fetched again once it is the next one.
                Ok(Some(_)) | Err(_) => break,
            }
        }
        Ok(())
    }
}
