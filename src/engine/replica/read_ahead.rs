//! Reads the slots of a log in order. A reader that is behind fetches several slots at once.

use std::collections::VecDeque;

use super::error::ReplicaError;
use super::objects::{ReplicaObjects, Slot};
use crate::engine::bucket::join_all;

/// Slots that were found one after the other before several are fetched at once.
const SINGLE: usize = 4;
/// Maximum slots that are fetched at once.
const WIDTH_MAX: usize = 16;
/// Maximum size of the slots that are fetched at once, in bytes.
const BYTES_MAX: u64 = 64 << 20;

/// A reader of slots.
#[derive(Default)]
pub(super) struct ReadAhead {
    found: VecDeque<Slot>,
    /// The slot that was missing at the last fetch.
    missing: Option<u64>,
    /// Slots found since one was missing.
    hits: usize,
    /// Size of the largest slot of the last fetch.
    largest: u64,
}

impl ReadAhead {
    /// Returns the slot `number`, if the log has it.
    ///
    /// # Errors
    /// The bucket; an object that does not open.
    pub(super) async fn next(&mut self, objects: &ReplicaObjects, number: u64) -> Result<Option<Slot>, ReplicaError> {
        if let Some(slot) = self.found.pop_front().filter(|slot| slot.link.head.number == number) {
            return Ok(Some(slot));
        }
        self.found.clear();
        self.fetch(objects, number).await?;
        Ok(self.found.pop_front())
    }

    /// Returns whether the last fetch found the slots before `number`, but not `number`.
    pub(super) fn ended_at(&self, number: u64) -> bool {
        self.missing == Some(number) && self.found.is_empty()
    }

    /// Fetches several slots next, because the log is growing.
    pub(super) fn widen(&mut self) {
        (self.hits, self.missing) = (self.hits.max(SINGLE * 2), None);
    }

    async fn fetch(&mut self, objects: &ReplicaObjects, first: u64) -> Result<(), ReplicaError> {
        let fitting = usize::try_from(BYTES_MAX / self.largest.max(1)).unwrap_or(WIDTH_MAX);
        let width = if self.hits < SINGLE { 1 } else { self.hits.min(WIDTH_MAX).min(fitting).max(1) };
        let answers = join_all((first..).take(width).map(|number| objects.slot(number))).await;
        (self.missing, self.largest) = (None, 0);
        for (number, answer) in (first..).zip(answers) {
            match answer {
                Ok(Some(slot)) => {
                    self.largest = self.largest.max(slot.size);
                    self.found.push_back(slot);
                    self.hits += 1;
                }
                Ok(None) => {
                    (self.missing, self.hits) = (Some(number), 0);
                    break;
                }
                Err(error) if number == first => return Err(error),
                // It is fetched again once it is the next slot.
                Err(_) => break,
            }
        }
        Ok(())
    }
}
