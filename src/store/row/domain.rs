//! A sending domain with its DKIM keys (contract 2).

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::Row;
use crate::base::id::DomainId;
use crate::base::secret::SealedSecret;
use crate::base::time::Timestamp;
use crate::domain::dmarc_record::DmarcRecord;
use crate::domain::dmarc_walk::{self, Answer, Discovery};
use crate::domain::hostname::DomainName;
use crate::domain::sending_domain::{DkimAlgorithm, DkimState, DomainStatus, RecordPurpose, RecordStatus};
use crate::domain::stream::Stream;
use crate::store::schema::Table;

/// A domain. Row key: account and domain.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DomainRow {
    /// Name.
    pub name: DomainName,
    /// Stream of all mail from the domain.
    pub stream: Stream,
    /// Verification status.
    pub status: DomainStatus,
    /// Time of registration.
    pub created_at: Timestamp,
    /// Time of verification.
    pub verified_at: Option<Timestamp>,
    /// Time of the last check of its records.
    pub last_checked_at: Option<Timestamp>,
    /// Time at which the domain's RSA record was last seen.
    pub last_seen_at: Option<Timestamp>,
    /// Time of the next check of its records; `None` if it is never checked again.
    pub next_check_at: Option<Timestamp>,
    /// Number of checks since the domain was last verified, for the backoff.
    pub checks: u32,
    /// Keys, newest last.
    pub dkim: Vec<DkimKeyRow>,
    /// Whether the CNAME of the return path was seen.
    pub return_path_seen: bool,
    /// Last findings, by record.
    pub findings: Vec<Finding>,
    /// Schedule of its key rotation.
    pub rotation: DkimRotation,
    /// Purposes of records that were correct at least once.
    pub once_ok: Vec<RecordPurpose>,
    /// Purposes of the records that were not correct at their last successful lookup.
    pub lost: Vec<RecordPurpose>,
    /// DNS facts for the checklist beside the records.
    pub facts: DnsFacts,
}

impl DomainRow {
    /// Returns a domain that was registered at `created_at`: pending, without keys, and never checked.
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

/// DNS facts of a domain beside its records for Postrider. Each is `None` or empty if it was not looked up or the
/// lookup failed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DnsFacts {
    /// Number of lookups that its SPF record takes.
    pub spf_lookups: Option<u32>,
    /// The way in which the domain receives mail.
    pub receiving: Option<Receiving>,
    /// The BIMI records of its default selector.
    pub bimi: Option<Vec<String>>,
    /// Our source addresses that its SPF record does not let pass.
    pub spf_uncovered: Vec<IpAddr>,
}

/// The way in which a domain receives mail (RFC 5321 5.1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Receiving {
    /// The servers of its MX records receive the mail, the best first.
    Servers(Vec<String>),
    /// The domain receives no mail: it has a null MX (RFC 7505).
    NullMx,
    /// The domain's own address receives the mail, because there is no MX record.
    Address,
    /// The domain receives no mail: it has no MX record and no address.
    Nothing,
}

/// The scheduled rotation of a domain's DKIM keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DkimRotation {
    /// Days between rotations; 0 without a schedule.
    pub days: u16,
    /// Time of the next rotation; `None` without a schedule.
    pub next_at: Option<Timestamp>,
    /// Due time of its timer: the rotation, or later if a record must be published first.
    pub timer: Option<Timestamp>,
    /// The greatest number of a dropped key pair. No selector is ever used for two keys.
    pub dropped: u32,
}

/// Number of bytes that encode the members that version 1 lacks, if these members are empty.
const SINCE_V1: usize = 10;
/// Number of bytes that encode the members that version 2 lacks, if these members are empty.
const SINCE_V2: usize = 1;

impl Row for DomainRow {
    const TABLE: Table = Table::Domains;
    const VERSION: u8 = 3;

    /// Decodes version 1, which lacks the members from `rotation` on, and version 2, which lacks the last of the DNS
    /// facts. An empty member is encoded as zero bytes.
    fn decode_earlier(version: u8, bytes: &[u8]) -> Option<postcard::Result<Self>> {
        let lacking = match version {
            1 => SINCE_V1,
            2 => SINCE_V2,
            _ => return None,
        };
        Some(postcard::from_bytes(&[bytes, &[0; SINCE_V1][..lacking]].concat()))
    }
}

/// A DKIM key pair.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DkimKeyRow {
    /// Selector.
    pub selector: String,
    /// Algorithm.
    pub algorithm: DkimAlgorithm,
    /// State of the key in its life cycle.
    pub state: DkimState,
    /// Time of creation.
    pub created_at: Timestamp,
    /// Time at which another key replaced this one.
    pub retired_at: Option<Timestamp>,
    /// The TXT record to publish.
    pub record: String,
    /// The private key (PKCS#8), sealed.
    pub private_key: SealedSecret,
}

impl DkimKeyRow {
    /// Returns the number of the pair, with which the selector ends.
    pub fn number(&self) -> u32 {
        let digits = self.selector.rfind(|c: char| !c.is_ascii_digit()).map_or(0, |place| place + 1);
        self.selector[digits..].parse().unwrap_or_default()
    }

    /// Returns the context for which a private key is sealed.
    pub fn context(domain: DomainId, selector: &str) -> Vec<u8> {
        [b"dkim ".as_slice(), domain.as_bytes(), selector.as_bytes()].concat()
    }
}

/// Finding for a record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Purpose of the record.
    pub purpose: RecordPurpose,
    /// Queried name.
    pub name: String,
    /// Status of the record.
    pub status: RecordStatus,
    /// The values found.
    pub found: Vec<String>,
}

impl Finding {
    /// Returns whether receivers use the record; `None` if it was not looked up. They ignore several SPF or DMARC
    /// records at a name (RFC 7208 4.5, RFC 9989 4.10), and an invalid DMARC record.
    pub fn is_effective(&self) -> Option<bool> {
        let is_usable = match self.purpose {
            RecordPurpose::Dkim | RecordPurpose::ReturnPath => true,
            RecordPurpose::Spf => self.found.len() == 1,
            RecordPurpose::Dmarc => matches!(self.found.as_slice(), [only] if DmarcRecord::parse(only).is_some()),
        };
        match self.status {
            RecordStatus::Ok => Some(is_usable),
            RecordStatus::Missing | RecordStatus::Mismatch => Some(false),
            RecordStatus::Unchecked => None,
        }
    }
}

/// Returns the answers of the walk for a domain's DMARC record, its own name first.
pub fn dmarc_answers(findings: &[Finding]) -> Vec<Answer<'_>> {
    let of_walk = findings.iter().filter(|finding| finding.purpose == RecordPurpose::Dmarc);
    let records = |finding: &'_ Finding| finding.status != RecordStatus::Unchecked;
    of_walk
        .map(|finding| Answer { name: &finding.name, records: records(finding).then_some(&*finding.found) })
        .collect()
}

/// Returns whether a valid DMARC record applies to a domain, its own or that of a parent domain, as its checklist
/// requires. `None` if a lookup failed.
pub fn has_dmarc(findings: &[Finding]) -> Option<bool> {
    let answers = dmarc_answers(findings);
    let own = answers.first()?.records.map_or(0, <[String]>::len);
    match dmarc_walk::discover(&answers) {
        Discovery::Published(record) => Some(!record.is_inherited || own < 2),
        Discovery::Absent | Discovery::Invalid(_) => Some(false),
        Discovery::Unknown => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::sending_domain::DomainStatus;
    use crate::store::testing::domain_row;

    #[test]
    fn earlier_versions_lack_the_last_members() {
        let mut row = domain_row("example.com", Stream::Marketing, DomainStatus::Verified);
        row.facts.spf_lookups = Some(3);
        let bytes = row.encode();
        let earlier = [&[2], &bytes[1..bytes.len() - SINCE_V2]].concat();
        assert_eq!(DomainRow::decode(&earlier).unwrap().facts, row.facts);
        row.facts.spf_lookups = None;
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
            private_key: SealedSecret(Vec::new()),
        };
        assert_eq!(["pr-abc123-r12", "pr-abc123-e1", "s", ""].map(|selector| key(selector).number()), [12, 1, 0, 0]);
    }
}
