//! Rows for a domain's DMARC aggregate reports: the reports, and the counted messages.

use serde::{Deserialize, Serialize};

use super::Row;
use crate::base::time::Timestamp;
use crate::domain::dmarc_record::DmarcPolicy;
use crate::domain::dmarc_source::{DmarcCounts, SourceNetwork};
use crate::domain::hostname::DomainName;
use crate::store::schema::Table;
use crate::store::schema::dmarc::ReporterKey;

/// A report, or the part of one that belongs to the domain. Row key: account, domain and report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DmarcReportRow {
    /// Name of the reporting organisation, in its own words.
    pub reporter: String,
    /// Domain of the mail's From; `None` if the mail does not have exactly one author.
    pub from_domain: Option<DomainName>,
    /// The reporter's identifier of the report.
    pub report_id: String,
    /// The domain whose policy was applied.
    pub policy_domain: DomainName,
    /// The first second of its range.
    pub begin: Timestamp,
    /// The last second of its range.
    pub end: Timestamp,
    /// Messages.
    pub messages: u64,
    /// Messages that passed.
    pub passed: u64,
    /// Rows without a valid source or count.
    pub skipped_rows: u64,
    /// Whether the report's mail was signed by its From domain. Otherwise its messages are not counted.
    pub is_authentic: bool,
}

impl Row for DmarcReportRow {
    const TABLE: Table = Table::DmarcReports;
}

/// The reports of one day. Row key: account, domain and day.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DmarcDayRow {
    /// Number of reports that are listed but not counted.
    pub unauthentic: u32,
    /// Number of networks with counts of their own.
    pub networks: u32,
    /// Rows of [`Table::DmarcCounts`].
    pub rows: u32,
    /// Digests of the signing domains, each with its reports.
    pub signers: Vec<(ReporterKey, u32)>,
    /// Reporters whose reports count.
    pub reporters: Vec<ReporterDay>,
}

impl Row for DmarcDayRow {
    const TABLE: Table = Table::DmarcDays;
    const VERSION: u8 = 3;

    /// Decodes version 1, which has the same fields, and version 2, which has another one at the end.
    fn decode_earlier(version: u8, bytes: &[u8]) -> Option<postcard::Result<Self>> {
        matches!(version, 1 | 2).then(|| postcard::from_bytes(bytes))
    }
}

/// The reports of one day and reporter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReporterDay {
    /// The reporter.
    pub reporter: ReporterKey,
    /// Reports.
    pub reports: u32,
    /// Policies that the reporter saw published, one bit for each.
    policies: u8,
}

impl ReporterDay {
    /// Returns a reporter without reports.
    pub const fn new(reporter: ReporterKey) -> Self {
        Self { reporter, reports: 0, policies: 0 }
    }

    /// Counts a report with this observed policy.
    pub const fn add(&mut self, policy: DmarcPolicy) {
        self.reports = self.reports.saturating_add(1);
        self.policies |= 1 << policy as u8;
    }

    /// Returns whether a report saw this policy.
    pub const fn has_seen(self, policy: DmarcPolicy) -> bool {
        self.policies & 1 << policy as u8 != 0
    }
}

/// The messages of one day, network and reporter. Row key: account, domain, day, network and reporter. The network
/// is `Other` if it has no counts of its own on that day.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DmarcCountsRow {
    /// Message counts by evaluation.
    pub counts: DmarcCounts,
    /// Whether some of the messages had a signature of the domain itself.
    pub has_own_signature: bool,
    /// The most frequent signing domains, with their messages.
    pub dkim_domains: Vec<(DomainName, u64)>,
    /// The most frequent domains checked by SPF, with their messages.
    pub spf_domains: Vec<(DomainName, u64)>,
}

impl Row for DmarcCountsRow {
    const TABLE: Table = Table::DmarcCounts;
}

impl DmarcCountsRow {
    /// Returns whether the row has no messages.
    pub fn is_empty(&self) -> bool {
        self.counts == DmarcCounts::ZERO
    }
}

/// A source of a domain's mail. Row key: account, domain and network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DmarcSourceRow {
    /// The first day on which a report named the source.
    pub first_day: u32,
    /// The last day on which a report named the source.
    pub last_day: u32,
    /// Whether the account has confirmed the source as its own.
    pub is_mine: Option<bool>,
}

impl Row for DmarcSourceRow {
    const TABLE: Table = Table::DmarcSources;
}

/// The mark of a source, as in its [`DmarcSourceRow`]. Row key: account, domain and network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DmarcMarkRow {
    /// Whether the account has confirmed the source as its own.
    pub is_mine: bool,
}

impl Row for DmarcMarkRow {
    const TABLE: Table = Table::DmarcMarks;
}

/// A reporter of a domain. Row key: account, domain and reporter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DmarcReporterRow {
    /// Name of the reporter, in its own words.
    pub name: String,
    /// The last day on which the reporter reported.
    pub last_day: u32,
    /// Whether the account has excluded the reporter from the counts.
    pub is_ignored: bool,
    /// The domain that signs its reports, without subdomains. `None` for reporters that are counted together, and for
    /// those of earlier versions, which identified a reporter by its name alone.
    pub signer: Option<String>,
}

impl Row for DmarcReporterRow {
    const TABLE: Table = Table::DmarcReporters;
    const VERSION: u8 = 2;

    /// Decodes version 1, which lacks the last field. The field is then `None`: a zero byte.
    fn decode_earlier(version: u8, bytes: &[u8]) -> Option<postcard::Result<Self>> {
        (version == 1).then(|| postcard::from_bytes(&[bytes, &[0]].concat()))
    }
}

/// The sums of one source over some days, from the reports of one reporter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DmarcSourceSums {
    /// The network.
    pub network: SourceNetwork,
    /// The reporter.
    pub reporter: ReporterKey,
    /// Message counts by evaluation.
    pub counts: DmarcCounts,
    /// Whether some of the messages had a signature of the domain itself.
    pub has_own_signature: bool,
    /// Signing domains, with their messages.
    pub dkim_domains: Vec<(DomainName, u64)>,
    /// Domains checked by SPF, with their messages.
    pub spf_domains: Vec<(DomainName, u64)>,
    /// The first day of these days that has the source.
    pub first_day: u32,
    /// The last day of these days that has the source.
    pub last_day: u32,
}

/// The sums of some days of a domain. Row key: account, domain and the first day. They can be added up again from
/// [`Table::DmarcCounts`] at any time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DmarcSumsRow {
    /// The last day.
    pub to: u32,
    /// Digest of the rows in [`Table::DmarcDays`] of these days. Sums with another digest are outdated.
    pub version: u64,
    /// The sources, usually in the order of their networks.
    pub sources: Vec<DmarcSourceSums>,
    /// The messages of each day and reporter, oldest first.
    pub days: Vec<(u32, ReporterKey, DmarcCounts)>,
}

impl Row for DmarcSumsRow {
    const TABLE: Table = Table::DmarcSums;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_of_earlier_versions_have_the_same_first_fields() {
        let reporters = vec![ReporterDay { reporter: [7; 8], reports: 3, policies: 1 }];
        let day = DmarcDayRow { unauthentic: 2, networks: 5, rows: 6, signers: vec![([8; 8], 3)], reporters };
        let bytes = postcard::to_allocvec(&day).unwrap();
        assert_eq!(DmarcDayRow::decode(&[&[1], &bytes[..]].concat()).unwrap(), day);
        let added = postcard::to_allocvec(&vec![([7_u8; 8], 5_u32)]).unwrap();
        assert_eq!(DmarcDayRow::decode(&[&[2], &bytes[..], &added[..]].concat()).unwrap(), day);
    }

    #[test]
    fn reporters_of_version_1_lack_the_last_field() {
        let bytes = postcard::to_allocvec(&("Reporter", 20_000_u32, true)).unwrap();
        let found = DmarcReporterRow::decode(&[&[1], &bytes[..]].concat()).unwrap();
        let expected =
            DmarcReporterRow { name: "Reporter".to_owned(), last_day: 20_000, is_ignored: true, signer: None };
        assert_eq!(found, expected);
    }
}
