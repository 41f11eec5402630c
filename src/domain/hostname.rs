//! Domain names, as lower-case A-labels (RFC 5890).  (Skeleton.)

use serde::{Deserialize, Serialize};

/// A checked domain name in the form that the wire, storage and all matching use: lower-case A-labels, no trailing dot.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DomainName(String);

impl DomainName {
    /// The name, such as `xn--bcher-kva.example`.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}
