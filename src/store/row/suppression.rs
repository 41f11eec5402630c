//! A suppressed address, and an import of many (contract 6).

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::Row;
use crate::base::id::{MessageId, SuppressionId, Ulid};
use crate::base::time::Timestamp;
use crate::store::schema::Table;

/// Reason for a suppression.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SuppressionReason {
    /// Mail to the address bounced permanently.
    Bounce,
    /// The address's owner complained.
    Complaint,
    /// The address's owner unsubscribed.
    Unsubscribe,
    /// The account requested the suppression.
    Manual,
    /// The account imported the suppression.
    Import,
}

/// Error for an unknown reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be one of bounce, complaint, unsubscribe, manual, import")]
pub struct InvalidSuppressionReason;

impl SuppressionReason {
    /// All reasons, in the contract's order.
    pub const ALL: [Self; 5] = [Self::Bounce, Self::Complaint, Self::Unsubscribe, Self::Manual, Self::Import];

    /// Returns the name on every interface.
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

/// A suppression. Row key: account and address.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SuppressionRow {
    /// Identifier.
    pub id: SuppressionId,
    /// The address as given.
    pub email: String,
    /// Reason of the suppression.
    pub reason: SuppressionReason,
    /// The message that caused the suppression.
    pub message: Option<MessageId>,
    /// SMTP code of the reply.
    pub smtp_code: Option<u16>,
    /// The reply as received.
    pub smtp_response: Option<String>,
    /// The account's note.
    pub note: Option<String>,
    /// Time of creation.
    pub created_at: Timestamp,
    /// The import that wrote the suppression in batches. The suppression takes effect once the import has finished.
    pub import: Option<Ulid>,
}

impl Row for SuppressionRow {
    const TABLE: Table = Table::Suppressions;
    const VERSION: u8 = 2;

    fn decode_earlier(version: u8, bytes: &[u8]) -> Option<postcard::Result<Self>> {
        (version == 1).then(|| postcard::from_bytes::<SuppressionV1>(bytes).map(Self::from))
    }
}

/// Version 1 had no imports.
#[derive(Deserialize)]
#[cfg_attr(test, derive(Serialize))]
struct SuppressionV1 {
    id: SuppressionId,
    email: String,
    reason: SuppressionReason,
    message: Option<MessageId>,
    smtp_code: Option<u16>,
    smtp_response: Option<String>,
    note: Option<String>,
    created_at: Timestamp,
}

impl From<SuppressionV1> for SuppressionRow {
    fn from(row: SuppressionV1) -> Self {
        let SuppressionV1 { id, email, reason, message, smtp_code, smtp_response, note, created_at } = row;
        Self { id, email, reason, message, smtp_code, smtp_response, note, created_at, import: None }
    }
}

/// An account's unfinished import. Its key names the account, so there is at most one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SuppressionImportRow {
    /// Identifier of the import. The identifiers of its suppressions are greater.
    pub id: Ulid,
    /// Progress of the import.
    pub stage: ImportStage,
}

/// The progress of an import.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ImportStage {
    /// The import's suppressions are being written, or removed again, up to this one. None of them has effect.
    Unfinished(Ulid),
    /// All suppressions of the import have effect. Messages to them are being ended.
    Finished,
}

impl Row for SuppressionImportRow {
    const TABLE: Table = Table::SuppressionImports;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suppression_of_version_1_has_no_import() {
        let row = SuppressionV1 {
            id: SuppressionId(Ulid([7; 16])),
            email: "Ann@example.net".to_owned(),
            reason: SuppressionReason::Bounce,
            message: None,
            smtp_code: Some(550),
            smtp_response: Some("550 no".to_owned()),
            note: None,
            created_at: Timestamp::from_millis(5),
        };
        let read = SuppressionRow::decode(&postcard::to_extend(&row, vec![1]).unwrap()).unwrap();
        assert_eq!((read.import, read.email.as_str(), read.created_at.as_millis()), (None, "Ann@example.net", 5));
        assert_eq!(SuppressionRow::decode(&read.encode()).unwrap().smtp_response, read.smtp_response);
        assert!(SuppressionRow::decode(&[3]).is_err());
    }
}
