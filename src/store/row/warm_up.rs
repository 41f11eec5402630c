//! Number of messages that a relay in warm-up has delivered to a site today. Row key: relay and site.

use serde::{Deserialize, Serialize};

use super::Row;
use crate::store::schema::Table;

/// The count of one UTC day. The next day's count replaces it in the same row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WarmUpRow {
    /// Days since 1970-01-01 UTC.
    pub day: u32,
    /// Messages that the site accepted on that day.
    pub messages: u32,
}

impl Row for WarmUpRow {
    const TABLE: Table = Table::WarmUps;
}
