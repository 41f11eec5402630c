//! Taking a backup of a running store (contract 8 `backup`).
//!
//! All rows come from one snapshot. A snapshot per page of rows would pin less. But a message, its timer and its events
//! are one transaction, and the copy must contain all or none of them. While the rows are read, pages that the writer
//! frees stay pinned. The database grows by the pages rewritten during that time and reuses the space later. The
//! snapshot is released before the first byte of content is read.
//!
//! Content is copied after the rows. A body is durable before the row that names it, so every named body exists. A
//! bucket whose deadline passes during the backup is destroyed as usual. It is then missing from both the backup and
//! the store.

use std::collections::BTreeMap;
use std::io::{self, Write};

use redb::{ReadTransaction, ReadableTable, ReadableTableMetadata, TableDefinition, TableHandle};

use super::Store;
use super::archive::{Head, Totals, Writer};
use super::checksum;
use super::content::{Content, Unreadable};
use super::damage::row_name;
use super::error::StoreError;
use super::master_key::{self, Raw};
use super::open::OpenError;
use super::read::Read;
use super::row::Row;
use super::row::message::MessageRow;
use super::schema::{FORMAT, Table, meta};
use super::snapshot::Snapshot;
use crate::base::time::Timestamp;

/// Maximum number of content bytes that are read and written at once.
const PIECE: u64 = 256 * 1024;
/// Number of rows between two progress reports.
const PROGRESS_ROWS: u64 = 10_000;

/// Optional contents of a backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Message bodies and their keys, sealed under the master key.
    pub content: bool,
    /// The master key itself.
    pub master_key: bool,
}

/// Reason why a backup failed.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// Writing to the output failed.
    #[error("could not write the backup: {0}")]
    Unwritten(#[from] io::Error),
    /// The store could not be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The master key could not be read.
    #[error("could not read the master key: {0}")]
    MasterKey(Box<OpenError>),
}

/// The segments that rows name, each with the end of the last named body.
pub type NamedSegments = BTreeMap<(Timestamp, u32), u64>;

impl Store {
    /// Writes a backup of all data committed at `now` to `out`. `beside` names files in the data directory that belong
    /// to the store; missing ones are skipped. Blocks. Memory use does not depend on the size of the store.
    ///
    /// # Errors
    /// The reason why the backup is incomplete.
    pub fn back_up(
        &self,
        now: Timestamp,
        extent: Extent,
        beside: &[&str],
        out: impl Write,
    ) -> Result<Totals, BackupError> {
        let (mut writer, named) = self.back_up_rows(now, extent, out)?;
        let content = self.content();
        let there = || named.iter().filter(|(segment, _)| content.has(**segment));
        if extent.content {
            writer.content_ahead(there().map(|(_, end)| end).sum())?;
        } else {
            writer.content_ahead(0)?;
        }
        for (&segment, &end) in there() {
            copy_segment(&mut writer, content, segment, if extent.content { end } else { 0 })?;
        }
        if extent.content {
            writer.keys(&content.sealed_keys(named.keys().copied()))?;
        }
        for name in beside {
            match self.disk.read(&self.directory().join(name)) {
                Ok(bytes) => writer.file(name, &bytes)?,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(writer.end()?)
    }

    /// Writes the part of a backup that needs the snapshot.
    fn back_up_rows<W: Write>(
        &self,
        now: Timestamp,
        extent: Extent,
        out: W,
    ) -> Result<(Writer<W>, NamedSegments), BackupError> {
        let snapshot = self.snapshot()?;
        let key = match extent.master_key {
            true => {
                let proof = snapshot.get(Table::Meta, meta::MASTER_KEY_PROOF)?.unwrap_or_default();
                let key = master_key::raw_of_store(&*self.disk, self.directory(), &proof);
                Some(key.map_err(|error| BackupError::MasterKey(Box::new(error)))?)
            }
            false => None,
        };
        Self::write_rows(&snapshot, now, (extent, key), out)
    }

    /// Writes the master key, if given, and then the rows of `snapshot`.
    pub(super) fn write_rows<W: Write>(
        snapshot: &Snapshot,
        now: Timestamp,
        (extent, key): (Extent, Option<Raw>),
        out: W,
    ) -> Result<(Writer<W>, NamedSegments), BackupError> {
        let transaction = snapshot.transaction();
        let mut writer = begin(transaction, now, extent, FORMAT, out)?;
        if let Some(key) = key {
            writer.master_key(&key)?;
        }
        let mut named = NamedSegments::new();
        let copied = copy_rows(transaction, &mut writer, &mut |table, key, stored| {
            if table == Table::Messages.name() {
                note(&mut named, key, stored);
            }
        });
        copied.map_err(|error| match error {
            BackupError::Store(error) => snapshot.fail(error).into(),
            error => error,
        })?;
        Ok((writer, named))
    }
}

/// Writes a backup of only the rows that `transaction` sees, in any format. Content and master key are not included.
pub(super) fn rows_of(
    transaction: &ReadTransaction,
    now: Timestamp,
    store_format: u32,
    out: impl Write,
    progress: &mut dyn FnMut(u64),
) -> Result<(), BackupError> {
    let mut writer = begin(transaction, now, Extent { content: false, master_key: false }, store_format, out)?;
    let mut rows = 0;
    copy_rows(transaction, &mut writer, &mut |_, _, _| {
        rows += 1;
        if rows % PROGRESS_ROWS == 0 {
            progress(rows);
        }
    })?;
    writer.end()?;
    Ok(())
}

/// Returns the number of rows that `transaction` sees.
pub(super) fn count_rows(transaction: &ReadTransaction) -> Result<u64, StoreError> {
    tables(transaction)?.iter().try_fold(0, |rows, name| Ok(rows + open(transaction, name)?.len()?))
}

/// Begins a backup of the store of format `store_format` that `transaction` shows.
fn begin<W: Write>(
    transaction: &ReadTransaction,
    taken_at: Timestamp,
    extent: Extent,
    store_format: u32,
    out: W,
) -> Result<Writer<W>, BackupError> {
    let head = Head {
        store_format,
        taken_at,
        program: env!("CARGO_PKG_VERSION").to_owned(),
        has_content: extent.content,
        has_master_key: extent.master_key,
        rows: count_rows(transaction)?,
    };
    Ok(Writer::begin(out, &head)?)
}

/// Callback for the table, the key and the stored bytes of each row.
type StoredRowVisitor<'a> = dyn FnMut(&str, &[u8], &[u8]) + 'a;

/// Copies every row of every table as stored, in any store format, with its checksum if it has one. `each` is called
/// with the table, the key and the stored bytes.
fn copy_rows<W: Write>(
    transaction: &ReadTransaction,
    writer: &mut Writer<W>,
    each: &mut StoredRowVisitor<'_>,
) -> Result<(), BackupError> {
    for name in tables(transaction)? {
        let table = open(transaction, &name)?;
        for row in table.iter().map_err(StoreError::from)? {
            let (key, value) = row.map_err(StoreError::from)?;
            writer.row(&name, key.value(), value.value())?;
            each(&name, key.value(), value.value());
        }
    }
    Ok(())
}

fn note(named: &mut NamedSegments, key: &[u8], stored: &[u8]) {
    let value = checksum::open(Table::Messages.name(), key, stored);
    let fault = || StoreError::Damaged {
        table: Table::Messages,
        row: row_name(Table::Messages, key),
        fault: "its checksum does not match".to_owned(),
    };
    match value.ok_or_else(fault).and_then(MessageRow::decode) {
        Ok(MessageRow { place, .. }) => {
            let end = named.entry((place.bucket, place.segment)).or_default();
            *end = (*end).max(place.offset + u64::from(place.length));
        }
        // Copy the damaged row unchanged: it may still be repaired later.
        Err(error) => tracing::error!(%error, "could not read a row of the backup; its body is not included"),
    }
}

fn copy_segment<W: Write>(
    writer: &mut Writer<W>,
    content: &Content,
    segment: (Timestamp, u32),
    end: u64,
) -> Result<(), BackupError> {
    let (bucket, number) = segment;
    let mut offset = 0;
    loop {
        let mut piece = vec![0; usize::try_from(PIECE.min(end - offset)).unwrap_or_default()];
        match content.read_sealed(segment, offset, &mut piece) {
            Ok(()) => writer.segment(bucket, number, offset, &piece)?,
            Err(Unreadable::Gone) => return Ok(()),
            Err(Unreadable::Failed(error)) => return Err(error.into()),
        }
        offset += piece.len() as u64;
        if offset == end {
            return Ok(());
        }
    }
}

type BackupTable = redb::ReadOnlyTable<&'static [u8], &'static [u8]>;

fn open(transaction: &ReadTransaction, name: &str) -> Result<BackupTable, StoreError> {
    Ok(transaction.open_table(TableDefinition::<&'static [u8], &'static [u8]>::new(name))?)
}

fn tables(transaction: &ReadTransaction) -> Result<Vec<String>, StoreError> {
    Ok(transaction.list_tables()?.map(|table| table.name().to_owned()).collect())
}
