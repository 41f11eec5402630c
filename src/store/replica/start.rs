//! Opening the outbox of a store that replicates.

use std::path::Path;
use std::sync::Arc;

use super::{Outbox, Sequence};
use crate::store::content::Content;
use crate::store::disk::Disk;
use crate::store::error::StoreError;
use crate::store::open::ReplicaStart;

/// Numbers of segments that an epoch has for itself. A writer that lost its claim, and does not know it yet, never
/// makes a segment of a number that its successor uses.
const SEGMENTS_PER_EPOCH: u64 = 4096;

/// Opens the outbox of a store at `last` that goes on as `start` says.
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
