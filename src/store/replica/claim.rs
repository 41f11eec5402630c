//! The body of a `claim` slot: who begins the epoch, and why.

use serde::{Deserialize, Serialize};

/// Why an epoch began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClaimCause {
    /// The holder started.
    Start,
    /// An operator promoted a standby.
    Promotion,
    /// A standby found the log still for two leases.
    Failover,
}

/// A claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// The version of the program that claims.
    pub program: String,
    /// The cause.
    pub cause: ClaimCause,
    /// The lease of the new holder in milliseconds; 0 where it lasts until another claims.
    pub lease_millis: u64,
    /// The sequence number of the last batch that the new holder has.
    pub sequence: u64,
}
