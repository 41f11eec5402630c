//! The body of a `claim` slot: who begins the epoch, and the reason.

use serde::{Deserialize, Serialize};

/// Reason for a new epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClaimCause {
    /// The holder was started.
    Start,
    /// An operator promoted a standby.
    Promotion,
    /// A standby saw no new slot for two leases.
    Failover,
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
    /// The sequence number of the last batch that the new holder has.
    pub sequence: u64,
}
