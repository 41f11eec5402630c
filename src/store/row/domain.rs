//! A sending domain with its DKIM keys (contract 2).

use serde::{Deserialize, Serialize};

use super::Row;
use crate::base::id::DomainId;
use crate::base::secret::Sealed;
use crate::base::time::Timestamp;
use crate::domain::hostname::DomainName;
use crate::domain::sending_domain::{DkimAlgorithm, DkimState, DomainStatus, RecordPurpose, RecordStatus};
use crate::domain::stream::Stream;
use crate::store::schema::Table;

/// A domain; its key names account and domain.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DomainRow {
    /// Its name.
    pub name: DomainName,
    /// The stream of everything sent from it.
    pub stream: Stream,
    /// Whether it may be sent from.
    pub status: DomainStatus,
    /// When it was registered.
    pub created_at: Timestamp,
    /// When it became verified.
    pub verified_at: Option<Timestamp>,
    /// When its records were last looked for.
    pub last_checked_at: Option<Timestamp>,
    /// When its RSA record was last seen.
    pub last_seen_at: Option<Timestamp>,
    /// When its records are looked for next; none where it is never re-checked.
    pub next_check_at: Option<Timestamp>,
    /// Checks since it was last verified, for the back-off.
    pub checks: u32,
    /// Its keys, newest last.
    pub dkim: Vec<DkimKeyRow>,
    /// Whether the CNAME of the return path was seen.
    pub return_path_seen: bool,
    /// Last findings, by record.
    pub findings: Vec<Finding>,
}

impl Row for DomainRow {
    const TABLE: Table = Table::Domains;
}

/// A DKIM key pair.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DkimKeyRow {
    /// Its selector.
    pub selector: String,
    /// Its algorithm.
    pub algorithm: DkimAlgorithm,
    /// Where it is in its life.
    pub state: DkimState,
    /// When it was made.
    pub created_at: Timestamp,
    /// When another key took its place.
    pub retired_at: Option<Timestamp>,
    /// The TXT record to publish.
    pub record: String,
    /// The private key (PKCS#8), sealed.
    pub private_key: Sealed,
}

impl DkimKeyRow {
    /// Returns the context that a private key is sealed for.
    pub fn context(domain: DomainId, selector: &str) -> Vec<u8> {
        [b"dkim ".as_slice(), domain.as_bytes(), selector.as_bytes()].concat()
    }
}

/// Finding for a record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Purpose of the record.
    pub purpose: RecordPurpose,
    /// The name that was asked.
    pub name: String,
    /// Status of the record.
    pub status: RecordStatus,
    /// The values found.
    pub found: Vec<String>,
}
