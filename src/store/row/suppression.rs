//! A suppressed address (contract 6).

use std::str::FromStr;

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

/// The text is no reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be one of bounce, complaint, unsubscribe, manual, import")]
pub struct InvalidSuppressionReason;

impl SuppressionReason {
    /// All of them, in the contract's order.
    pub const ALL: [Self; 5] = [Self::Bounce, Self::Complaint, Self::Unsubscribe, Self::Manual, Self::Import];

    /// The name on every interface.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Bounce => "bounce",
            Self::Complaint => "complaint",
            Self::Unsubscribe => "unsubscribe",
            Self::Manual => "manual",
            Self::Import => "import",
        }
    }
}

impl FromStr for SuppressionReason {
    type Err = InvalidSuppressionReason;
    fn from_str(text: &str) -> Result<Self, InvalidSuppressionReason> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == text).ok_or(InvalidSuppressionReason)
    }
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
