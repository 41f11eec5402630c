//! A suppressed address (contract 6).

use serde::{Deserialize, Serialize};

use super::Row;
use crate::base::id::{MessageId, SuppressionId};
use crate::base::time::Timestamp;
use crate::store::schema::Table;

/// Why an address is suppressed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SuppressionReason {
    /// Mail to it bounced for good.
    Bounce,
    /// Its owner complained.
    Complaint,
    /// Its owner unsubscribed.
    Unsubscribe,
    /// The account asked for it.
    Manual,
    /// It was imported.
    Import,
}

/// A suppression; its key names account and address.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SuppressionRow {
    /// Its identifier.
    pub id: SuppressionId,
    /// The address as it was given.
    pub email: String,
    /// Why.
    pub reason: SuppressionReason,
    /// The message that led to it.
    pub message: Option<MessageId>,
    /// The answer's code.
    pub smtp_code: Option<u16>,
    /// The answer as received.
    pub smtp_response: Option<String>,
    /// The account's own words.
    pub note: Option<String>,
    /// When.
    pub created_at: Timestamp,
}

impl Row for SuppressionRow {
    const TABLE: Table = Table::Suppressions;
}
