//! A suspended account: it can read, but not change or send anything, and its queue is on hold. The key is the account.

use serde::{Deserialize, Serialize};

use super::Row;
use crate::base::time::Timestamp;
use crate::domain::account::SuspensionReason;
use crate::store::schema::Table;

/// The suspension of an account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SuspensionRow {
    /// The start of the suspension.
    pub since: Timestamp,
    /// The operator's reason, which the account sees.
    pub reason: SuspensionReason,
}

impl Row for SuspensionRow {
    const TABLE: Table = Table::Suspensions;
}
