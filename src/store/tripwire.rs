//! Points in the code of the writer and the appender at which a test makes them panic: what redb does on a damaged
//! page. Outside of tests nothing happens there.

#[cfg(test)]
use std::sync::{Mutex, PoisonError};

/// Where a thread may panic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Point {
    /// Before a batch is applied.
    Commit,
    /// After a batch is durable, and before the database has it.
    Recorded,
    /// After the database has a batch, and before its callers are answered.
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
    /// All of them.
    pub(super) const ALL: [Self; 7] =
        [Self::Commit, Self::Recorded, Self::Published, Self::Checkpoint, Self::Idle, Self::Append, Self::Appended];
}

/// The point at which the next passer panics.
#[cfg(test)]
#[derive(Default)]
pub(super) struct Tripwire(Mutex<Option<(Point, u64)>>);

#[cfg(test)]
impl Tripwire {
    /// Has the thread panic that comes to `point` after `passes` others have passed.
    pub(super) fn set(&self, point: Point, passes: u64) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((point, passes));
    }

    /// Lets everybody pass.
    pub(super) fn clear(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    pub(super) fn pass(&self, at: Point) {
        let mut set = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *set {
            Some((point, 0)) if *point == at => {
                *set = None;
                drop(set);
                panic!("a panic at {at:?}, as a test asked for");
            }
            Some((point, passes)) if *point == at => *passes -= 1,
            Some(_) | None => {}
        }
    }
}
