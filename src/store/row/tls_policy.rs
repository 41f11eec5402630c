//! TLS policies of receivers: the MTA-STS policy of a domain, and a day's results of its sessions.

use serde::{Deserialize, Serialize};

use super::Row;
use crate::base::time::Timestamp;
use crate::domain::hostname::DomainName;
use crate::smtp::mta_sts::StsPolicy;
use crate::smtp::tls_policy::TlsFault;
use crate::store::schema::Table;

/// The last policy fetched from a domain. Row key: the domain's digest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StsPolicyRow {
    /// Domain of the policy.
    pub domain: DomainName,
    /// Identifier in the policy's DNS record.
    pub id: String,
    /// The policy.
    pub policy: StsPolicy,
    /// Time of the fetch.
    pub fetched_at: Timestamp,
    /// Expiry of the policy, and due time of its timer.
    pub expires_at: Timestamp,
}

impl Row for StsPolicyRow {
    const TABLE: Table = Table::StsPolicies;
}

/// The policy for which a session counts (RFC 8460 4.4, `policy-type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[repr(u8)]
pub enum PolicyType {
    /// DANE.
    Tlsa = 1,
    /// MTA-STS.
    Sts = 2,
    /// No policy.
    NoPolicyFound = 3,
}

impl PolicyType {
    /// All policy types.
    pub const ALL: [Self; 3] = [Self::Tlsa, Self::Sts, Self::NoPolicyFound];

    /// Returns the name in a report.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tlsa => "tlsa",
            Self::Sts => "sts",
            Self::NoPolicyFound => "no-policy-found",
        }
    }
}

/// The sessions of one UTC day with one domain under one policy (RFC 8460 4.1). Row key: day, domain and policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TlsReportRow {
    /// The domain.
    pub domain: DomainName,
    /// The policy as text, line by line; empty without a policy.
    pub policy: Vec<String>,
    /// Number of sessions that met the policy.
    pub successes: u64,
    /// Number of sessions that did not meet the policy, and of failed fetches of the policy.
    pub failures: u64,
    /// Failures by kind, for a limited number of kinds.
    pub details: Vec<FailureDetail>,
    /// Destinations that already have the report of the day, while others do not. Stored in the domain's first row.
    pub delivered_to: Vec<String>,
}

impl TlsReportRow {
    /// Returns an empty row for `domain`.
    pub const fn of(domain: DomainName) -> Self {
        Self { domain, policy: Vec::new(), successes: 0, failures: 0, details: Vec::new(), delivered_to: Vec::new() }
    }
}

impl Row for TlsReportRow {
    const TABLE: Table = Table::TlsReports;
}

/// Failures of one kind with one server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureDetail {
    /// The failure.
    pub fault: TlsFault,
    /// The server; `None` if the policy itself failed.
    pub host: Option<String>,
    /// Number of sessions.
    pub sessions: u64,
}

/// Number of rows of a day. Row key: the day.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TlsReportDayRow {
    /// Rows of [`Table::TlsReports`].
    pub rows: u32,
}

impl Row for TlsReportDayRow {
    const TABLE: Table = Table::TlsReportDays;
}
