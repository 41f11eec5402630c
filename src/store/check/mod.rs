//! Checking a store that no process has open (contract 8 `check`): every checksum, every row, and the rules between
//! rows. It changes nothing on the disk.
//!
//! References between rows are checked in [`partners`], the rows themselves in [`shapes`], queued work in [`queue`],
//! and bodies in [`bodies`]. Rows are looked up one by one: a check needs little memory, and its duration grows with
//! the size of the store.

mod bodies;
mod partners;
mod queue;
mod shapes;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
#[cfg(test)]
use std::sync::Arc;

use serde::Serialize;

use super::archive::ArchiveError;
use super::checksum;
use super::content::{Place, SealedContent, Unreadable};
use super::damage::guarded;
#[cfg(test)]
use super::disk::Disk;
use super::error::StoreError;
pub use super::inspect::InspectError;
use super::inspect::Inspection;
use super::read::{Order, Read, after_prefix};
use super::row::Row;
use super::row::destroyed_content::DestroyedContent;
use super::row::restored::RestoreOrigin;
use super::schema::{FORMAT, Table, meta};
use super::snapshot::Snapshot;
use crate::base::id::{MessageId, Ulid};
use crate::base::time::Timestamp;

/// Maximum number of failures that are described. Further ones are only counted.
const REPORTED_MAX: usize = 100;
/// Number of rows between two progress reports.
const STEP: u64 = 10_000;

/// Result of a check.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The store's format.
    pub format: u32,
    /// Rows by table.
    pub rows: BTreeMap<&'static str, u64>,
    /// Segments of content that have a key.
    pub segments: u64,
    /// Bodies that were read and are sound.
    pub bodies: u64,
    /// Bodies that the backup does not include.
    pub bodies_left_out: u64,
    /// Bodies that could not be read because the master key is missing.
    pub bodies_unread: u64,
    /// Number of failures.
    pub failed: u64,
    /// The first failures.
    pub failures: Vec<Failure>,
}

/// One failure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Failure {
    /// The violated rule.
    pub rule: Rule,
    /// Description of the place and the finding.
    pub what: String,
}

/// A rule that an intact store fulfils.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// The backup is complete.
    Backup,
    /// The database's own checksums match.
    Database,
    /// Every record of the journal can be read.
    Journal,
    /// Every row can be read.
    Row,
    /// A row that refers to another refers to an existing one.
    Partner,
    /// Everything in the queue has a timer, and every timer has something in the queue.
    Queue,
    /// A message's timeline agrees with its status, in the order of its events.
    Timeline,
    /// Every body that must exist is sound, and none has outlived its deadline.
    Content,
    /// The master key belongs to the store.
    MasterKey,
    /// The name of the directory in the log of its replica can be read.
    Replica,
}

/// Whether the master key must be in the store's directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyPlace {
    /// The key must be in the store's directory.
    WithStore,
    /// The key is kept elsewhere: bodies are not read.
    Apart,
}

impl Report {
    const fn empty() -> Self {
        Self {
            format: FORMAT,
            rows: BTreeMap::new(),
            segments: 0,
            bodies: 0,
            bodies_left_out: 0,
            bodies_unread: 0,
            failed: 0,
            failures: Vec::new(),
        }
    }

    /// Returns the report on a backup that can't be read to its end.
    pub fn on_broken_backup(fault: &ArchiveError) -> Self {
        let mut report = Self::empty();
        report.fail(Rule::Backup, || fault.to_string());
        report
    }

    fn fail(&mut self, rule: Rule, what: impl FnOnce() -> String) {
        self.failed += 1;
        if self.failures.len() < REPORTED_MAX {
            self.failures.push(Failure { rule, what: what() });
        }
    }
}

/// Checks the store in `directory`. `now` decides which content must still exist. `progress` gets the number of checked
/// rows.
///
/// # Errors
/// The reason why the store can't be checked. Damage to the store is part of the report, not an error.
pub fn check(
    directory: &Path,
    now: Timestamp,
    key_place: KeyPlace,
    progress: &mut dyn FnMut(u64),
) -> Result<Report, InspectError> {
    report_on(Inspection::open(directory), now, key_place, progress)
}

/// Checks a store on a simulated disk.
#[cfg(test)]
pub(super) fn check_on(disk: Arc<dyn Disk>, directory: &Path, now: Timestamp) -> Result<Report, InspectError> {
    report_on(Inspection::open_on(disk, directory), now, KeyPlace::WithStore, &mut |_| {})
}

fn report_on(
    opened: Result<Inspection, InspectError>,
    now: Timestamp,
    key_place: KeyPlace,
    progress: &mut dyn FnMut(u64),
) -> Result<Report, InspectError> {
    let mut report = Report::empty();
    let mut inspection = match opened {
        Ok(inspection) => inspection,
        Err(InspectError::Unreadable(fault)) => {
            report.fail(Rule::Database, || fault);
            return Ok(report);
        }
        Err(InspectError::Older { found, failures }) if !failures.is_empty() => {
            report.format = found;
            failures.into_iter().for_each(|Failure { rule, what }| report.fail(rule, || what));
            return Ok(report);
        }
        Err(error) => return Err(error),
    };
    if let Some(Failure { rule, what }) = page_failure(&inspection.soundness) {
        report.fail(rule, || what);
    }
    if let Some(damage) = inspection.journal_damage {
        report.fail(Rule::Journal, || damage.to_string());
    }
    if let (KeyPlace::WithStore, Some(fault)) = (key_place, inspection.key_fault.take()) {
        report.fail(Rule::MasterKey, || fault);
    }
    if let Some(fault) = inspection.holder_fault.take() {
        report.fail(Rule::Replica, || fault);
    }
    report.segments = inspection.content.as_ref().map_or(0, SealedContent::segments);
    let content = inspection.content.as_ref();
    for fault in content.iter().flat_map(|content| &content.key_faults) {
        report.fail(Rule::Content, || fault.clone());
    }
    let bodies = content.map(|content| |place, message| content.read(place, message));
    let looked = guarded(|| {
        let snapshot = inspection.snapshot()?;
        look(snapshot, bodies.as_ref().map(|bodies| bodies as &Bodies<'_>), now, &mut report, progress)
    });
    if let Err(fault) = looked.map_err(|fault| fault.to_string()).and_then(|looked| looked.map_err(|e| e.to_string())) {
        report.fail(Rule::Database, || fault);
    }
    Ok(report)
}

/// Returns the failure that the database's own check of its pages found.
pub(super) fn page_failure(soundness: &Result<bool, String>) -> Option<Failure> {
    let what = match soundness {
        Ok(true) => return None,
        Ok(false) => "some pages are damaged or unaccounted for".to_owned(),
        Err(fault) => fault.clone(),
    };
    Some(Failure { rule: Rule::Database, what })
}

/// Checks the rows and bodies of an open store.
#[cfg(test)]
pub(super) fn check_open(store: &super::Store, now: Timestamp) -> Report {
    let mut report = Report::empty();
    let bodies = |place, message| store.content().read(place, message);
    let looked = store.snapshot().and_then(|snapshot| look(snapshot, Some(&bodies), now, &mut report, &mut |_| {}));
    if let Err(error) = looked {
        report.fail(Rule::Database, || error.to_string());
    }
    report
}

/// Function that reads bodies.
type Bodies<'a> = dyn Fn(Place, MessageId) -> Result<Vec<u8>, Unreadable> + 'a;

/// Callback for each key, and its value if the checksum matches, until it breaks or fails.
type EachChecked<'a> = dyn FnMut(&[u8], Option<&[u8]>) -> Result<ControlFlow<()>, StoreError> + 'a;

/// Inputs of a check.
struct CheckInputs<'a> {
    snapshot: Snapshot,
    bodies: Option<&'a Bodies<'a>>,
    restored: Option<RestoreOrigin>,
    destroyed: DestroyedContent,
    /// The latest time that the store can have recorded.
    now: Timestamp,
}

impl CheckInputs<'_> {
    /// Returns the row at `key` if it exists and can be read. A row that can't be read is reported once, with its
    /// table.
    fn find<R: Row>(&self, key: &[u8]) -> Result<Option<R>, StoreError> {
        Ok(self.get(R::TABLE, key)?.and_then(|bytes| R::decode(&bytes).ok()))
    }

    /// Returns the value at `key`. A damaged value is reported with its table and returned as empty.
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        match self.snapshot.get(table, key) {
            Err(StoreError::Damaged { .. }) => Ok(Some(Vec::new())),
            found => found,
        }
    }

    fn has(&self, table: Table, key: &[u8]) -> Result<bool, StoreError> {
        Ok(self.get(table, key)?.is_some())
    }

    /// Calls `each` with every key of a table, and its value if its checksum matches.
    fn all(&self, table: Table, each: &mut EachChecked<'_>) -> Result<(), StoreError> {
        let everything: (&[u8], &[u8]) = (&[], &after_prefix(&[]));
        self.snapshot.scan_stored(table, everything, Order::Ascending, &mut |key, stored| {
            each(key, checksum::open(table.name(), key, stored))
        })
    }
}

fn look(
    snapshot: Snapshot,
    bodies: Option<&Bodies<'_>>,
    now: Timestamp,
    report: &mut Report,
    progress: &mut dyn FnMut(u64),
) -> Result<(), StoreError> {
    let mut sight = CheckInputs { snapshot, bodies, restored: None, destroyed: DestroyedContent::default(), now };
    sight.restored = sight.find(meta::RESTORED)?;
    sight.destroyed = sight.find(meta::DESTROYED)?.unwrap_or_default();
    let last = sight.get(Table::Meta, meta::LAST_ID)?.and_then(|bytes| bytes.try_into().ok()).map(Ulid);
    sight.now = now.max(last.unwrap_or_default().timestamp());
    let mut seen = 0;
    for table in Table::ALL {
        let mut rows = 0;
        sight.all(*table, &mut |key, value| {
            (rows, seen) = (rows + 1, seen + 1);
            if seen % STEP == 0 {
                progress(seen);
            }
            let judged = value.ok_or_else(|| "its checksum does not match".to_owned());
            let judged = judged.and_then(|value| shapes::judge(*table, key, value).map(|()| value));
            let value = match judged {
                Ok(value) => value,
                Err(fault) => {
                    report.fail(Rule::Row, || format!("table {}, row {}: {fault}", table.name(), shown(key)));
                    return Ok(ControlFlow::Continue(()));
                }
            };
            partners::judge(&sight, *table, key, value, report)?;
            queue::judge(&sight, *table, key, value, report)?;
            bodies::judge(&sight, *table, key, value, report)?;
            Ok(ControlFlow::Continue(()))
        })?;
        report.rows.insert(table.name(), rows);
    }
    Ok(())
}

/// Returns a key as text for reports. Most of it is identifiers.
fn shown(key: &[u8]) -> String {
    key.chunks(16)
        .map(|part| part.iter().map(|byte| format!("{byte:02x}")).collect())
        .collect::<Vec<String>>()
        .join("-")
}
