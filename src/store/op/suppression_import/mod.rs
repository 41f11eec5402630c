//! An import of a long list of suppressions, all or nothing (contract 6).
//!
//! Its batches are separate operations, so that other operations are not delayed. Rows of a batch name the import and
//! have no effect ([`super::suppression::find`]) until [`FinishImport`], one small operation, marks the import as
//! finished. An import has a timer from its first operation to its last. If its process ended or a batch failed, the
//! timer undoes an unfinished import, or completes the work after a finished one.

use std::ops::ControlFlow;

use serde::{Deserialize, Serialize};

use super::suppression::{Suppression, add_in};
use super::suppression_count::{self, TooManySuppressions};
use super::{Infallible, Op};
use crate::base::id::{AccountId, Ulid};
use crate::store::error::{OpError, StoreError};
use crate::store::read::{Order, Read as _, after_prefix};
use crate::store::row::suppression::{ImportStage, SuppressionImportRow, SuppressionRow};
use crate::store::schema::{self, Table};
use crate::store::tables::Tables;
use crate::store::timer::{Timer, TimerKind};

/// Maximum number of suppressions that one operation undoes.
const TAKEN_BACK_MAX: usize = 200;

/// Refusal: the account has an unfinished import.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImportUnfinished;

/// Begins an import.
#[derive(Debug, Serialize, Deserialize)]
pub struct BeginImport {
    /// The account.
    pub account: AccountId,
}

impl Op for BeginImport {
    /// The timer of the import. Its identifier is the import's.
    type Reply = Timer;
    type Refusal = ImportUnfinished;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<Timer, OpError<ImportUnfinished>> {
        if tables.row::<SuppressionImportRow>(self.account.as_bytes())?.is_some() {
            return Err(OpError::Refused(ImportUnfinished));
        }
        let id: Ulid = tables.next_id();
        tables.put(self.account.as_bytes(), &SuppressionImportRow { id, stage: ImportStage::Unfinished(id) });
        let timer = Timer::new(tables.now(), TimerKind::SuppressionImport, self.account, id);
        tables.arm(timer);
        Ok(timer)
    }
}

/// Writes a batch of an import.
#[derive(Debug, Serialize, Deserialize)]
pub struct ImportBatch {
    /// The account.
    pub account: AccountId,
    /// The import.
    pub import: Ulid,
    /// The addresses, [`super::suppression::IMPORTED_MAX`] at most.
    pub suppressions: Vec<Suppression>,
}

impl Op for ImportBatch {
    /// Number of new suppressions.
    type Reply = usize;
    type Refusal = TooManySuppressions;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<usize, OpError<TooManySuppressions>> {
        unfinished(tables, self.account, self.import)?;
        suppression_count::check(tables, self.account, self.suppressions.iter())?;
        let mut imported = 0;
        for suppression in &self.suppressions {
            imported += usize::from(add_in(tables, self.account, suppression, Some(self.import))?.is_new);
        }
        Ok(imported)
    }
}

/// Puts all suppressions of an import into effect.
#[derive(Debug, Serialize, Deserialize)]
pub struct FinishImport {
    /// The account.
    pub account: AccountId,
    /// The import.
    pub import: Ulid,
    /// Number of suppressions in its list.
    pub count: usize,
}

impl Op for FinishImport {
    type Reply = ();
    type Refusal = Infallible;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<(), OpError<Infallible>> {
        let row = unfinished(tables, self.account, self.import)?;
        tables.put(self.account.as_bytes(), &SuppressionImportRow { stage: ImportStage::Finished, ..row });
        Ok(())
    }
}

/// Returns the row of an unfinished import.
fn unfinished(tables: &Tables<'_>, account: AccountId, import: Ulid) -> Result<SuppressionImportRow, StoreError> {
    let row = tables.row::<SuppressionImportRow>(account.as_bytes())?;
    let own = row.filter(|row| row.id == import && row.stage != ImportStage::Finished);
    own.ok_or_else(|| StoreError::missing(Table::SuppressionImports))
}

/// Ends an import after its suppressions are in effect and the queued messages to their addresses have ended.
#[derive(Debug, Serialize, Deserialize)]
pub struct EndImport {
    /// The timer of the import.
    pub timer: Timer,
}

impl Op for EndImport {
    type Reply = ();
    type Refusal = Infallible;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<(), OpError<Infallible>> {
        tables.disarm(self.timer);
        let row = tables.row::<SuppressionImportRow>(self.timer.account.as_bytes())?;
        if row.is_some_and(|row| row.id == self.timer.id && row.stage == ImportStage::Finished) {
            tables.remove(Table::SuppressionImports, self.timer.account.as_bytes());
        }
        Ok(())
    }
}

/// Undoes a slice of an unfinished import.
#[derive(Debug, Serialize, Deserialize)]
pub struct UndoImport {
    /// The timer of the import.
    pub timer: Timer,
}

impl Op for UndoImport {
    /// Whether nothing of the import is left.
    type Reply = bool;
    type Refusal = Infallible;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<bool, OpError<Infallible>> {
        let account = self.timer.account;
        let row = unfinished(tables, account, self.timer.id)?;
        let ImportStage::Unfinished(after) = row.stage else { return Ok(true) };
        let slice = by_id(tables, account, after)?;
        for (id, match_key) in &slice {
            let key = schema::named(account, match_key);
            let found = tables.sound_row::<SuppressionRow>(&key)?;
            if found.is_some_and(|found| found.id.0 == *id && found.import == Some(row.id)) {
                tables.remove(Table::Suppressions, &key);
                tables.remove(Table::SuppressionsById, &schema::owned(account, &id.0));
                suppression_count::removed(tables, account)?;
            }
        }
        if let (TAKEN_BACK_MAX, Some((last, _))) = (slice.len(), slice.last()) {
            let stage = ImportStage::Unfinished(*last);
            tables.put(account.as_bytes(), &SuppressionImportRow { stage, ..row });
            return Ok(false);
        }
        tables.remove(Table::SuppressionImports, account.as_bytes());
        tables.disarm(self.timer);
        Ok(true)
    }
}

/// Returns the next identifiers of suppressions after this one, with their addresses.
fn by_id(tables: &Tables<'_>, account: AccountId, after: Ulid) -> Result<Vec<(Ulid, Vec<u8>)>, StoreError> {
    let (from, to) = (schema::owned(account, &after.next().0), after_prefix(account.as_bytes()));
    let mut slice = Vec::new();
    tables.scan_sound(Table::SuppressionsById, &from, &to, Order::Ascending, &mut |key, match_key| {
        let id = key.last_chunk::<16>().copied().unwrap_or_default();
        slice.push((Ulid(id), match_key.to_vec()));
        Ok(if slice.len() < TAKEN_BACK_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    })?;
    Ok(slice)
}

#[cfg(test)]
mod tests;
