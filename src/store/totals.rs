//! Totals, and the marks of DMARC sources, for a store written before they had rows of their own. They are counted
//! once, when the store is opened.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

use super::changes::Changes;
use super::error::StoreError;
use super::op::outstanding::is_requested;
use super::read::{OnDamage, Order, Read, after_prefix, sound};
use super::row::Row;
use super::row::delivery::DeliveryRow;
use super::row::dmarc::{DmarcMarkRow, DmarcSourceRow};
use super::row::message::MessageRow;
use super::row::totals::{OutstandingRow, StoredContentRow, StoredInBucketRow, SuppressionCountRow};
use super::schema::{self, Table, meta};
use super::timer::{Timer, TimerKind};
use crate::base::id::{AccountId, DeliveryId, Ulid};
use crate::base::time::Timestamp;

/// Version of the totals. A store with a lower one is counted again.
const KEPT: u8 = 3;

type InBuckets = BTreeMap<(Timestamp, AccountId), u64>;

/// Number of rows between two reports.
const PART: u64 = 10_000;

/// Counts rows, and reports the count at the beginning and after each part.
pub(super) struct CountingReport<'a> {
    rows: Cell<u64>,
    report: &'a dyn Fn(u64),
}

impl<'a> CountingReport<'a> {
    pub(super) fn begin(report: &'a dyn Fn(u64)) -> Self {
        Self { rows: Cell::new(0), report }
    }

    /// Counts a row.
    pub(super) fn row(&self) {
        let rows = self.rows.get() + 1;
        self.rows.set(rows);
        // A store without rows has nothing to report.
        if rows == 1 || rows.is_multiple_of(PART) {
            (self.report)(rows);
        }
    }
}

/// Adds the totals that the store lacks to `changes`, and reports the number of counted rows. Memory use grows with the
/// number of totals, not with the number of rows. Damaged rows are not counted.
///
/// # Errors
/// Database errors.
pub(super) fn count_missing(found: &impl Read, changes: &mut Changes, report: &dyn Fn(u64)) -> Result<(), StoreError> {
    let kept = sound(found.get(Table::Meta, meta::TOTALS))?.flatten();
    if kept.is_some_and(|kept| kept.first().is_some_and(|kept| *kept >= KEPT)) {
        return Ok(());
    }
    let counts = [Table::Outstanding, Table::StoredContent, Table::StoredContentByBucket, Table::SuppressionCounts];
    for table in counts {
        let everything: (&[u8], &[u8]) = (&[], &after_prefix(&[]));
        for key in found.keys_with(table, everything, Order::Ascending, OnDamage::Key, usize::MAX)? {
            changes.put(table, key, None);
        }
    }
    let counted = CountingReport::begin(report);
    count_outstanding(found, changes, &counted)?;
    count_stored_content(found, changes, &counted)?;
    count_suppressions(found, changes, &counted)?;
    copy_marks(found, changes, &counted)?;
    changes.put(Table::Meta, meta::TOTALS.to_vec(), Some(vec![KEPT]));
    Ok(())
}

fn count_outstanding(found: &impl Read, changes: &mut Changes, rows: &CountingReport<'_>) -> Result<(), StoreError> {
    let mut counted = BTreeMap::<Vec<u8>, u64>::new();
    found.scan_sound(Table::Deliveries, &[], &after_prefix(&[]), Order::Ascending, &mut |key, value| {
        rows.row();
        let account = key.first_chunk::<16>().map(|account| AccountId(Ulid(*account)));
        let id = key.last_chunk::<16>().map(|id| DeliveryId(Ulid(*id)));
        let (Some(account), Some(id), Ok(row)) = (account, id, DeliveryRow::decode(value)) else {
            return Ok(ControlFlow::Continue(()));
        };
        if row.state.due(Timestamp::ZERO).is_some() {
            *counted.entry(schema::endpoint(account, row.endpoint).to_vec()).or_default() += 1;
        }
        if is_requested(&row, id) {
            *counted.entry(account.as_bytes().to_vec()).or_default() += 1;
        }
        Ok(ControlFlow::Continue(()))
    })?;
    for (key, deliveries) in counted {
        // Deliveries of deleted endpoints still count for their account.
        if key.len() == 16 || found.has(Table::Endpoints, &key)? {
            changes.put(Table::Outstanding, key, Some(OutstandingRow { deliveries }.encode()));
        }
    }
    Ok(())
}

/// Counts the content of every message whose bucket has a timer; other buckets have ended.
fn count_stored_content(found: &impl Read, changes: &mut Changes, rows: &CountingReport<'_>) -> Result<(), StoreError> {
    let (mut in_buckets, mut in_all) = (InBuckets::new(), BTreeMap::<AccountId, u64>::new());
    found.scan_sound(Table::Messages, &[], &after_prefix(&[]), Order::Ascending, &mut |key, value| {
        rows.row();
        let account = key.first_chunk::<16>().map(|account| AccountId(Ulid(*account)));
        let row = MessageRow::decode(value).ok().filter(|row| row.place.length > 0);
        if let Some((account, row)) = account.zip(row) {
            *in_buckets.entry((row.place.bucket, account)).or_default() += u64::from(row.place.length);
        }
        Ok(ControlFlow::Continue(()))
    })?;
    for ((bucket, account), bytes) in in_buckets {
        let end = Timer::of_store(bucket, TimerKind::Content);
        if !found.has(Table::Timers, &end.encode())? {
            continue;
        }
        *in_all.entry(account).or_default() += bytes;
        let key = schema::stored_content(bucket, account).to_vec();
        changes.put(Table::StoredContentByBucket, key, Some(StoredInBucketRow { bytes }.encode()));
    }
    for (account, bytes) in in_all {
        let key = account.as_bytes().to_vec();
        changes.put(Table::StoredContent, key, Some(StoredContentRow { bytes }.encode()));
    }
    Ok(())
}

fn count_suppressions(found: &impl Read, changes: &mut Changes, rows: &CountingReport<'_>) -> Result<(), StoreError> {
    let mut counted = BTreeMap::<[u8; 16], u64>::new();
    found.scan_sound(Table::Suppressions, &[], &after_prefix(&[]), Order::Ascending, &mut |key, _| {
        rows.row();
        if let Some(account) = key.first_chunk::<16>() {
            *counted.entry(*account).or_default() += 1;
        }
        Ok(ControlFlow::Continue(()))
    })?;
    for (account, suppressions) in counted {
        changes.put(Table::SuppressionCounts, account.to_vec(), Some(SuppressionCountRow { suppressions }.encode()));
    }
    Ok(())
}

/// Gives each marked DMARC source its row in [`Table::DmarcMarks`].
fn copy_marks(found: &impl Read, changes: &mut Changes, rows: &CountingReport<'_>) -> Result<(), StoreError> {
    found.scan_sound(Table::DmarcSources, &[], &after_prefix(&[]), Order::Ascending, &mut |key, value| {
        rows.row();
        if let Some(is_mine) = sound(DmarcSourceRow::decode(value))?.and_then(|row| row.is_mine) {
            changes.put(Table::DmarcMarks, key.to_vec(), Some(DmarcMarkRow { is_mine }.encode()));
        }
        Ok(ControlFlow::Continue(()))
    })
}
