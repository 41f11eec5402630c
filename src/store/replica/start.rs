//! Opening the outbox of a replicated store.

use std::path::Path;
use std::sync::Arc;

use super::{Outbox, Sequence};
use crate::store::content::Content;
use crate::store::disk::Disk;
use crate::store::error::StoreError;
use crate::store::open::ReplicaStart;

/// Number of segment numbers for each epoch. A writer that lost its claim unnoticed can therefore never use a segment
/// number of its successor.
const SEGMENTS_PER_EPOCH: u64 = 4096;

/// Opens the outbox of a store at the sequence `last`, continuing as specified in `start`.
pub(in crate::store) fn open_outbox(
    disk: &Arc<dyn Disk>,
    directory: &Path,
    last: Sequence,
    content: &Content,
    start: &ReplicaStart,
) -> Result<Arc<Outbox>, StoreError> {
    let first = start.confirmed.epoch.saturating_mul(SEGMENTS_PER_EPOCH);
    content.begin_segments_at(u32::try_from(first).unwrap_or(0));
    let opened = Outbox::open(Arc::clone(disk), directory, last, Some(start.confirmed), start);
    opened
        .map(Arc::new)
        .map_err(|error| StoreError::Database(format!("could not open the replication backlog: {error}")))
}
