//! Saving the journal's records at a start. The checkpoint after a replay makes them void, so records that the bucket
//! may lack are appended to the backlog first.

use std::path::Path;
use std::sync::Arc;

use redb::{Database, ReadableDatabase as _};

use super::backlog::{Backlog, DIRECTORY};
use super::position::Sequence;
use super::record;
use crate::store::checksum;
use crate::store::disk::Disk;
use crate::store::journal::Replay;
use crate::store::schema::{Table, meta};

/// Appends the records of `replay` to the backlog of `directory`, if there is one. If that fails, the backlog is
/// removed and a new base replaces it.
pub(in crate::store) fn collect(disk: &Arc<dyn Disk>, directory: &Path, database: &Database, replay: &Replay) {
    if !disk.exists(&directory.join(DIRECTORY)) {
        return;
    }
    let numbered = |payload| Some((record::sequence_of(payload)?.number, payload));
    let records: Vec<(u64, &[u8])> = replay.payloads().filter_map(numbered).collect();
    let stored = sequence_of(database).unwrap_or_default().number;
    let last = records.last().map_or(stored, |(sequence, _)| stored.max(*sequence));
    let collected = Backlog::open(Arc::clone(disk), directory, last).and_then(|(mut backlog, found)| {
        let from = found.last().map_or(0, |found| found.sequence);
        let appended = backlog.append(records.iter().copied().filter(|(sequence, _)| *sequence > from));
        if appended.is_err() {
            backlog.clear();
        }
        appended
    });
    if let Err(error) = collected {
        tracing::error!(%error, "could not write the replication backlog; a new base replaces it");
    }
}

/// Returns the sequence in a database, which may have an earlier format.
fn sequence_of(database: &Database) -> Option<Sequence> {
    let facts = database.begin_read().ok()?.open_table(Table::Meta.definition()).ok()?;
    let stored = facts.get(meta::SEQUENCE).ok()??;
    Sequence::decode(checksum::open(Table::Meta.name(), meta::SEQUENCE, stored.value())?)
}
