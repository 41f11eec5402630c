//! The backlog: records of batches that the bucket has not confirmed, in files of the data directory.
//!
//! A checkpoint overwrites the journal, so the writer appends every unconfirmed record here, and syncs, before the
//! checkpoint commits. At a start the backlog contains every unconfirmed record in the order of their sequences.
//!
//! `"PRBL\x01"`, then for each record `length(4) digest(16) record`, all integers big-endian. An incomplete or damaged
//! record ends its file. Only an append without a later checkpoint can be incomplete.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::record;
use crate::base::signature::hmac_sha256;
use crate::store::disk::{Disk, DiskFile, OpenMode};

/// Name of the backlog's directory in the data directory.
pub(in crate::store) const DIRECTORY: &str = "replica";
const PREFIX: &str = "backlog.";
/// File that exists while the log needs a new base.
const BASE_OWED: &str = "base-owed";
const MAGIC: &[u8] = b"PRBL\x01";
const HEAD: usize = 4 + DIGEST;
const DIGEST: usize = 16;
/// Length of a file after which the next one begins, so that confirmed records can be removed.
const FILE_BYTES: u64 = 8 << 20;

/// Place of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StoredRecord {
    file: u64,
    offset: u64,
    length: u32,
}

/// A record found at a start.
pub(super) struct BacklogRecord {
    pub(super) sequence: u64,
    pub(super) stored: StoredRecord,
}

/// The backlog files of one data directory.
pub(in crate::store) struct Backlog {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    /// Number, highest sequence and length of each file.
    files: Vec<BacklogFile>,
    /// The last file, while records are appended to it.
    open: Option<Arc<dyn DiskFile>>,
    next: u64,
}

struct BacklogFile {
    number: u64,
    last: u64,
    length: u64,
}

impl Backlog {
    /// Opens the backlog in the data directory, and returns its records up to the sequence `last` of the store. Later
    /// records belong to a batch that was never committed, and are removed.
    ///
    /// # Errors
    /// File system errors.
    pub(super) fn open(disk: Arc<dyn Disk>, data: &Path, last: u64) -> io::Result<(Self, Vec<BacklogRecord>)> {
        let directory = data.join(DIRECTORY);
        disk.create_directory(&directory)?;
        let mut backlog = Self { disk, directory, files: Vec::new(), open: None, next: 1 };
        let mut found = Vec::new();
        for number in backlog.numbers()? {
            backlog.next = number + 1;
            backlog.read_file(number, last, &mut found)?;
        }
        Ok((backlog, found))
    }

    /// Returns whether the log has had a gap since its newest base.
    pub(super) fn owes_base(&self) -> bool {
        self.disk.exists(&self.directory.join(BASE_OWED))
    }

    /// Marks durably that the log has a gap.
    pub(super) fn mark_base_owed(&self) -> io::Result<()> {
        // A file of an earlier try may not be durable.
        self.disk.open(&self.directory.join(BASE_OWED), OpenMode::Kept)?.sync_data()?;
        self.disk.sync_directory(&self.directory)
    }

    /// Removes the mark.
    pub(super) fn unmark_base_owed(&self) -> io::Result<()> {
        if self.owes_base() { self.disk.remove_file(&self.directory.join(BASE_OWED)) } else { Ok(()) }
    }

    fn numbers(&self) -> io::Result<Vec<u64>> {
        let entries = self.disk.list(&self.directory)?;
        let mut numbers: Vec<u64> =
            entries.iter().filter_map(|entry| entry.name.strip_prefix(PREFIX)?.parse().ok()).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    fn read_file(&mut self, number: u64, last: u64, found: &mut Vec<BacklogRecord>) -> io::Result<()> {
        let bytes = self.disk.read(&self.path(number))?;
        let mut end = 0;
        let mut highest = 0;
        if bytes.starts_with(MAGIC) {
            end = MAGIC.len();
            while let Some((payload, after)) = payload_at(&bytes, end) {
                let Some(sequence) = record::sequence_of(payload) else { break };
                if sequence.number > last {
                    break;
                }
                // A record that was appended twice counts once, in its last version.
                while found.last().is_some_and(|before: &BacklogRecord| before.sequence >= sequence.number) {
                    found.pop();
                }
                let (offset, length) = ((end + HEAD) as u64, u32::try_from(payload.len()).unwrap_or(u32::MAX));
                found.push(BacklogRecord {
                    sequence: sequence.number,
                    stored: StoredRecord { file: number, offset, length },
                });
                highest = highest.max(sequence.number);
                end = after;
            }
        }
        if end < bytes.len() {
            let file = self.disk.open(&self.path(number), OpenMode::Kept)?;
            file.set_length(end as u64)?;
            file.sync_data()?;
        }
        self.files.push(BacklogFile { number, last: highest, length: end as u64 });
        Ok(())
    }

    /// Appends records durably.
    ///
    /// # Errors
    /// File system errors; the records then count as not stored.
    pub(super) fn append<'a>(
        &mut self,
        records: impl Iterator<Item = (u64, &'a [u8])>,
    ) -> io::Result<Vec<StoredRecord>> {
        let mut bytes = Vec::new();
        let mut placed = Vec::new();
        let mut highest = 0;
        for (sequence, payload) in records {
            let length = u32::try_from(payload.len()).map_err(io::Error::other)?;
            bytes.extend(length.to_be_bytes());
            bytes.extend(digest(payload));
            placed.push((bytes.len() as u64, length));
            bytes.extend(payload);
            highest = highest.max(sequence);
        }
        if placed.is_empty() {
            return Ok(Vec::new());
        }
        let file = self.writable()?;
        let Some(at) = self.files.last_mut() else { return Err(io::Error::other("no backlog file is open")) };
        file.write_all_at(&bytes, at.length)?;
        file.sync_data()?;
        let (number, begin) = (at.number, at.length);
        at.length += bytes.len() as u64;
        at.last = at.last.max(highest);
        Ok(placed
            .into_iter()
            .map(|(offset, length)| StoredRecord { file: number, offset: begin + offset, length })
            .collect())
    }

    fn writable(&mut self) -> io::Result<Arc<dyn DiskFile>> {
        if let (Some(open), Some(last)) = (&self.open, self.files.last())
            && last.length < FILE_BYTES
        {
            return Ok(Arc::clone(open));
        }
        let number = self.next;
        let file = self.disk.open(&self.path(number), OpenMode::Fresh)?;
        self.next += 1;
        file.write_all_at(MAGIC, 0)?;
        file.sync_data()?;
        self.disk.sync_directory(&self.directory)?;
        self.files.push(BacklogFile { number, last: 0, length: MAGIC.len() as u64 });
        self.open = Some(Arc::clone(&file));
        Ok(file)
    }

    /// Reads a record again.
    ///
    /// # Errors
    /// File system errors; a damaged record.
    pub(super) fn read(&self, stored: StoredRecord) -> io::Result<Vec<u8>> {
        let file = self.disk.open(&self.path(stored.file), OpenMode::Existing)?;
        let mut bytes = vec![0; HEAD + stored.length as usize];
        file.read_exact_at(&mut bytes, stored.offset - HEAD as u64)?;
        let payload = bytes.split_off(HEAD);
        if bytes[4..] == digest(&payload) { Ok(payload) } else { Err(io::Error::other("a backlog record is damaged")) }
    }

    /// Removes the files whose records are all confirmed, up to `sequence`.
    pub(super) fn confirmed(&mut self, sequence: u64) {
        let newest = self.files.last().map(|file| file.number);
        let (confirmed, kept): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.files).into_iter().partition(|file| file.last <= sequence);
        self.files = kept;
        for file in confirmed {
            if newest == Some(file.number) {
                self.open = None;
            }
            // A file that can't be removed is read at the next start, when its records are confirmed.
            if let Err(error) = self.disk.remove_file(&self.path(file.number)) {
                tracing::warn!(%error, "could not remove a confirmed backlog file; the next start reads it again");
            }
        }
    }

    /// Removes all files.
    pub(super) fn clear(&mut self) {
        self.confirmed(u64::MAX);
    }

    /// Returns the size of all files in bytes.
    pub(super) fn length(&self) -> u64 {
        self.files.iter().map(|file| file.length).sum()
    }

    fn path(&self, number: u64) -> PathBuf {
        self.directory.join(format!("{PREFIX}{number}"))
    }
}

/// Returns the record at `begin`, and the start of the next one.
fn payload_at(bytes: &[u8], begin: usize) -> Option<(&[u8], usize)> {
    let (head, rest) = bytes.get(begin..)?.split_at_checked(HEAD)?;
    let length = u32::from_be_bytes(head[..4].try_into().ok()?) as usize;
    let payload = rest.get(..length)?;
    (digest(payload) == head[4..]).then_some((payload, begin + HEAD + length))
}

fn digest(payload: &[u8]) -> [u8; DIGEST] {
    let mut digest = [0; DIGEST];
    digest.copy_from_slice(&hmac_sha256(b"backlog record", &[payload])[..DIGEST]);
    digest
}
