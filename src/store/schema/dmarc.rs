//! Keys of the DMARC report tables. All begin with the account and the domain. Most continue with the UTC day, as a
//! number of days since the epoch, so that the oldest come first.

use crate::base::id::{AccountId, DmarcReportId, DomainId};
use crate::base::signature::hmac_sha256;
use crate::domain::dmarc_source::SourceNetwork;

/// Identifies a reporter of a domain: a digest of its signing domain and its name.
pub type ReporterKey = [u8; 8];

/// Identifies a report among the reports of a domain for ranges that begin on one day: a digest of its identifying
/// fields.
pub type ReportDigest = [u8; 16];

/// Prefix of all keys of one domain.
pub fn dmarc_domain(account: AccountId, domain: DomainId) -> [u8; 32] {
    super::owned(account, domain.as_bytes())
}

/// Key of [`Table::DmarcReports`](super::Table::DmarcReports).
pub fn dmarc_report(account: AccountId, domain: DomainId, report: DmarcReportId) -> [u8; 48] {
    super::owned_pair(account, domain.as_bytes(), report.as_bytes())
}

/// Key of [`Table::DmarcDays`](super::Table::DmarcDays) and [`Table::DmarcSums`](super::Table::DmarcSums), and prefix
/// of the keys of one day.
pub fn dmarc_day(account: AccountId, domain: DomainId, day: u32) -> [u8; 36] {
    let mut key = [0; 36];
    key[..32].copy_from_slice(&dmarc_domain(account, domain));
    key[32..].copy_from_slice(&day.to_be_bytes());
    key
}

/// Returns the day in a key that has one after the domain.
pub fn dmarc_day_of(key: &[u8]) -> Option<u32> {
    key.get(32..)?.first_chunk().map(|day| u32::from_be_bytes(*day))
}

/// Key of [`Table::DmarcSeen`](super::Table::DmarcSeen).
pub fn dmarc_seen(account: AccountId, domain: DomainId, day: u32, report: ReportDigest) -> [u8; 52] {
    let mut key = [0; 52];
    key[..36].copy_from_slice(&dmarc_day(account, domain, day));
    key[36..].copy_from_slice(&report);
    key
}

/// Returns the digest of a report's identifying fields: From domain, report identifier, policy domain and begin.
pub fn dmarc_digest(from_domain: &str, report_id: &str, policy_domain: &str, begin_secs: u64) -> ReportDigest {
    let begin = begin_secs.to_be_bytes();
    let parts = [from_domain.as_bytes(), b"\0", policy_domain.as_bytes(), b"\0", &begin, report_id.as_bytes()];
    let digest = hmac_sha256(b"dmarc report", &parts);
    digest.first_chunk().copied().unwrap_or_default()
}

/// Returns the digest of a signing domain, and the key of a reporter with this name without a signing domain.
pub fn dmarc_reporter_key(name: &str) -> ReporterKey {
    let digest = hmac_sha256(b"dmarc reporter", &[name.as_bytes()]);
    digest.first_chunk().copied().unwrap_or_default()
}

/// Returns the key of the reporter with this signing domain and name.
pub fn dmarc_signed_reporter_key(signer: &str, name: &str) -> ReporterKey {
    let digest = hmac_sha256(b"dmarc signed reporter", &[signer.as_bytes(), b"\0", name.as_bytes()]);
    digest.first_chunk().copied().unwrap_or_default()
}

/// Key of [`Table::DmarcReporters`](super::Table::DmarcReporters).
pub fn dmarc_reporter(account: AccountId, domain: DomainId, reporter: ReporterKey) -> [u8; 40] {
    let mut key = [0; 40];
    key[..32].copy_from_slice(&dmarc_domain(account, domain));
    key[32..].copy_from_slice(&reporter);
    key
}

/// Key of [`Table::DmarcSources`](super::Table::DmarcSources) and [`Table::DmarcMarks`](super::Table::DmarcMarks).
pub fn dmarc_source(account: AccountId, domain: DomainId, network: SourceNetwork) -> Vec<u8> {
    [&dmarc_domain(account, domain)[..], &network.to_bytes()].concat()
}

/// Returns the network in a key of [`dmarc_source`].
pub fn dmarc_source_of(key: &[u8]) -> Option<SourceNetwork> {
    SourceNetwork::from_bytes(key.get(32..)?).map(|(network, _)| network)
}

/// Prefix of the keys of [`Table::DmarcCounts`](super::Table::DmarcCounts) for one day and network.
pub fn dmarc_counts_of(account: AccountId, domain: DomainId, day: u32, network: SourceNetwork) -> Vec<u8> {
    [&dmarc_day(account, domain, day)[..], &network.to_bytes()].concat()
}

/// Key of [`Table::DmarcCounts`](super::Table::DmarcCounts).
pub fn dmarc_counts(
    account: AccountId,
    domain: DomainId,
    day: u32,
    network: SourceNetwork,
    reporter: ReporterKey,
) -> Vec<u8> {
    [&dmarc_counts_of(account, domain, day, network)[..], &reporter].concat()
}

/// Returns day, network and reporter in a key of [`Table::DmarcCounts`](super::Table::DmarcCounts).
pub fn dmarc_counts_parts(key: &[u8]) -> Option<(u32, SourceNetwork, ReporterKey)> {
    let day = dmarc_day_of(key)?;
    let (network, reporter) = SourceNetwork::from_bytes(key.get(36..)?)?;
    Some((day, network, reporter.try_into().ok()?))
}
