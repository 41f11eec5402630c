//! Clock facts in the store: the time that the store reached, and the periods in which the wall clock was doubtful.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use redb::{Database, ReadableDatabase as _, ReadableTable as _, TableError};

use super::checksum::Values;
use super::damage::guarded;
use super::error::StoreError;
use super::open::last_id;
use super::read::{OnDamage, Order, Read, after_prefix, sound};
use super::row::Row as _;
use super::row::clock_doubt::ClockDoubtRow;
use super::schema::{Table, meta};
use super::snapshot::Snapshot;
use super::{Store, migrate};
use crate::base::id::Ulid;
use crate::base::time::Timestamp;
use crate::machine::retention::Bucket;
use crate::machine::service_clock::{ClockHistory, STOPPED_MAX};

/// Maximum number of doubts that are read. Each one also sends an event to the operator.
const DOUBTS_MAX: usize = 1_000_000;

/// Returns the key of a doubt's row.
pub fn key_of(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

/// Returns the deadline of the content in `bucket`: its end, moved by the doubt during which the content was accepted.
/// The end moves by the clock correction made when that doubt ended. An open doubt moves nothing, and nothing is
/// destroyed until it ends.
///
/// # Errors
/// Database errors; a row that does not decode.
pub fn end_of(read: &impl Read, bucket: Bucket) -> Result<Timestamp, StoreError> {
    let Some(number) = bucket.doubt() else { return Ok(bucket.end) };
    let row: Option<ClockDoubtRow> = read.row(&key_of(number))?;
    Ok(bucket.end.moved_by(row.map_or(0, |row| row.offset_ms())))
}

/// Returns whether the content in `bucket` has expired at `now`. If the row of its doubt is damaged, the deadline is
/// unknown, and the content is kept.
fn is_over(read: &impl Read, bucket: Bucket, now: Timestamp) -> Result<bool, StoreError> {
    Ok(sound(end_of(read, bucket))?.is_some_and(|end| end <= now))
}

/// Returns the time at which a start judges the deadlines of journal content. This is the wall clock, or the last time
/// of the store if the wall clock is so far ahead of it that it will be doubtful.
pub(super) fn time_of_start(database: &Database, wall: Timestamp) -> Timestamp {
    // A new database has no tables yet.
    let found = guarded(|| time_reached_in_any_format(database)).ok().and_then(|found| found.ok().flatten());
    found.filter(|reached| wall.since(*reached) > STOPPED_MAX).unwrap_or(wall)
}

/// Deadlines of content, judged without the engine's clock: when the journal is replayed, and on a standby.
pub(super) struct Deadlines {
    now: Timestamp,
    /// The offset of each doubt that has ended. `None` while a doubt is open: nothing expires until it ends.
    offsets: Option<BTreeMap<u32, i64>>,
}

impl Deadlines {
    /// Reads the doubts of a database, which may have an earlier format. `wall` is the wall clock.
    pub(super) fn read(database: &Database, wall: Timestamp) -> Self {
        Self::at(database, time_of_start(database, wall))
    }

    /// Reads the doubts of a database, for a time that is known to be right.
    pub(super) fn at(database: &Database, now: Timestamp) -> Self {
        let offsets = guarded(|| offsets_of_any_format(database));
        Self { now, offsets: offsets.ok().and_then(Result::ok).flatten() }
    }

    /// Returns whether the content of `bucket` may be destroyed. Content of a doubt that is not recorded, or whose row
    /// is damaged, is kept.
    pub(super) fn have_passed(&self, bucket: Bucket) -> bool {
        let Some(offsets) = &self.offsets else { return false };
        let offset = bucket.doubt().map_or(Some(0), |number| offsets.get(&number).copied());
        offset.is_some_and(|offset| bucket.end.moved_by(offset) <= self.now)
    }
}

/// Returns the offset of each doubt that has ended; `None` if one is open.
fn offsets_of_any_format(database: &Database) -> Result<Option<BTreeMap<u32, i64>>, StoreError> {
    let read = database.begin_read()?;
    let values = match read.open_table(Table::Meta.definition()) {
        Ok(facts) => Values::of_format(migrate::format_in(&facts)?),
        Err(TableError::TableDoesNotExist(_)) => return Ok(Some(BTreeMap::new())),
        Err(error) => return Err(error.into()),
    };
    let table = match read.open_table(Table::ClockDoubts.definition()) {
        Ok(table) => table,
        Err(TableError::TableDoesNotExist(_)) => return Ok(Some(BTreeMap::new())),
        Err(error) => return Err(error.into()),
    };
    let mut offsets = BTreeMap::new();
    for entry in table.iter()?.take(DOUBTS_MAX) {
        let (key, stored) = entry?;
        let row = values.open(Table::ClockDoubts.name(), key.value(), stored.value());
        let row = row.and_then(|row| ClockDoubtRow::decode(row).ok());
        let (Ok(number), Some(row)) = (key.value().try_into().map(u32::from_be_bytes), row) else { continue };
        if row.end.is_none() {
            return Ok(None);
        }
        offsets.insert(number, row.offset_ms());
    }
    Ok(Some(offsets))
}

/// Returns the time that a database, which may have an earlier format, reached last: [`time_reached`].
fn time_reached_in_any_format(database: &Database) -> Result<Option<Timestamp>, StoreError> {
    let facts = database.begin_read()?.open_table(Table::Meta.definition())?;
    let values = Values::of_format(migrate::format_in(&facts)?);
    let kept = facts.get(meta::TIME)?;
    let kept = kept.and_then(|kept| values.open(Table::Meta.name(), meta::TIME, kept.value()).and_then(kept_time));
    if kept.is_some() {
        return Ok(kept);
    }
    let mut newest = None;
    for key in [meta::LAST_ID, meta::LAST_MESSAGE_ID] {
        let Some(stored) = facts.get(key)? else { continue };
        let id = values.open(Table::Meta.name(), key, stored.value()).and_then(|id| id.try_into().ok());
        newest = newest.max(id.map(Ulid));
    }
    Ok(newest.map(Ulid::timestamp))
}

/// Returns the service's time at the last batch, or later: the time of the newest identifier, unless a clock that was
/// ahead has been corrected since.
fn time_reached(found: &Snapshot) -> Result<Option<Timestamp>, StoreError> {
    let kept = sound(found.get(Table::Meta, meta::TIME))?.flatten();
    if let Some(kept) = kept.and_then(|kept| kept_time(&kept)) {
        return Ok(Some(kept));
    }
    let last = last_id(found, meta::LAST_ID)?.max(last_id(found, meta::LAST_MESSAGE_ID)?);
    Ok((last != Ulid::default()).then(|| last.timestamp()))
}

fn kept_time(stored: &[u8]) -> Option<Timestamp> {
    stored.try_into().ok().map(u64::from_be_bytes).map(Timestamp::from_millis)
}

impl Store {
    /// Returns the stored clock facts at start.
    ///
    /// # Errors
    /// Database errors; a row that does not decode.
    pub fn clock_past(&self) -> Result<ClockHistory, StoreError> {
        let snapshot = self.snapshot()?;
        let doubts = doubts(&snapshot)?;
        Ok(ClockHistory {
            reached: time_reached(&snapshot)?,
            open: doubts.iter().rev().find(|(_, row)| row.end.is_none()).map(|(number, _)| *number),
            next: last_number(&snapshot)?.map_or(1, |number| number + 1),
            is_unsettled: doubts.iter().any(|(_, row)| row.is_unsettled()),
        })
    }

    /// Returns the greatest identifier of a batch.
    ///
    /// # Errors
    /// Database errors.
    pub fn newest_id(&self) -> Result<Ulid, StoreError> {
        let snapshot = self.snapshot()?;
        Ok(last_id(&snapshot, meta::LAST_ID)?.max(last_id(&snapshot, meta::LAST_MESSAGE_ID)?))
    }

    /// Returns the content buckets whose deadlines have passed at `now`.
    ///
    /// # Errors
    /// File system or database errors.
    pub fn buckets_over(&self, now: Timestamp) -> Result<BTreeSet<Timestamp>, StoreError> {
        let snapshot = self.snapshot()?;
        let mut over = BTreeSet::new();
        for end in self.content().buckets_until(Timestamp::MAX)? {
            if is_over(&snapshot, Bucket { end }, now)? {
                over.insert(end);
            }
        }
        Ok(over)
    }

    /// Returns whether the deadline of the content in `bucket` has passed at `now`.
    pub(super) fn is_over(&self, bucket: Bucket, now: Timestamp) -> Result<bool, StoreError> {
        is_over(&self.snapshot()?, bucket, now)
    }

    /// Returns the numbers of the ended doubts that still have rows to move.
    ///
    /// # Errors
    /// Database errors; a row that does not decode.
    pub fn unsettled_doubts(&self) -> Result<Vec<u32>, StoreError> {
        let doubts = doubts(&self.snapshot()?)?;
        Ok(doubts.into_iter().filter(|(_, row)| row.is_unsettled()).map(|(number, _)| number).collect())
    }
}

/// Returns the beginning of the first doubt that ended with a step forward after `time`.
///
/// # Errors
/// Database errors.
pub fn first_step_forward_after(read: &impl Read, time: Timestamp) -> Result<Option<Timestamp>, StoreError> {
    let mut first = None;
    read.scan_sound(Table::ClockDoubts, &[], &after_prefix(&[]), Order::Descending, &mut |_, bytes| {
        if let Some(ClockDoubtRow { began, end: Some(end), .. }) = sound(ClockDoubtRow::decode(bytes))? {
            if end.until.moved_by(end.offset_ms) <= time {
                return Ok(ControlFlow::Break(()));
            }
            first = if end.offset_ms > 0 { Some(began) } else { first };
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(first)
}

/// Returns the right time of the row `id`, whose time was recorded by a clock that may have been ahead: moved by the
/// steps back that followed. All identifiers after a step have a later time than the step.
///
/// # Errors
/// Database errors.
pub fn corrected(read: &impl Read, id: Ulid, recorded: Timestamp) -> Result<Timestamp, StoreError> {
    let steps = doubts(read)?.into_iter().filter_map(|(_, row)| row.end).filter(|end| end.offset_ms < 0);
    let followed = steps.filter(|end| id.timestamp() <= end.until);
    Ok(followed.fold(recorded, |at, end| if at <= end.until { at.moved_by(end.offset_ms) } else { at }))
}

/// Returns the highest number of any doubt, damaged or not, so that no number is used twice.
fn last_number(read: &impl Read) -> Result<Option<u32>, StoreError> {
    let range: (&[u8], &[u8]) = (&[], &after_prefix(&[]));
    let keys = read.keys_with(Table::ClockDoubts, range, Order::Descending, OnDamage::Key, 1)?;
    Ok(keys.first().and_then(|key| key.as_slice().try_into().ok()).map(u32::from_be_bytes))
}

/// Returns the doubts with readable rows.
fn doubts(read: &impl Read) -> Result<Vec<(u32, ClockDoubtRow)>, StoreError> {
    let number = |key: &[u8]| key.try_into().map(u32::from_be_bytes).ok();
    let rows = read.sound_rows::<ClockDoubtRow>(&[], DOUBTS_MAX)?;
    Ok(rows.into_iter().filter_map(|(key, row)| Some((number(&key)?, row))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::account::{QuotaLimits, RetentionDays};
    use crate::domain::sending_domain::DomainStatus;
    use crate::domain::stream::Stream;
    use crate::store::journal::tests::killed;
    use crate::store::op::clock_doubt::{BeginDoubt, EndDoubt};
    use crate::store::row::message::MessageRow;
    use crate::store::testing::TestStore;

    const HOUR_MS: i64 = 3_600_000;

    #[test]
    fn content_is_kept_while_a_doubt_is_open_and_for_its_offset_afterwards() {
        let test = TestStore::new();
        let (bucket, now) = (Bucket::of(test.now(), RetentionDays::new(1).unwrap()), test.now());
        let end = bucket.end.moved_by(HOUR_MS / 2);
        let have_passed = |bucket| Deadlines::read(&test.store().database, end).have_passed(bucket);
        let in_doubt = bucket.in_doubt(1);
        assert!(have_passed(bucket));
        assert!(!have_passed(in_doubt), "its doubt is not recorded");
        test.done(BeginDoubt { number: 1 });
        drop(test.snapshot());
        assert!(!have_passed(bucket) && !have_passed(in_doubt));
        test.done(EndDoubt { number: 1, until: now, offset_ms: HOUR_MS });
        drop(test.snapshot());
        assert!(have_passed(bucket) && !have_passed(in_doubt));
        let later = end.moved_by(HOUR_MS);
        assert!(Deadlines::read(&test.store().database, later).have_passed(in_doubt));
    }

    #[test]
    fn a_time_is_moved_by_the_steps_back_that_followed_and_not_by_earlier_ones() {
        let test = TestStore::new();
        let (day, now) = (24 * HOUR_MS, test.now());
        let at = |days: i64| now.moved_by(days * day);
        let id = |days: i64| Ulid::new(at(days), [1; 10]);
        let after = |days: i64| Ulid::new(at(days).moved_by(1), [1; 10]);
        let corrected = |id, recorded| corrected(&test.snapshot(), id, recorded).unwrap();
        test.done(EndDoubt { number: 1, until: at(6), offset_ms: -6 * day });
        assert!(test.store().newest_id().unwrap().timestamp() > at(6));
        assert_eq!(corrected(id(5), at(5)), at(-1));
        // Identifiers are still those of the clock that was ahead.
        assert_eq!(corrected(after(6), at(3)), at(3));
        test.done(EndDoubt { number: 2, until: at(8), offset_ms: -7 * day });
        assert_eq!((corrected(after(6), at(7)), corrected(after(8), at(2))), (at(0), at(2)));
    }

    #[test]
    fn replay_writes_every_lost_body_again_while_a_doubt_is_open() {
        let test = TestStore::new();
        let sender = test.sender();
        test.done(BeginDoubt { number: 1 });
        let id = sender.accept_with_body("b@example.net", 0, b"over by a doubtful clock");
        let left = killed(&test);
        let place = test.row::<MessageRow>(&sender.key(id)).place;
        let bucket = left.path().join("content").join(place.bucket.as_millis().to_string());
        std::fs::remove_dir_all(bucket).unwrap();
        let after = TestStore::in_directory(left);
        assert!(after.store().content().read(place, id).is_ok());
    }

    #[test]
    fn a_wall_clock_far_ahead_of_the_newest_identifier_expires_nothing() {
        let test = TestStore::new();
        test.domain(test.account(QuotaLimits::default()), "example.com", Stream::Transactional, DomainStatus::Verified);
        drop(test.snapshot());
        let bucket = Bucket::of(test.now(), RetentionDays::new(1).unwrap());
        let at = |days: i64| Deadlines::read(&test.store().database, test.now().moved_by(days * 24 * HOUR_MS));
        assert!(at(6).have_passed(bucket) && !at(8).have_passed(bucket));
    }
}
