//! A late part of opening a store: it creates missing tables, checks the master key, and reads the state from which the
//! writer continues.

use std::path::Path;
use std::sync::Arc;

use redb::{Database, ReadableDatabase as _};

use super::{OpenError, StartWork};
use crate::base::entropy::Entropy;
use crate::base::id::Ulid;
use crate::base::secret::MasterKey;
use crate::store::changes::Changes;
use crate::store::disk::Disk;
use crate::store::error::StoreError;
use crate::store::journal::{self, Epoch};
use crate::store::read::{Read, sound};
use crate::store::replica::Sequence;
use crate::store::row::restored::RestoreOrigin;
use crate::store::schema::{self, FORMAT, Table, meta};
use crate::store::snapshot::Snapshot;
use crate::store::timer_counts::TimerCounts;
use crate::store::{master_key, totals};

/// Facts that opening reads from the tables.
pub(super) struct OpeningFacts {
    pub(super) last: Ulid,
    pub(super) keeps_time: bool,
    pub(super) last_message: Ulid,
    pub(super) sequence: Sequence,
    pub(super) master: Arc<MasterKey>,
    pub(super) restored: Option<RestoreOrigin>,
    pub(super) waiting: TimerCounts,
    pub(super) epoch: Epoch,
}

/// Creates missing tables, checks the master key, and reads the state from which the store continues.
pub(super) fn prepare(
    database: &Database,
    disk: &dyn Disk,
    directory: &Path,
    entropy: &dyn Entropy,
    progress: &dyn Fn(StartWork),
) -> Result<OpeningFacts, OpenError> {
    let counting = |rows| progress(StartWork::Counting(rows));
    let transaction = database.begin_write().map_err(StoreError::from)?;
    schema::make_tables(&transaction)?;
    journal::publish(transaction)?;
    let found = Snapshot::new(database.begin_read().map_err(StoreError::from)?, Arc::default());
    let mut changes = Changes::default();
    let mut put = |key: &[u8], value: &[u8]| changes.put(Table::Meta, key.to_vec(), Some(value.to_vec()));
    put(meta::FORMAT, &FORMAT.to_be_bytes());
    let proof = found.get(Table::Meta, meta::MASTER_KEY_PROOF)?;
    let master = master_key::of_store(disk, directory, proof.as_deref(), entropy)?;
    if proof.is_none() {
        put(meta::MASTER_KEY_PROOF, &master_key::proof(&master, entropy));
    }
    let restored = found.row(meta::RESTORED)?;
    let waiting =
        match sound(found.get(Table::Meta, meta::WAITING))?.flatten().and_then(|bytes| TimerCounts::decode(&bytes)) {
            Some(waiting) => waiting,
            None => TimerCounts::count(&found, &counting)?,
        };
    put(meta::WAITING, &waiting.encode());
    totals::count_missing(&found, &mut changes, &counting)?;
    let (last, last_message) = (last_id(&found, meta::LAST_ID)?, last_id(&found, meta::LAST_MESSAGE_ID)?);
    let (sequence, keeps_time) = (sequence(&found)?, found.has(Table::Meta, meta::TIME)?);
    drop(found);
    let transaction = database.begin_write().map_err(StoreError::from)?;
    changes.write_to(&transaction)?;
    let epoch = journal::checkpoint_at_start(disk, directory, transaction, entropy)?;
    let master = Arc::new(master);
    Ok(OpeningFacts { last, keeps_time, last_message, sequence, master, restored, waiting, epoch })
}

/// Returns the last identifier used, so that the next is greater.
pub(in crate::store) fn last_id(found: &Snapshot, key: &[u8]) -> Result<Ulid, StoreError> {
    Ok(found.get(Table::Meta, key)?.and_then(|bytes| bytes.try_into().ok()).map(Ulid).unwrap_or_default())
}

/// Returns the sequence of the last batch; for a store of an earlier version, the one before the first.
pub(in crate::store) fn sequence(found: &Snapshot) -> Result<Sequence, StoreError> {
    let bytes = found.get(Table::Meta, meta::SEQUENCE)?;
    Ok(bytes.and_then(|bytes| Sequence::decode(&bytes)).unwrap_or_default())
}
