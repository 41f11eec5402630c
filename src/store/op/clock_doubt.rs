//! The doubts about the wall clock: that one began, how it ended, and moving what was stamped meanwhile by as much as
//! the service's time was set at its end.
//!
//! Moved are the deadlines of messages that were accepted in the doubt. Where the service's time was set back, the next
//! attempts of messages and webhooks are too: otherwise they would wait for the clock to catch up.

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
use crate::store::error::{Stop, StoreError};
use crate::store::read::{OnDamage, Order, Read, after_prefix};
use crate::store::row::Row;
use crate::store::row::clock_doubt::{ClockDoubtRow, DoubtEnd, Rest};
use crate::store::row::delivery::DeliveryRow;
use crate::store::row::message::{MessageRow, TransferRow};
use crate::store::schema::{self, Table, meta};
use crate::store::tables::Tables;
use crate::store::timer::{Timer, TimerKind};

/// Number of rows that one operation reads.
const SLICE: usize = 256;
/// Messages commit in another order than that of their identifiers, but never by so much.
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

    fn apply(&self, tables: &mut Tables<'_>) -> Result<(), Stop<Never>> {
        begin(tables, self.number)?;
        alert::found(tables, AccountId::default(), &sighting(None))?;
        Ok(())
    }
}

/// The alert of a doubtful wall clock, with its cause where that is known.
pub fn sighting(cause: Option<&str>) -> Sighting {
    let cause = cause.map(|cause| format!(" ({cause})")).unwrap_or_default();
    let seen = format!("Mail goes on, but nothing is deleted, expired or given up{cause}.");
    Sighting::new(Condition::ClockDoubtful, Severity::Critical, "The wall clock is doubtful", seen)
}

/// Records doubt `number`, unless it is known.
///
/// # Errors
/// Database errors.
pub(super) fn begin(tables: &mut Tables<'_>, number: u32) -> Result<(), StoreError> {
    // A damaged row stays as it is: mail goes on, and its messages keep the deadlines that they were given.
    if !tables.has(Table::ClockDoubts, &key_of(number))? {
        let last = tables.get(Table::Meta, meta::LAST_MESSAGE_ID)?.and_then(|last| last.try_into().ok());
        let after = Ulid::new(last.map(Ulid).unwrap_or_default().timestamp() - OUT_OF_ORDER, [0; 10]);
        let row = ClockDoubtRow { began: tables.now(), after, end: None };
        tables.put(&key_of(number), &row);
    }
    Ok(())
}

/// The row of a message that is accepted at `key`. Where it was made in a doubt, that is recorded with it; where that
/// doubt has ended meanwhile, and nobody will come by to move the message's deadlines, they are moved now.
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
    let late = end.filter(|end| !matches!(&end.rest, Rest::Messages(from) if key >= from.as_slice()));
    Ok(match late {
        Some(end) => Cow::Owned(moved(tables, message.clone(), end.offset_ms)?),
        None => Cow::Borrowed(message),
    })
}

/// A message with its deadlines moved, and the timer of its content armed.
fn moved(tables: &mut Tables<'_>, row: MessageRow, offset_ms: i64) -> Result<MessageRow, StoreError> {
    tables.arm_unless_armed(Timer::of_store(row.place.bucket.moved_by(offset_ms), TimerKind::Content))?;
    // The sender's own moment was meant as it is.
    let (asked, moved) = (row.expires_at, row.give_up_at.moved_by(offset_ms));
    let give_up_at = if asked == Some(row.give_up_at) { row.give_up_at } else { asked.unwrap_or(moved).min(moved) };
    let content_expires_at = row.content_expires_at.moved_by(offset_ms);
    Ok(MessageRow { give_up_at, content_expires_at, ..row })
}

/// Records how a doubt ended.
#[derive(Debug, Serialize, Deserialize)]
pub struct EndDoubt {
    /// The doubt's number.
    pub number: u32,
    /// The service's time at its end, before the wall clock was taken over.
    pub until: Timestamp,
    /// Correction of the service's time, in milliseconds.
    pub offset_ms: i64,
}

impl Op for EndDoubt {
    type Reply = ();
    type Refusal = Never;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<(), Stop<Never>> {
        begin(tables, self.number)?;
        alert::gone(tables, AccountId::default(), Condition::ClockDoubtful, "")?;
        let found = tables.sound_row::<ClockDoubtRow>(&key_of(self.number))?;
        // A doubt that ends now has a row without an end. Where that is damaged, all messages are looked at.
        let row = found.unwrap_or(ClockDoubtRow { began: self.until, after: Ulid::default(), end: None });
        if row.end.is_some() {
            return Ok(());
        }
        let Self { number, until, offset_ms } = *self;
        let rest = if offset_ms == 0 { Rest::Nothing } else { Rest::Messages(Vec::new()) };
        tables.put(&key_of(number), &ClockDoubtRow { end: Some(DoubtEnd { until, offset_ms, rest }), ..row });
        Ok(())
    }
}

/// Moves a slice of what was stamped in a doubt that has ended.
#[derive(Debug, Serialize, Deserialize)]
pub struct SettleDoubt {
    /// The doubt's number.
    pub number: u32,
}

impl Op for SettleDoubt {
    /// Whether all of it is moved.
    type Reply = bool;
    type Refusal = Never;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<bool, Stop<Never>> {
        let key = key_of(self.number);
        let Some(row) = tables.sound_row::<ClockDoubtRow>(&key)? else { return Ok(true) };
        let Some(end) = &row.end else { return Ok(true) };
        let moving = Moving { number: self.number, after: row.after, until: end.until, offset_ms: end.offset_ms };
        let rest = match &end.rest {
            Rest::Messages(from) => match moving.messages(tables, from)? {
                Some(from) => Rest::Messages(from),
                // A timer that fires early does no harm.
                None if end.offset_ms > 0 => Rest::Nothing,
                None => Rest::Timers(Timer::first_after(end.until).to_vec()),
            },
            Rest::Timers(from) => moving.timers(tables, from)?.map_or(Rest::Nothing, Rest::Timers),
            Rest::Nothing => Rest::Nothing,
        };
        let is_settled = rest == Rest::Nothing;
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
    /// Moves the deadlines of a slice of one account's messages, from the key `from` on. Returns where the next slice
    /// begins.
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
                // One damaged row must not keep every deadline from moving on.
                Err(error @ (StoreError::Row { .. } | StoreError::Damaged { .. })) => {
                    tracing::error!(%error, "could not move a message's deadline")
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

    /// Brings forward a slice of the attempts that were put off by the time that was set back, from the key `from` on.
    /// What was due then is in hand, and is left to who has it.
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

/// A damaged row stays as it is.
fn readable<R: Row>(read: Result<Option<R>, StoreError>) -> Result<Option<R>, StoreError> {
    match read {
        Err(StoreError::Row { .. } | StoreError::Damaged { .. }) => Ok(None),
        read => read,
    }
}

/// The first key of `table` from `from` on, of a sound row or a damaged one.
fn first_key(tables: &Tables<'_>, table: Table, from: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
    let range = (from, &*after_prefix(&[]));
    Ok(tables.keys_with(table, range, Order::Ascending, OnDamage::Key, 1)?.pop())
}
