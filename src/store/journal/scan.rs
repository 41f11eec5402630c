//! Scan of the journal file: which records to replay, and whether the end is a torn write or damage.
//!
//! A record is synced before the next one is written. If a record does not verify and a header of the same epoch
//! follows it, the record was once complete: the file is damaged. If nothing follows, there are two cases that the file
//! can't distinguish. Either a crash interrupted the write and its operations were never acknowledged, or the last
//! record was damaged later.

use super::epoch::{self, Epoch};
use super::record::{self, Layout, Record, ScannedRecord};

/// Damage of the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Damage {
    /// A record can't be read, and later records of the same epoch follow it.
    Record {
        /// Number of intact records before the damage.
        whole: u64,
        /// Start of the damaged record in the file, in bytes.
        offset: u64,
        /// Number of records from the damaged one on, as far as known.
        left_out: u64,
    },
    /// The file is missing, with all its records.
    Missing,
    /// The file does not name the database's epoch and has no record of it: it was emptied, overwritten or replaced.
    Foreign,
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Record { whole, offset, left_out } => write!(
                f,
                "the journal is damaged at byte {offset}: {whole} records before it are whole, and {left_out} records \
                 from there on can't be replayed"
            ),
            Self::Missing => write!(
                f,
                "the file \"journal\" is missing from the data directory: the records of the last seconds before the \
                 service ended are lost"
            ),
            Self::Foreign => write!(
                f,
                "the file \"journal\" does not belong to this database: it was emptied, overwritten or replaced by \
                 another copy, and the records of the last seconds before the service ended are lost"
            ),
        }
    }
}

/// Content of a journal under one epoch.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Scan {
    /// Records from the start of the file up to the first that does not verify.
    pub(super) records: Vec<Record>,
    /// Set if later records follow the first that does not verify.
    pub(super) damage: Option<Damage>,
    /// Start of a last record whose header verifies and whose payload does not.
    pub(super) torn_at: Option<u64>,
}

/// Scans the `bytes` of a journal that names its epoch for the records of `epoch`.
pub(super) fn scan_named(bytes: &[u8], epoch: &Epoch) -> Scan {
    let mut scan = scan(bytes, epoch, usize::try_from(epoch::RECORDS).unwrap_or(usize::MAX));
    // A record proves that the file belongs to the epoch, as the name does.
    let is_proven = !scan.records.is_empty() || scan.torn_at.is_some() || scan.damage.is_some();
    if !is_proven && !epoch::is_named(bytes, epoch) {
        scan.damage = Some(Damage::Foreign);
    }
    scan
}

/// Scans a journal's `bytes` for the records of `epoch`, from `begin` on.
pub(super) fn scan(bytes: &[u8], epoch: &Epoch, mut begin: usize) -> Scan {
    let mut scan = Scan::default();
    let failed = loop {
        match record::at(bytes, begin, epoch) {
            ScannedRecord::Whole(record) => {
                begin = record.payload.end;
                scan.records.push(record);
            }
            failed => break failed,
        }
    };
    let whole = scan.records.len() as u64;
    let behind = behind(bytes, begin + 1, epoch);
    if behind.records > 0 {
        // The number of the last record gives their count. Records of the first layout are only counted.
        let left_out = behind.last.map_or(behind.records + 1, |last| (u64::from(last) + 1).saturating_sub(whole));
        scan.damage = Some(Damage::Record { whole, offset: begin as u64, left_out: left_out.max(2) });
    } else if matches!(failed, ScannedRecord::HeaderOnly { .. }) {
        scan.torn_at = Some(begin as u64);
    }
    scan
}

/// Records after one that does not verify, complete or with only a header.
#[derive(Default)]
struct RecordsAfterDamage {
    records: u64,
    last: Option<u32>,
}

fn behind(bytes: &[u8], from: usize, epoch: &Epoch) -> RecordsAfterDamage {
    let mut behind = RecordsAfterDamage::default();
    let mut begin = from;
    while let Some(candidate) = record::candidate(bytes, begin) {
        begin = candidate;
        match record::at(bytes, begin, epoch) {
            ScannedRecord::Whole(Record { number, payload, .. }) => {
                behind.records += 1;
                behind.last = behind.last.max(number);
                begin = payload.end;
            }
            ScannedRecord::HeaderOnly { number } => {
                behind.records += 1;
                behind.last = behind.last.max(Some(number));
                begin += record::HEAD;
            }
            ScannedRecord::Nothing => begin += 1,
        }
    }
    behind
}

impl Scan {
    /// Returns the payloads to replay, with their layouts.
    pub(super) fn payloads<'a>(&'a self, bytes: &'a [u8]) -> impl Iterator<Item = (Layout, &'a [u8])> {
        self.records.iter().map(|record| (record.layout, &bytes[record.payload.clone()]))
    }
}
