//! A doubt about the wall clock, and its result.

use serde::{Deserialize, Serialize};

use super::Row;
use crate::base::id::Ulid;
use crate::base::time::Timestamp;
use crate::store::schema::Table;

/// A period in which the wall clock was doubtful. Content that was accepted in it is in separate buckets of the doubt
/// ([`Bucket::in_doubt`](crate::machine::retention::Bucket::in_doubt)). The row is kept for the ends of those buckets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockDoubtRow {
    /// The service's time at the beginning of the period.
    pub began: Timestamp,
    /// An identifier lower than those of all messages accepted in the period.
    pub after: Ulid,
    /// End of the doubt; `None` while it has not ended.
    pub end: Option<DoubtEnd>,
}

/// The end of a doubt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DoubtEnd {
    /// The service's time at the end, before it was set to the wall clock.
    pub until: Timestamp,
    /// Correction of the service's time at the end, in milliseconds.
    pub offset_ms: i64,
    /// Rows that have still to be moved.
    pub rest: UnmovedRows,
}

/// Rows that have still to be moved by a doubt's offset.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum UnmovedRows {
    /// Messages from this key on, then deliveries or timers.
    Messages(Vec<u8>),
    /// Timers from this key on.
    Timers(Vec<u8>),
    /// No rows.
    Nothing,
    /// Deliveries from this key on.
    Deliveries(Vec<u8>),
}

impl ClockDoubtRow {
    /// Returns whether some rows have still to be moved.
    pub fn is_unsettled(&self) -> bool {
        self.end.as_ref().is_some_and(|end| end.rest != UnmovedRows::Nothing)
    }

    /// Returns the offset of the ends of the doubt's buckets from their names.
    pub fn offset_ms(&self) -> i64 {
        self.end.as_ref().map_or(0, |end| end.offset_ms)
    }
}

impl Row for ClockDoubtRow {
    const TABLE: Table = Table::ClockDoubts;
}
