//! A bound idempotency key (contract 3): written with the message that it belongs to.

use serde::{Deserialize, Serialize};

use super::Row;
use crate::machine::idempotency::Binding;
use crate::store::schema::Table;

/// Request and answer that a key is bound to.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct IdempotencyRow {
    /// Hash of the body, and expiry.
    pub binding: Binding,
    /// Bytes of the 202, for replays.
    pub answer: Vec<u8>,
}

impl Row for IdempotencyRow {
    const TABLE: Table = Table::Idempotency;
}
