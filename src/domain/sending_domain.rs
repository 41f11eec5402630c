//! The vocabulary of sending domains (contract 2): their status, the states of their DKIM keys, and the records to
//! publish.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Whether an account may send from a domain.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DomainStatus {
    /// The DKIM record was not found yet.
    Pending,
    /// The DKIM record is published.
    Verified,
    /// The record disappeared less than 72 hours ago. The domain still counts as verified.
    Failing,
}

impl DomainStatus {
    /// Returns whether mail may be sent from the domain.
    pub const fn may_send(self) -> bool {
        matches!(self, Self::Verified | Self::Failing)
    }
}

/// A DKIM signature algorithm (RFC 6376, RFC 8463).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum DkimAlgorithm {
    /// RSA-2048 with SHA-256.
    #[serde(rename = "rsa-sha256")]
    RsaSha256,
    /// Ed25519 over SHA-256.
    #[serde(rename = "ed25519-sha256")]
    Ed25519Sha256,
}

impl fmt::Display for DkimAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RsaSha256 => "rsa-sha256",
            Self::Ed25519Sha256 => "ed25519-sha256",
        })
    }
}

/// State of a DKIM key in its life cycle.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DkimState {
    /// The key does not sign, because its record was not found yet.
    Pending,
    /// Signing messages.
    Active,
    /// Replaced; its record stays published for messages still in transit.
    Retiring,
    /// The key does not sign yet: its record was found, and the key waits for the rotation.
    Standby,
}

/// Purpose of a DNS record.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordPurpose {
    /// A DKIM key.
    Dkim,
    /// The return path, so that SPF aligns.
    ReturnPath,
    /// SPF (RFC 7208).
    Spf,
    /// DMARC (RFC 7489).
    Dmarc,
}

/// Result of a lookup of a record.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RecordStatus {
    /// The record as expected.
    Ok,
    /// No record.
    Missing,
    /// A different record.
    Mismatch,
    /// The record was not looked up yet, or the lookup failed.
    Unchecked,
}
