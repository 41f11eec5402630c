//! Points in the writer and the appender at which a test can make them panic, as redb does on a damaged page. Outside
//! of tests they do nothing.

#[cfg(test)]
use std::sync::{Mutex, PoisonError};

/// A point at which a thread may panic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Point {
    /// Before a batch is applied.
    Commit,
    /// After a batch is durable and before it is in the database.
    Recorded,
    /// After a batch is in the database and before its callers are answered.
    Published,
    /// Before a checkpoint.
    Checkpoint,
    /// Between two batches.
    Idle,
    /// Before bodies are written.
    Append,
    /// After bodies are written.
    Appended,
}

#[cfg(test)]
impl Point {
    /// All points.
    pub(super) const ALL: [Self; 7] =
        [Self::Commit, Self::Recorded, Self::Published, Self::Checkpoint, Self::Idle, Self::Append, Self::Appended];
}

/// The point at which the next pass panics.
#[cfg(test)]
#[derive(Default)]
pub(super) struct Tripwire(Mutex<Option<(Point, u64)>>);

#[cfg(test)]
impl Tripwire {
    /// Makes a thread panic at `point` after `passes` passes.
    pub(super) fn set(&self, point: Point, passes: u64) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((point, passes));
    }

    /// Removes the planned panic.
    pub(super) fn clear(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    pub(super) fn pass(&self, at: Point) {
        let mut set = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *set {
            Some((point, 0)) if *point == at => {
                *set = None;
                drop(set);
                panic!("a panic at {at:?}, as planned by a test");
            }
            Some((point, passes)) if *point == at => *passes -= 1,
            Some(_) | None => {}
        }
    }
}
