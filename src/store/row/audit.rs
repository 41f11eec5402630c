//! A line of the audit log: what somebody changed through the panel, and when.

use serde::{Deserialize, Serialize};

use super::Row;
use crate::base::time::Timestamp;
use crate::domain::audit::{Change, Person};
use crate::store::schema::Table;

/// A line; its key names account and line.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AuditRow {
    /// When.
    pub at: Timestamp,
    /// Who.
    pub person: Person,
    /// What.
    pub change: Change,
}

impl Row for AuditRow {
    const TABLE: Table = Table::AuditLog;
}
