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
    /// The rotation of its keys.
    pub rotation: DkimRotation,
    /// Purposes of records that were seen as expected at least once.
    pub once_ok: Vec<RecordPurpose>,
    /// Those of them that were not as expected when their look-up last succeeded.
    pub lost: Vec<RecordPurpose>,
    /// Facts for the checklist beside the records.
    pub facts: DnsFacts,
}

impl DomainRow {
    /// A domain that was registered at `created_at`: pending, without keys, and never checked.
    pub fn new(name: DomainName, stream: Stream, created_at: Timestamp) -> Self {
        Self {
            name,
            stream,
            status: DomainStatus::Pending,
            created_at,
            verified_at: None,
            last_checked_at: None,
            last_seen_at: None,
            next_check_at: None,
            checks: 0,
            dkim: Vec::new(),
            return_path_seen: false,
            findings: Vec::new(),
            rotation: DkimRotation::default(),
            once_ok: Vec::new(),
            lost: Vec::new(),
            facts: DnsFacts::default(),
        }
    }
}

/// Facts of a domain's DNS that no record of ours is for. Each is none where it was not looked for, or the look-up
/// failed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DnsFacts {
    /// The look-ups that its SPF record takes.
    pub spf_lookups: Option<u32>,
    /// The domain's way to receive mail.
    pub receiving: Option<Receiving>,
    /// The BIMI records of its default selector.
    pub bimi: Option<Vec<String>>,
}

/// A domain's way to receive mail (RFC 5321 5.1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Receiving {
    /// By the servers of its MX records, the best first.
    Servers(Vec<String>),
    /// Not at all: a null MX (RFC 7505).
    NullMx,
    /// By its own address, without an MX record.
    Address,
    /// Not at all: it has neither.
    Nothing,
}

/// The scheduled rotation of a domain's DKIM keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DkimRotation {
    /// Days between rotations; 0 without a schedule.
    pub days: u16,
    /// When the next rotation is due. None without a schedule.
    pub next_at: Option<Timestamp>,
    /// When its timer fires: at the rotation, or later where that has to wait for a record.
    pub timer: Option<Timestamp>,
    /// The greatest number that a pair of keys which was dropped had. No selector is ever used for two keys.
    pub dropped: u32,
}

/// Bytes of the members that version 1 of a domain's row lacks, where they are empty.
const SINCE_V1: usize = 9;

impl Row for DomainRow {
    const TABLE: Table = Table::Domains;
    const VERSION: u8 = 2;

    /// Version 1 lacks the members from `rotation` on. Each is written as zero bytes where it is empty.
    fn decode_earlier(version: u8, bytes: &[u8]) -> Option<postcard::Result<Self>> {
        (version == 1).then(|| postcard::from_bytes(&[bytes, &[0; SINCE_V1]].concat()))
    }
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
    /// The number of the pair, with which the selector ends.
    pub fn number(&self) -> u32 {
        let digits = self.selector.rfind(|c: char| !c.is_ascii_digit()).map_or(0, |place| place + 1);
        self.selector[digits..].parse().unwrap_or_default()
    }

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::sending_domain::DomainStatus;
    use crate::store::testing::domain_row;

    #[test]
    fn a_row_of_version_1_has_no_rotation() {
        let row = domain_row("example.com", Stream::Marketing, DomainStatus::Verified);
        let bytes = row.encode();
        let earlier = [&[1], &bytes[1..bytes.len() - SINCE_V1]].concat();
        let read = DomainRow::decode(&earlier).unwrap();
        assert_eq!((read.rotation, read.name.as_str()), (DkimRotation::default(), "example.com"));
        assert!(read.once_ok.is_empty() && read.lost.is_empty() && read.facts == DnsFacts::default());
    }

    #[test]
    fn a_selector_ends_with_the_number_of_its_pair() {
        let key = |selector: &str| DkimKeyRow {
            selector: selector.to_owned(),
            algorithm: DkimAlgorithm::RsaSha256,
            state: DkimState::Active,
            created_at: Timestamp::ZERO,
            retired_at: None,
            record: String::new(),
            private_key: Sealed(Vec::new()),
        };
        assert_eq!(["pr-abc123-r12", "pr-abc123-e1", "s", ""].map(|selector| key(selector).number()), [12, 1, 0, 0]);
    }
}
