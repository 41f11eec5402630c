//! Rows: the values of tables. Encoded as one version byte and postcard. Bodies are never rows.
//!
//! A change of a row's fields is a new version with a decoder for the old one, never a silent reinterpretation.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::error::StoreError;
use super::schema::Table;

pub mod alert;
pub mod audit;
pub mod clock_doubt;
pub mod delivery;
pub mod destroyed_content;
pub mod dmarc;
pub mod domain;
pub mod endpoint;
pub mod event;
pub mod idempotency;
pub mod identity;
pub mod message;
pub mod message_head;
pub mod message_index;
pub mod notice;
pub mod outcomes;
pub mod pause;
pub mod restored;
pub mod saved_searches;
pub mod suppression;
pub mod suspension;
pub mod tls_policy;
pub mod totals;
pub mod user;
pub mod warm_up;

/// A value of one table.
pub trait Row: Serialize + DeserializeOwned {
    /// Table of the row.
    const TABLE: Table;
    /// Version that is written.
    const VERSION: u8 = 1;

    /// Returns the stored bytes.
    fn encode(&self) -> Vec<u8> {
        let bytes = vec![Self::VERSION];
        postcard::to_extend(self, bytes).unwrap_or_else(|_| unreachable!("postcard can encode every row"))
    }

    /// Reads stored bytes.
    ///
    /// # Errors
    /// [`StoreError::Row`] if they are damaged or of an unknown version.
    fn decode(bytes: &[u8]) -> Result<Self, StoreError> {
        let fault = |what: &str| StoreError::Row { table: Self::TABLE, fault: what.to_owned() };
        let (&version, rest) = bytes.split_first().ok_or_else(|| fault("it is empty"))?;
        let decoded = if version == Self::VERSION {
            postcard::from_bytes(rest)
        } else {
            Self::decode_earlier(version, rest).ok_or_else(|| fault(&format!("version {version}")))?
        };
        decoded.map_err(|error| fault(&error.to_string()))
    }

    /// Decodes a row of an earlier version, without its version byte. Returns `None` if the version is unknown.
    fn decode_earlier(_version: u8, _bytes: &[u8]) -> Option<postcard::Result<Self>> {
        None
    }
}

impl Row for crate::domain::account::Account {
    const TABLE: Table = Table::Accounts;
    const VERSION: u8 = 2;

    /// Decodes version 1, which lacks the last field. The field is then false: a zero byte.
    fn decode_earlier(version: u8, bytes: &[u8]) -> Option<postcard::Result<Self>> {
        (version == 1).then(|| postcard::from_bytes(&[bytes, &[0]].concat()))
    }
}

impl Row for crate::domain::api_key::ApiKey {
    const TABLE: Table = Table::Keys;
}

impl Row for crate::domain::session::Session {
    const TABLE: Table = Table::Sessions;
    const VERSION: u8 = 2;

    /// Decodes version 1, which lacks the last field. The field is then `None`: a zero byte.
    fn decode_earlier(version: u8, bytes: &[u8]) -> Option<postcard::Result<Self>> {
        (version == 1).then(|| postcard::from_bytes(&[bytes, &[0]].concat()))
    }
}

impl Row for crate::machine::reputation::Reputation {
    const TABLE: Table = Table::Reputations;
}

impl Row for crate::machine::quota::Quota {
    const TABLE: Table = Table::Quotas;
}
