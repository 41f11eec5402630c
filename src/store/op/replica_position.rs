//! Recording how far the bucket has confirmed the log. Each batch records that anyway; this operation records it
//! without another change.

use serde::{Deserialize, Serialize};

use super::{Infallible, Op};
use crate::store::error::OpError;
use crate::store::replica::Position;
use crate::store::schema::{Table, meta};
use crate::store::tables::Tables;

/// Records a confirmed position in the log.
#[derive(Debug, Serialize, Deserialize)]
pub struct RecordReplicaPosition(Vec<u8>);

impl RecordReplicaPosition {
    /// Records `position`, or a later one that the bucket has confirmed meanwhile.
    pub fn new(position: &Position) -> Self {
        Self(position.encode())
    }
}

impl Op for RecordReplicaPosition {
    type Reply = ();
    type Refusal = Infallible;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<(), OpError<Infallible>> {
        tables.put_bytes(Table::Meta, meta::REPLICA, self.0.clone());
        Ok(())
    }
}
