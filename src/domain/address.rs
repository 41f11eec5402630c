//! One mailbox address (RFC 5321 4.1.2), without display name. (Skeleton: parsing follows.)

use serde::{Deserialize, Serialize};

use super::hostname::DomainName;

/// A checked address: as its owner wrote it, and in the form that the wire and all matching use.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Address {
    as_given: String,
    local: String,
    domain: DomainName,
}

impl Address {
    /// The address as given, echoed in answers and events.
    pub fn as_given(&self) -> &str {
        &self.as_given
    }
    /// The local part as given, quotes included.
    pub fn local(&self) -> &str {
        &self.local
    }
    /// The domain as lower-case A-label.
    pub const fn domain(&self) -> &DomainName {
        &self.domain
    }
}
