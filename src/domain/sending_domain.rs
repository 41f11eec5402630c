//! A sending domain's vocabulary (contract 2): its status, its DKIM keys' states, the records it should publish.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Whether an account may send from a domain.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DomainStatus {
    /// Its DKIM record was not seen yet.
    Pending,
    /// Its DKIM record is published.
    Verified,
    /// Its record vanished less than 72 hours ago: still counts as verified.
    Failing,
}

impl DomainStatus {
    /// Whether mail may be sent from the domain.
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

/// Where a DKIM key is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DkimState {
    /// Its record was not seen yet; nothing is signed with it.
    Pending,
    /// Messages are signed with it.
    Active,
    /// Replaced; its record stays published for what is still on its way.
    Retiring,
    /// Its record was seen, and it waits for the rotation; nothing is signed with it.
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

/// Result of looking for a record.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RecordStatus {
    /// The record as expected.
    Ok,
    /// Nothing.
    Missing,
    /// Something else.
    Mismatch,
    /// Not looked for yet, or the look-up failed.
    Unchecked,
}
