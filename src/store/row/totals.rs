//! Stored totals, so that a limit can be checked without a scan.

use serde::{Deserialize, Serialize};

use super::Row;
use crate::base::id::KeyId;
use crate::base::time::Timestamp;
use crate::store::schema::Table;

/// A number of deliveries. A key of account and endpoint counts the endpoint's pending and held ones. A key of only the
/// account counts its stored requested deliveries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutstandingRow {
    /// The number.
    pub deliveries: u64,
}

impl Row for OutstandingRow {
    const TABLE: Table = Table::Outstanding;
}

/// The active API keys of an account. Row key: the account.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActiveKeysRow {
    /// The keys. Expired ones are dropped when the next key is created.
    pub keys: Vec<ActiveKey>,
}

/// An API key that is not revoked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActiveKey {
    /// The key.
    pub id: KeyId,
    /// Expiry.
    pub expires_at: Option<Timestamp>,
}

impl ActiveKey {
    /// Returns whether the key has not expired at `now`.
    pub fn is_live(&self, now: Timestamp) -> bool {
        self.expires_at.is_none_or(|expires_at| now < expires_at)
    }
}

impl Row for ActiveKeysRow {
    const TABLE: Table = Table::ActiveKeys;
}

/// The number of an account's suppressions, including those of an unfinished import. Row key: the account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SuppressionCountRow {
    /// The number.
    pub suppressions: u64,
}

impl Row for SuppressionCountRow {
    const TABLE: Table = Table::SuppressionCounts;
}

/// The bytes of an account's stored message content. Row key: the account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredContentRow {
    /// The bytes.
    pub bytes: u64,
}

impl Row for StoredContentRow {
    const TABLE: Table = Table::StoredContent;
}

/// The bytes of an account's message content in one bucket. Row key: bucket and account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredInBucketRow {
    /// The bytes.
    pub bytes: u64,
}

impl Row for StoredInBucketRow {
    const TABLE: Table = Table::StoredContentByBucket;
}
