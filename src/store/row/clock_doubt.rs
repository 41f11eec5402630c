//! A doubt about the wall clock, and what came of it.

use serde::{Deserialize, Serialize};

use super::Row;
use crate::base::id::Ulid;
use crate::base::time::Timestamp;
use crate::store::schema::Table;

/// A span in which the wall clock was doubtful. Content that was accepted meanwhile lies in buckets of the doubt's own
/// ([`Bucket::in_doubt`](crate::machine::retention::Bucket::in_doubt)). The row stays, for the ends of those buckets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockDoubtRow {
    /// The service's time at its beginning.
    pub began: Timestamp,
    /// All messages accepted meanwhile have greater identifiers.
    pub after: Ulid,
    /// End of the doubt; `None` while it lasts.
    pub end: Option<DoubtEnd>,
}

/// The end of a doubt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DoubtEnd {
    /// The service's time at the end, before the wall clock was taken over.
    pub until: Timestamp,
    /// Correction of the service's time at the end, in milliseconds.
    pub offset_ms: i64,
    /// Timers that are still to be moved.
    pub rest: Rest,
}

/// The part of the rows that is still to be moved by a doubt's offset.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Rest {
    /// Messages from this key on, then timers.
    Messages(Vec<u8>),
    /// Timers from this key on.
    Timers(Vec<u8>),
    /// Nothing.
    Nothing,
}

impl ClockDoubtRow {
    /// Whether rows are still to be moved.
    pub fn is_unsettled(&self) -> bool {
        self.end.as_ref().is_some_and(|end| end.rest != Rest::Nothing)
    }

    /// Returns the difference between the ends of the doubt's buckets and their names.
    pub fn offset_ms(&self) -> i64 {
        self.end.as_ref().map_or(0, |end| end.offset_ms)
    }
}

impl Row for ClockDoubtRow {
    const TABLE: Table = Table::ClockDoubts;
}
