//! The OpenID Connect identity of a user. Row key: that of the user.

use serde::{Deserialize, Serialize};

use super::Row;
use crate::base::signature::hmac_sha256;
use crate::store::schema::Table;

/// An identity at a provider of OpenID Connect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdentityRow {
    /// The provider.
    pub issuer: String,
    /// The provider's identifier of the person, which never changes.
    pub subject: String,
}

impl Row for IdentityRow {
    const TABLE: Table = Table::Identities;
}

impl IdentityRow {
    /// Returns the key of [`Table::UsersByIdentity`]. The length separates the issuer from the subject.
    pub fn digest(&self) -> [u8; 32] {
        let Self { issuer, subject } = self;
        hmac_sha256(b"identity", &[format!("{}:{issuer}", issuer.len()).as_bytes(), subject.as_bytes()])
    }
}
