//! The body of a `claim` slot: the new holder, and the reason for the new epoch.

use serde::{Deserialize, Serialize};

/// Reason for a new epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClaimCause {
    /// The holder was started.
    Start,
    /// An operator promoted a standby.
    Promotion,
    /// A standby saw no new slot for two lease periods.
    Failover,
    /// An operator promoted a standby, and everything queued is on hold from this claim on.
    PromotionWithHold,
}

impl ClaimCause {
    /// Returns whether everything queued at the claim is put on hold, on every machine that follows the log.
    pub fn holds_queue(self) -> bool {
        self == Self::PromotionWithHold
    }
}

/// A claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// Version of Postrider that claims.
    pub program: String,
    /// The cause.
    pub cause: ClaimCause,
    /// Lease of the new holder in milliseconds; 0 if it has no end.
    pub lease_millis: u64,
    /// Sequence number of the new holder's last batch.
    pub sequence: u64,
    /// The place of the new holder's directory: a copy of the directory has another one. 0 if it is not known.
    pub place: u64,
}

/// A claim before places were recorded.
#[derive(Deserialize)]
pub(super) struct ClaimV1 {
    program: String,
    cause: ClaimCause,
    lease_millis: u64,
    sequence: u64,
}

impl From<ClaimV1> for Claim {
    fn from(claim: ClaimV1) -> Self {
        let ClaimV1 { program, cause, lease_millis, sequence } = claim;
        Self { program, cause, lease_millis, sequence, place: 0 }
    }
}
