//! A pause: an account's mail for one site waits until it is resumed. Row key: account and site.

use serde::{Deserialize, Serialize};

use super::Row;
use crate::base::time::Timestamp;
use crate::store::schema::Table;

/// A pause of the mail for a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PauseRow {
    /// Start of the pause.
    pub since: Timestamp,
}

impl Row for PauseRow {
    const TABLE: Table = Table::Pauses;
}
