//! A suspended account: it may look, but change and send nothing, and its queue is on hold; the key is the account.

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
    /// The operator's reason, which the account is shown.
    pub reason: SuspensionReason,
}

impl Row for SuspensionRow {
    const TABLE: Table = Table::Suspensions;
}
