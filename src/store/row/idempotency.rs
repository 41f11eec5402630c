//! A bound idempotency key (contract 3): written together with its message.

use serde::{Deserialize, Serialize};

use super::Row;
use crate::machine::idempotency::Binding;
use crate::store::schema::Table;

/// Request and answer of a bound key.
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
