//! Comparison of the log with the batches of this directory: a directory can be behind an older copy of itself that
//! continued the log. The records of unconfirmed batches are in the backlog.

use std::io;
use std::sync::Arc;

use super::Follower;
use super::backlog::{Backlog, BacklogRecord};
use super::position::Sequence;
use crate::store::error::StoreError;

/// The records of the directory's batches that the bucket may lack.
pub(super) struct OwnRecords {
    backlog: Backlog,
    records: Vec<BacklogRecord>,
}

impl Follower {
    /// Returns whether `payload` is not this store's batch with the sequence `logged`. The records of batches that the
    /// bucket confirmed may be removed: for these only the last batch can be compared, by its time.
    pub(super) fn is_other(&mut self, payload: &[u8], logged: Sequence) -> Result<bool, StoreError> {
        let last = self.sequence();
        if logged.number == last.number && logged.committed_at != last.committed_at {
            return Ok(true);
        }
        let own = match self.own.take() {
            Some(own) => own,
            None => {
                let opened = Backlog::open(Arc::clone(&self.disk), &self.directory, last.number);
                let (backlog, records) = opened.map_err(unreadable)?;
                OwnRecords { backlog, records }
            }
        };
        let found = own.records.binary_search_by_key(&logged.number, |record| record.sequence);
        let record = found.ok().map(|index| own.backlog.read(own.records[index].stored)).transpose();
        self.own = Some(own);
        Ok(record.map_err(unreadable)?.is_some_and(|record| record != payload))
    }
}

fn unreadable(error: io::Error) -> StoreError {
    StoreError::Database(format!("could not read the replication backlog: {error}"))
}
