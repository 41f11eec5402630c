//! Replay of the journal: after a crash its records are written into the database again.
//!
//! If a record inside the journal is damaged, only the records before it may be replayed. Records hold the new rows,
//! and each builds on the one before. Skipping only the damaged record would give a state that never existed, for
//! example a timer without its message. The state before the damage did exist.

use std::io;
use std::path::Path;

use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition, TableError, WriteTransaction};

use super::record::Layout;
use super::redo::{self, BODIES};
use super::scan::{Damage, Scan, scan, scan_named};
use super::{Epoch, FILE, failed};
use crate::base::time::Timestamp;
use crate::store::checksum::Values;
use crate::store::disk::{Disk, OpenMode};
use crate::store::error::StoreError;
use crate::store::migrate;
use crate::store::schema::{Table, meta};

/// The journal of a store that is being opened.
pub(in crate::store) struct Replay {
    bytes: Vec<u8>,
    found: Scan,
    /// Whether the database values have checksums. Values in records never have them.
    values: Values,
}

impl Replay {
    /// Reads the journal of `directory` and finds the records that `database` lacks.
    ///
    /// # Errors
    /// Database and file system errors.
    pub(in crate::store) fn read(database: &Database, disk: &dyn Disk, directory: &Path) -> Result<Self, StoreError> {
        let Some((epoch, values)) = epoch_of(database)? else {
            return Ok(Self { bytes: Vec::new(), found: Scan::default(), values: Values::Checked });
        };
        match disk.read(&directory.join(FILE)) {
            Ok(bytes) => {
                let found = match values {
                    Values::Plain => scan(&bytes, &epoch, 0),
                    Values::Checked => scan_named(&bytes, &epoch),
                };
                Ok(Self { bytes, found, values })
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // Versions that wrote format 1 continued without the file.
                let damage = (values == Values::Checked).then_some(Damage::Missing);
                let found = Scan { damage, ..Scan::default() };
                Ok(Self { bytes: Vec::new(), found, values })
            }
            Err(error) => Err(failed("read", &error)),
        }
    }

    /// Returns the damage, if any. Then only the records before it are replayed.
    pub(in crate::store) const fn damage(&self) -> Option<&Damage> {
        self.found.damage.as_ref()
    }

    /// Replays the rows of the records. Returns a transaction to commit if there were any records. May be repeated.
    ///
    /// # Errors
    /// Database errors; a record of a later version.
    pub(in crate::store) fn apply(&self, database: &Database) -> Result<Option<WriteTransaction>, StoreError> {
        if let Some(offset) = self.found.torn_at {
            tracing::warn!(
                offset,
                "skipped the incomplete last journal record; a crash during a write leaves such a record, whose \
                 operations were not acknowledged; if the file was damaged later instead, they are lost"
            );
        }
        if self.found.records.is_empty() {
            return Ok(None);
        }
        tracing::info!(records = self.found.records.len(), "replaying the journal");
        let transaction = database.begin_write()?;
        for (layout, payload) in self.found.payloads(&self.bytes) {
            for redo::Change { table, key, value } in redo::decode(layout, payload)? {
                if table == BODIES {
                    continue;
                }
                let mut opened = transaction.open_table(TableDefinition::<&[u8], &[u8]>::new(table))?;
                match value {
                    Some(value) => drop(opened.insert(key, self.values.stored(table, key, value).as_slice())?),
                    None => drop(opened.remove(key)?),
                }
            }
        }
        Ok(Some(transaction))
    }

    /// Calls `body` with the inlined bodies of the records. They must be durable before the rows are.
    ///
    /// # Errors
    /// Errors of `body`; a record of a later version.
    pub(in crate::store) fn bodies(
        &self,
        mut body: impl FnMut(&[u8], &[u8]) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        for (layout, payload) in self.found.payloads(&self.bytes) {
            let changes = redo::decode(layout, payload)?.into_iter().filter(|change| change.table == BODIES);
            for change in changes {
                body(change.key, change.value.unwrap_or_default())?;
            }
        }
        Ok(())
    }

    /// Returns the payloads of the replayed records for a backlog. A store of format 1 is migrated and has none.
    pub(in crate::store) fn payloads(&self) -> impl Iterator<Item = &[u8]> {
        self.found.payloads(&self.bytes).filter(|(layout, _)| *layout == Layout::Second).map(|(_, payload)| payload)
    }

    /// Copies a damaged file durably to another name, and returns that name. The journal itself stays until a
    /// checkpoint contains its intact records, because a start after a crash must find the damage again.
    ///
    /// # Errors
    /// File system errors, including a full disk.
    pub(in crate::store) fn keep_damaged(
        &self,
        disk: &dyn Disk,
        directory: &Path,
        now: Timestamp,
    ) -> Result<Option<String>, StoreError> {
        if self.found.damage == Some(Damage::Missing) {
            return Ok(None);
        }
        let name = format!("{FILE}.damaged-{}", now.as_millis());
        let kept = disk.open(&directory.join(&name), OpenMode::Fresh).and_then(|file| {
            file.write_all_at(&self.bytes, 0)?;
            file.sync_data()?;
            disk.sync_directory(directory)
        });
        kept.map_err(|error| failed("keep a copy of", &error))?;
        Ok(Some(name))
    }
}

/// Returns the epoch of the records that the database lacks, and whether its values have checksums.
pub(super) fn epoch_of(database: &Database) -> Result<Option<(Epoch, Values)>, StoreError> {
    let facts = match database.begin_read()?.open_table(Table::Meta.definition()) {
        Ok(facts) => facts,
        Err(TableError::TableDoesNotExist(_)) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let values = Values::of_format(migrate::format_in(&facts)?);
    Ok(epoch_in(&facts, values)?.map(|epoch| (epoch, values)))
}

/// Returns the epoch among `facts`. A damaged one is an error: without it no record would count, and all would be lost
/// silently.
pub(super) fn epoch_in(
    facts: &impl ReadableTable<&'static [u8], &'static [u8]>,
    values: Values,
) -> Result<Option<Epoch>, StoreError> {
    let Some(stored) = facts.get(meta::JOURNAL)? else { return Ok(None) };
    let epoch = values.open(Table::Meta.name(), meta::JOURNAL, stored.value());
    let epoch = epoch.and_then(|epoch| epoch.try_into().ok()).ok_or_else(|| StoreError::Damaged {
        table: Table::Meta,
        row: "journal".to_owned(),
        fault: "it is unknown which records of the journal count".to_owned(),
    })?;
    Ok(Some(epoch))
}
