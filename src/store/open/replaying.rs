//! Replaying the journal when a store is opened. A damaged journal prevents the start unless the operator accepts the
//! loss. In that case the records before the damage are replayed, and the file is kept under another name. Queued mail
//! is put on hold, because its outcome may be among the lost records.

use std::path::Path;
use std::sync::Arc;

use redb::{Database, ReadableTable as _, WriteTransaction};

use super::OpenError;
use crate::base::entropy::Entropy;
use crate::base::id::Ulid;
use crate::base::time::Timestamp;
use crate::store::checksum::Values;
use crate::store::clock_doubts::Deadlines;
use crate::store::content::BodyReplay;
use crate::store::damage::Damage;
use crate::store::disk::Disk;
use crate::store::error::StoreError;
use crate::store::journal::{self, Replay};
use crate::store::migrate;
use crate::store::replica;
use crate::store::row::Row;
use crate::store::row::restored::RestoreOrigin;
use crate::store::schema::{Table, meta};

/// Policy for a damaged journal at a start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnJournalDamage {
    /// The start fails and changes nothing.
    Refuse,
    /// The start continues with the records before the damage. It fails if there is no damage.
    Accept,
}

/// Replays the journal of `directory` into `database`, durably. `wall` is the wall clock.
pub(in crate::store) fn replay(
    database: &Database,
    disk: &Arc<dyn Disk>,
    directory: &Path,
    on_damage: OnJournalDamage,
    wall: Timestamp,
    entropy: &dyn Entropy,
) -> Result<(), OpenError> {
    let replay = Replay::read(database, &**disk, directory)?;
    let damage = match (replay.damage(), on_damage) {
        (Some(damage), OnJournalDamage::Refuse) => return Err(OpenError::JournalDamaged(*damage)),
        (None, OnJournalDamage::Accept) => return Err(OpenError::JournalWhole),
        (damage, OnJournalDamage::Refuse | OnJournalDamage::Accept) => damage,
    };
    replica::collect(disk, directory, database, &replay);
    let replayed = replay.apply(database)?;
    if replayed.is_none() && damage.is_none() {
        return Ok(());
    }
    // The rows are visible now and durable with the checkpoint. The deadlines of the bodies depend on the rows.
    replayed.map(journal::publish).transpose()?;
    let mut bodies = BodyReplay::new(Arc::clone(disk), directory, Deadlines::read(database, wall));
    replay.bodies(|key, sealed| bodies.write(key, sealed))?;
    bodies.sync()?;
    let transaction = match damage {
        Some(damage) => {
            let name = replay.keep_damaged(&**disk, directory, wall)?;
            report(damage, name.as_deref());
            hold_queue(database, wall)?
        }
        None => database.begin_write().map_err(StoreError::from)?,
    };
    journal::checkpoint_at_start(&**disk, directory, transaction, entropy)?;
    Ok(())
}

fn report(damage: &journal::Damage, kept_as: Option<&str>) {
    let left_out = match damage {
        journal::Damage::Record { left_out, .. } => Some(*left_out),
        journal::Damage::Missing | journal::Damage::Foreign => None,
    };
    tracing::error!(
        %damage,
        left_out,
        kept_as,
        "started on a damaged journal: its last records are lost, and the queued mail stays on hold until `postrider \
         queue release`"
    );
}

/// Returns a transaction that puts everything queued on hold. The store may have an earlier format.
fn hold_queue(database: &Database, now: Timestamp) -> Result<WriteTransaction, StoreError> {
    let transaction = database.begin_write()?;
    let mut table = transaction.open_table(Table::Meta.definition())?;
    let values = Values::of_format(migrate::format_in(&table)?);
    let fact = |key: &[u8]| -> Result<Option<Vec<u8>>, StoreError> {
        let Some(stored) = table.get(key)? else { return Ok(None) };
        let damaged = || Damage::default().row(Table::Meta, key);
        values.open(Table::Meta.name(), key, stored.value()).map(|value| Some(value.to_vec())).ok_or_else(damaged)
    };
    let id = |key: &[u8]| -> Result<Ulid, StoreError> {
        Ok(fact(key)?.and_then(|bytes| bytes.try_into().ok()).map(Ulid).unwrap_or_default())
    };
    let (last_message, last_id) = (id(meta::LAST_MESSAGE_ID)?, id(meta::LAST_ID)?);
    let earlier = fact(meta::RESTORED)?.map(|row| RestoreOrigin::decode(&row)).transpose()?;
    let hold = RestoreOrigin::on_damaged_journal(earlier, last_message, last_id, now);
    table.insert(meta::RESTORED, values.stored(Table::Meta.name(), meta::RESTORED, &hold.encode()).as_slice())?;
    drop(table);
    Ok(transaction)
}
