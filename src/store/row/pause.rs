//! A pause: an account's mail for one site waits until somebody resumes it; its key names both.

use serde::{Deserialize, Serialize};

use super::Row;
use crate::base::time::Timestamp;
use crate::store::schema::Table;

/// That mail for a site waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PauseRow {
    /// Since when.
    pub since: Timestamp,
}

impl Row for PauseRow {
    const TABLE: Table = Table::Pauses;
}
