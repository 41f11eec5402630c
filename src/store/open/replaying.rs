//! Replaying the journal when a store is opened. A damaged journal stops the start, unless the operator accepts the
//! loss: then the records before the damage are replayed, the file is kept under another name, and the mail that is
//! queued goes on hold, because its outcome may be among the lost records.

use std::path::Path;

use redb::{Database, ReadableDatabase as _, WriteTransaction};

use super::{OpenError, last_id};
use crate::base::entropy::Entropy;
use crate::base::time::Timestamp;
use crate::store::changes::Changes;
use crate::store::content::Returning;
use crate::store::disk::Disk;
use crate::store::error::StoreError;
use crate::store::journal::{self, Damage, Replay};
use crate::store::read::Read as _;
use crate::store::row::Row;
use crate::store::row::restored::Restored;
use crate::store::schema::{Table, meta};
use crate::store::snapshot::Snapshot;

/// What a start does where the journal is damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnJournalDamage {
    /// It fails, and changes nothing.
    Refuse,
    /// It goes on with the records before the damage. Where there is no damage, it fails.
    Accept,
}

/// Replays the journal of `directory` into `database`, durably.
pub(super) fn replay(
    database: &Database,
    disk: &dyn Disk,
    directory: &Path,
    on_damage: OnJournalDamage,
    now: Timestamp,
    entropy: &dyn Entropy,
) -> Result<(), OpenError> {
    let replay = Replay::read(database, disk, directory)?;
    let damage = match (replay.damage(), on_damage) {
        (Some(damage), OnJournalDamage::Refuse) => return Err(OpenError::JournalDamaged(*damage)),
        (None, OnJournalDamage::Accept) => return Err(OpenError::JournalWhole),
        (damage, OnJournalDamage::Refuse | OnJournalDamage::Accept) => damage,
    };
    let mut bodies = Returning::new(disk, directory, now);
    let mut replayed = replay.apply(database, |key, sealed| bodies.write(key, sealed))?;
    if let Some(damage) = damage {
        let name = replay.keep_damaged(disk, directory, now)?;
        report(damage, &name);
        // Seen now, and durable with the hold.
        replayed.map(journal::publish).transpose()?;
        replayed = Some(hold_queue(database, now)?);
    }
    if let Some(transaction) = replayed {
        bodies.sync()?;
        journal::checkpoint(transaction, entropy)?;
    }
    Ok(())
}

fn report(damage: &Damage, kept_as: &str) {
    let Damage { whole, offset, left_out } = *damage;
    tracing::error!(
        replayed = whole,
        left_out,
        offset,
        kept_as,
        "started on a damaged journal: what its last records say is lost, and the queued mail stays on hold until \
         `postrider queue release`"
    );
}

/// A transaction that puts everything on hold that is queued.
fn hold_queue(database: &Database, now: Timestamp) -> Result<WriteTransaction, StoreError> {
    let found = Snapshot::new(database.begin_read()?);
    let id = |key: &[u8]| last_id(&found, key);
    let hold =
        Restored::on_damaged_journal(found.row(meta::RESTORED)?, id(meta::LAST_MESSAGE_ID)?, id(meta::LAST_ID)?, now);
    let mut changes = Changes::default();
    changes.put(Table::Meta, meta::RESTORED.to_vec(), Some(hold.encode()));
    let transaction = database.begin_write()?;
    changes.write_to(&transaction)?;
    Ok(transaction)
}
