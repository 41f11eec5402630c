//! Doubts about the wall clock: their beginning, their end, and the correction of times recorded meanwhile. The
//! correction is the step of the service's time at the end of the doubt.
//!
//! It moves the deadlines of messages that were accepted during the doubt. If the service's time was set back, it also
//! moves the next attempts of messages and webhooks. They would otherwise wait for the clock to catch up.

use std::borrow::Cow;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Never, Op, alert};
use crate::base::id::{AccountId, DeliveryId, MessageId, Ulid};
use crate::base::time::Timestamp;
use crate::domain::alert::{Condition, Severity, Sighting};
use crate::machine::delivery::Stage;
use crate::machine::retention::Bucket;
use crate::store::clock_doubts::key_of;
use crate::store::error::{OpError, StoreError};
use crate::store::read::{OnDamage, Order, Read, after_prefix};
use crate::store::row::Row;
use crate::store::row::clock_doubt::{ClockDoubtRow, DoubtEnd, UnmovedRows};
use crate::store::row::delivery::DeliveryRow;
use crate::store::row::message::{MessageRow, TransferRow};
use crate::store::schema::{self, Table, meta};
use crate::store::tables::Tables;
use crate::store::timer::{Timer, TimerKind};

/// Number of rows that one operation reads.
const SLICE: usize = 256;
/// Maximum distance between commit order and identifier order of messages.
const OUT_OF_ORDER: Duration = Duration::from_secs(3600);

/// Records that the wall clock became doubtful. May be repeated.
#[derive(Debug, Serialize, Deserialize)]
pub struct BeginDoubt {
    /// The doubt's number.
    pub number: u32,
}

impl Op for BeginDoubt {
    type Reply = ();
    type Refusal = Never;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<(), OpError<Never>> {
        begin(tables, self.number)?;
        alert::found(tables, AccountId::default(), &sighting(None))?;
        Ok(())
    }
}

/// Returns the alert of a doubtful wall clock, with its cause if known.
pub fn sighting(cause: Option<&str>) -> Sighting {
    let cause = cause.map(|cause| format!(" ({cause})")).unwrap_or_default();
    let seen = format!("Mail is sent, but nothing is deleted, expired or given up{cause}.");
    Sighting::new(Condition::ClockDoubtful, Severity::Critical, "The wall clock is doubtful", seen)
}

/// Records doubt `number`, unless it is already recorded.
///
/// # Errors
/// Database errors.
pub(super) fn begin(tables: &mut Tables<'_>, number: u32) -> Result<(), StoreError> {
    // A damaged row stays unchanged: mail continues, and its messages keep their deadlines.
    if !tables.has(Table::ClockDoubts, &key_of(number))? {
        let last = tables.get(Table::Meta, meta::LAST_MESSAGE_ID)?.and_then(|last| last.try_into().ok());
        let after = Ulid::new(last.map(Ulid).unwrap_or_default().timestamp() - OUT_OF_ORDER, [0; 10]);
        let row = ClockDoubtRow { began: tables.now(), after, end: None };
        tables.put(&key_of(number), &row);
    }
    Ok(())
}

/// Returns the row of a message that is accepted at `key`. If the message was created during a doubt, the doubt is
/// recorded with it. If that doubt has ended since, no later operation would move the message's deadlines, so they are
/// moved now.
///
/// # Errors
/// Database errors.
pub(super) fn stamped<'a>(
    tables: &mut Tables<'_>,
    key: &[u8],
    message: &'a MessageRow,
) -> Result<Cow<'a, MessageRow>, StoreError> {
    let Some(number) = (Bucket { end: message.place.bucket }).doubt() else { return Ok(Cow::Borrowed(message)) };
    begin(tables, number)?;
    let end = tables.sound_row::<ClockDoubtRow>(&key_of(number))?.and_then(|row| row.end);
    let late = end.filter(|end| !matches!(&end.rest, UnmovedRows::Messages(from) if key >= from.as_slice()));
    Ok(match late {
        Some(end) => Cow::Owned(moved(tables, message.clone(), end.offset_ms)?),
        None => Cow::Borrowed(message),
    })
}

/// Returns a message with moved deadlines, and arms the timer of its content.
fn moved(tables: &mut Tables<'_>, row: MessageRow, offset_ms: i64) -> Result<MessageRow, StoreError> {
    tables.arm_unless_armed(Timer::of_store(row.place.bucket.moved_by(offset_ms), TimerKind::Content))?;
    // The sender's own expiry stays unchanged.
    let (asked, moved) = (row.expires_at, row.give_up_at.moved_by(offset_ms));
    let give_up_at = if asked == Some(row.give_up_at) { row.give_up_at } else { asked.unwrap_or(moved).min(moved) };
    let content_expires_at = row.content_expires_at.moved_by(offset_ms);
    Ok(MessageRow { give_up_at, content_expires_at, ..row })
}

/// Records the end of a doubt.
#[derive(Debug, Serialize, Deserialize)]
pub struct EndDoubt {
    /// The doubt's number.
    pub number: u32,
    /// The service's time at its end, before it was set to the wall clock.
    pub until: Timestamp,
    /// Correction of the service's time, in milliseconds.
    pub offset_ms: i64,
}

impl Op for EndDoubt {
    type Reply = ();
    type Refusal = Never;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<(), OpError<Never>> {
        begin(tables, self.number)?;
        alert::gone(tables, AccountId::default(), Condition::ClockDoubtful, "")?;
        let found = tables.sound_row::<ClockDoubtRow>(&key_of(self.number))?;
        // A doubt that ends now has a row without an end. If the row is damaged, all messages are checked.
        let row = found.unwrap_or(ClockDoubtRow { began: self.until, after: Ulid::default(), end: None });
        if row.end.is_some() {
            return Ok(());
        }
        let Self { number, until, offset_ms } = *self;
        let rest = if offset_ms == 0 { UnmovedRows::Nothing } else { UnmovedRows::Messages(Vec::new()) };
        tables.put(&key_of(number), &ClockDoubtRow { end: Some(DoubtEnd { until, offset_ms, rest }), ..row });
        Ok(())
    }
}

/// Moves a slice of the times recorded during an ended doubt.
#[derive(Debug, Serialize, Deserialize)]
pub struct SettleDoubt {
    /// The doubt's number.
    pub number: u32,
}

impl Op for SettleDoubt {
    /// Whether everything is moved.
    type Reply = bool;
    type Refusal = Never;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<bool, OpError<Never>> {
        let key = key_of(self.number);
        let Some(row) = tables.sound_row::<ClockDoubtRow>(&key)? else { return Ok(true) };
        let Some(end) = &row.end else { return Ok(true) };
        let moving = Moving { number: self.number, after: row.after, until: end.until, offset_ms: end.offset_ms };
        let rest = match &end.rest {
            UnmovedRows::Messages(from) => match moving.messages(tables, from)? {
                Some(from) => UnmovedRows::Messages(from),
                // A timer that fires early does no harm.
                None if end.offset_ms > 0 => UnmovedRows::Nothing,
                None => UnmovedRows::Timers(Timer::first_after(end.until).to_vec()),
            },
            UnmovedRows::Timers(from) => moving.timers(tables, from)?.map_or(UnmovedRows::Nothing, UnmovedRows::Timers),
            UnmovedRows::Nothing => UnmovedRows::Nothing,
        };
        let is_settled = rest == UnmovedRows::Nothing;
        let end = Some(DoubtEnd { rest, ..end.clone() });
        tables.put(&key, &ClockDoubtRow { end, ..row });
        Ok(is_settled)
    }
}

struct Moving {
    number: u32,
    after: Ulid,
    until: Timestamp,
    offset_ms: i64,
}

impl Moving {
    /// Moves the deadlines of a slice of one account's messages, from the key `from` on. Returns the start of the next
    /// slice.
    fn messages(&self, tables: &mut Tables<'_>, from: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let account = from.get(..16).unwrap_or_default();
        let account = match account {
            [] => first_key(tables, Table::Accounts, &[])?,
            account => Some(account.to_vec()),
        };
        let Some(account) = account else { return Ok(None) };
        let first = [account.as_slice(), &self.after.0].concat();
        let (from, to) = (first.as_slice().max(from), after_prefix(&account));
        let keys = tables.keys_with(Table::Messages, (from, &to), Order::Ascending, OnDamage::Key, SLICE)?;
        for key in &keys {
            match tables.row::<MessageRow>(key) {
                Ok(Some(row)) => self.message(tables, key, row)?,
                Ok(None) => {}
                // One damaged row must not prevent the correction of the others.
                Err(error @ (StoreError::Row { .. } | StoreError::Damaged { .. })) => {
                    tracing::error!(%error, "could not correct a message's deadline; it stays wrong")
                }
                Err(error) => return Err(error),
            }
        }
        match keys.last() {
            Some(last) if keys.len() == SLICE => Ok(Some([last.as_slice(), &[0]].concat())),
            _ => first_key(tables, Table::Accounts, &to),
        }
    }

    fn message(&self, tables: &mut Tables<'_>, key: &[u8], row: MessageRow) -> Result<(), StoreError> {
        if (Bucket { end: row.place.bucket }).doubt() == Some(self.number) {
            let row = moved(tables, row, self.offset_ms)?;
            tables.put(key, &row);
        }
        Ok(())
    }

    /// Reschedules a slice of the attempts, from the key `from` on, to an earlier time, because the service's time was
    /// set back. Timers that were due before that are already taken, and stay with their workers.
    fn timers(&self, tables: &mut Tables<'_>, from: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let range = (from, &*after_prefix(&[]));
        let keys = tables.keys_with(Table::Timers, range, Order::Ascending, OnDamage::Key, SLICE)?;
        for timer in keys.iter().filter_map(|key| Timer::decode(key)) {
            let due = timer.due.moved_by(self.offset_ms).max(tables.now());
            match timer.kind {
                _ if timer.due <= self.until || due >= timer.due => {}
                TimerKind::Transfer => bring_forward_transfer(tables, timer, due)?,
                TimerKind::Delivery => bring_forward_delivery(tables, timer, due)?,
                _ => {}
            }
        }
        let next = keys.last().filter(|_| keys.len() == SLICE);
        Ok(next.map(|last| [last.as_slice(), &[0]].concat()))
    }
}

fn bring_forward_transfer(tables: &mut Tables<'_>, timer: Timer, due: Timestamp) -> Result<(), StoreError> {
    let key = schema::message(timer.account, MessageId(timer.id));
    let Some(row) = readable(tables.row::<TransferRow>(&key))?.filter(|row| row.due == Some(timer.due)) else {
        return Ok(());
    };
    tables.put(&key, &TransferRow { due: Some(due), ..row });
    tables.disarm(timer);
    tables.arm(Timer { due, ..timer });
    Ok(())
}

fn bring_forward_delivery(tables: &mut Tables<'_>, timer: Timer, due: Timestamp) -> Result<(), StoreError> {
    let key = schema::delivery(timer.account, DeliveryId(timer.id));
    let Some(mut row) = readable(tables.row::<DeliveryRow>(&key))? else { return Ok(()) };
    if row.state.stage != (Stage::Pending { due: timer.due }) {
        return Ok(());
    }
    row.state.stage = Stage::Pending { due };
    tables.put(&key, &row);
    tables.disarm(timer);
    tables.arm(Timer { due, ..timer });
    Ok(())
}

/// Returns a row, or `None` if it is damaged; such a row stays unchanged.
fn readable<R: Row>(read: Result<Option<R>, StoreError>) -> Result<Option<R>, StoreError> {
    match read {
        Err(StoreError::Row { .. } | StoreError::Damaged { .. }) => Ok(None),
        read => read,
    }
}

/// Returns the first key of `table` from `from` on, of an intact or damaged row.
fn first_key(tables: &Tables<'_>, table: Table, from: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
    let range = (from, &*after_prefix(&[]));
    Ok(tables.keys_with(table, range, Order::Ascending, OnDamage::Key, 1)?.pop())
}
