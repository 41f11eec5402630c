//! Doubts about the wall clock: their beginning, their end, and the correction of times recorded meanwhile. The
//! correction is the step of the service's time at the end of the doubt.
//!
//! It moves the deadlines of messages that were accepted during the doubt, and the ages of webhook deliveries. If the
//! service's time was set back, it also brings timers forward, for example of the next attempts of messages and
//! webhooks. They would otherwise wait for the clock to catch up.

use std::borrow::Cow;
use std::ops::RangeInclusive;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Infallible, Op, alert};
use crate::base::id::{AccountId, AlertId, DeliveryId, MessageId, Ulid};
use crate::base::time::Timestamp;
use crate::domain::alert::{Condition, Severity, Sighting};
use crate::machine::alert::State;
use crate::machine::delivery::Stage;
use crate::machine::retention::Bucket;
use crate::store::clock_doubts::key_of;
use crate::store::error::{OpError, StoreError};
use crate::store::read::{OnDamage, Order, Read, after_prefix};
use crate::store::row::Row;
use crate::store::row::alert::{AlertRow, AlertStateRow};
use crate::store::row::clock_doubt::{ClockDoubtRow, DoubtEnd, UnmovedRows};
use crate::store::row::delivery::DeliveryRow;
use crate::store::row::domain::DomainRow;
use crate::store::row::message::{MessageRow, TransferRow};
use crate::store::row::notice::NoticeRow;
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
    type Refusal = Infallible;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<(), OpError<Infallible>> {
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
    /// The service's time at the end of the doubt, before it was set to the wall clock.
    pub until: Timestamp,
    /// Correction of the service's time, in milliseconds.
    pub offset_ms: i64,
}

impl Op for EndDoubt {
    type Reply = ();
    type Refusal = Infallible;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<(), OpError<Infallible>> {
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
        if offset_ms != 0 {
            // A start uses this time until the first batch after the correction records another.
            let set = until.moved_by(offset_ms).as_millis().to_be_bytes();
            tables.put_bytes(Table::Meta, meta::TIME, set.to_vec());
        }
        if offset_ms < 0 {
            // Identifiers show whether a row was written before or after a step back.
            let last = tables.get(Table::Meta, meta::LAST_MESSAGE_ID)?.unwrap_or_default();
            let step = Ulid::new(until.moved_by(1), [0; 10]);
            if last.as_slice() < step.0.as_slice() {
                tables.put_bytes(Table::Meta, meta::LAST_MESSAGE_ID, step.0.to_vec());
            }
        }
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
    type Refusal = Infallible;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<bool, OpError<Infallible>> {
        let key = key_of(self.number);
        let Some(row) = tables.sound_row::<ClockDoubtRow>(&key)? else { return Ok(true) };
        let Some(end) = &row.end else { return Ok(true) };
        let moving =
            Moving { number: self.number, after: row.after, during: row.began..=end.until, offset_ms: end.offset_ms };
        let rest = match &end.rest {
            UnmovedRows::Messages(from) => match moving.messages(tables, from)? {
                Some(from) => UnmovedRows::Messages(from),
                // A timer that fires early does no harm.
                None if end.offset_ms > 0 => UnmovedRows::Deliveries(Vec::new()),
                None => UnmovedRows::Timers(Timer::first_after(tables.now()).to_vec()),
            },
            UnmovedRows::Deliveries(from) => {
                moving.deliveries(tables, from)?.map_or(UnmovedRows::Nothing, UnmovedRows::Deliveries)
            }
            UnmovedRows::Timers(from) => moving.timers(tables, from)?.map_or(UnmovedRows::Nothing, UnmovedRows::Timers),
            UnmovedRows::Nothing => UnmovedRows::Nothing,
        };
        let row = ClockDoubtRow { end: Some(DoubtEnd { rest, ..end.clone() }), ..row };
        tables.put(&key, &row);
        Ok(!row.is_unsettled())
    }
}

struct Moving {
    number: u32,
    /// An identifier lower than those of the doubt's rows.
    after: Ulid,
    /// The service's times of the doubt, before the clock was set.
    during: RangeInclusive<Timestamp>,
    offset_ms: i64,
}

impl Moving {
    /// Moves the deadlines of a slice of one account's messages, from the key `from` on. Returns the start of the next
    /// slice.
    fn messages(&self, tables: &mut Tables<'_>, from: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.slice(tables, from, |tables, key, row: MessageRow| {
            let is_of_doubt = (Bucket { end: row.place.bucket }).doubt() == Some(self.number);
            let row = is_of_doubt.then(|| moved(tables, row, self.offset_ms)).transpose()?;
            row.into_iter().for_each(|row| tables.put(key, &row));
            Ok(())
        })
    }

    /// Moves the beginning of a slice of one account's deliveries, from the key `from` on. Otherwise they would fail
    /// for their age. Returns the start of the next slice.
    fn deliveries(&self, tables: &mut Tables<'_>, from: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.slice(tables, from, |tables, key, mut row: DeliveryRow| {
            let is_pending = matches!(row.state.stage, Stage::Pending { .. });
            if is_pending && self.during.contains(&row.state.created_at) {
                row.state.created_at = row.state.created_at.moved_by(self.offset_ms);
                tables.put(key, &row);
            }
            Ok(())
        })
    }

    /// Passes a slice of one account's rows to `change`, from the key `from` on. The keys consist of the account and an
    /// identifier. Returns the start of the next slice.
    fn slice<R: Row + Clone>(
        &self,
        tables: &mut Tables<'_>,
        from: &[u8],
        change: impl Fn(&mut Tables<'_>, &[u8], R) -> Result<(), StoreError>,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        let account = from.get(..16).unwrap_or_default();
        let account = match account {
            [] => first_key(tables, Table::Accounts, &[])?,
            account => Some(account.to_vec()),
        };
        let Some(account) = account else { return Ok(None) };
        let first = [account.as_slice(), &self.after.0].concat();
        let (from, to) = (first.as_slice().max(from), after_prefix(&account));
        let keys = tables.keys_with(R::TABLE, (from, &to), Order::Ascending, OnDamage::Key, SLICE)?;
        for key in &keys {
            match tables.row::<R>(key) {
                Ok(Some(row)) => change(tables, key, row)?,
                Ok(None) => {}
                // One damaged row must not prevent the correction of the others.
                Err(error @ (StoreError::Row { .. } | StoreError::Damaged { .. })) => {
                    tracing::error!(%error, "could not correct the time of a row; it stays wrong")
                }
                Err(error) => return Err(error),
            }
        }
        match keys.last() {
            Some(last) if keys.len() == SLICE => Ok(Some([last.as_slice(), &[0]].concat())),
            _ => first_key(tables, Table::Accounts, &to),
        }
    }

    /// Brings forward a slice of the timers, from the key `from` on, because the service's time was set back. This
    /// includes timers that were due before that and are with their workers. A worker that waits finds that its timer
    /// has changed, and leaves the rest to the new one. One that sends records the outcome, which ends the new one.
    fn timers(&self, tables: &mut Tables<'_>, from: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let range = (from, &*after_prefix(&[]));
        let keys = tables.keys_with(Table::Timers, range, Order::Ascending, OnDamage::Key, SLICE)?;
        for timer in keys.iter().filter_map(|key| Timer::decode(key)) {
            let due = timer.due.moved_by(self.offset_ms).max(tables.now());
            if due < timer.due && self.bring_forward(tables, timer, due)? {
                tables.disarm(timer);
                tables.arm(Timer { due, ..timer });
            }
        }
        let next = keys.last().filter(|_| keys.len() == SLICE);
        Ok(next.map(|last| [last.as_slice(), &[0]].concat()))
    }

    /// Sets the row of `timer` to `due`. Returns whether there is one. Timers of deletions are not moved, because
    /// nothing waits for them.
    fn bring_forward(&self, tables: &mut Tables<'_>, timer: Timer, due: Timestamp) -> Result<bool, StoreError> {
        let (account, id) = (timer.account, timer.id);
        match timer.kind {
            TimerKind::Transfer => {
                let key = schema::message(account, MessageId(id));
                set_due(tables, &key, timer.due, |row: &mut TransferRow| {
                    Some(std::mem::replace(row.due.as_mut()?, due))
                })
            }
            TimerKind::Delivery => {
                let key = schema::delivery(account, DeliveryId(id));
                set_due(tables, &key, timer.due, |row: &mut DeliveryRow| match &mut row.state.stage {
                    Stage::Pending { due: pending } => Some(std::mem::replace(pending, due)),
                    Stage::Delivered | Stage::Failed => None,
                })
            }
            // A notice that was due may be in transmission, and has no lease.
            TimerKind::Notice if timer.due <= *self.during.end() => Ok(false),
            TimerKind::Notice => {
                set_due(tables, &id.0, timer.due, |row: &mut NoticeRow| Some(std::mem::replace(&mut row.due, due)))
            }
            TimerKind::DomainCheck => {
                let key = schema::owned(account, &id.0);
                let next_check = |row: &mut DomainRow| Some(std::mem::replace(row.next_check_at.as_mut()?, due));
                set_due(tables, &key, timer.due, next_check)
            }
            TimerKind::DkimRotation => {
                let key = schema::owned(account, &id.0);
                let rotation = |row: &mut DomainRow| Some(std::mem::replace(row.rotation.timer.as_mut()?, due));
                set_due(tables, &key, timer.due, rotation)
            }
            TimerKind::AlertReminder => set_reminder(tables, account, AlertId(id), timer.due, due),
            // The rows of these timers don't contain the time.
            TimerKind::AlertAnnouncement
            | TimerKind::EndpointEnd
            | TimerKind::MessageIndex
            | TimerKind::Reputation
            | TimerKind::SuppressionImport
            | TimerKind::Unpark => Ok(true),
            TimerKind::AlertExpiry
            | TimerKind::Content
            | TimerKind::Deliveries
            | TimerKind::EventLog
            | TimerKind::Idempotency
            | TimerKind::StsPolicy
            | TimerKind::TlsReport
            | TimerKind::TlsReports
            | TimerKind::ViewEnd => Ok(false),
        }
    }
}

/// Sets the next reminder of an open alert. Returns false if it has no reminder at `was`.
fn set_reminder(
    tables: &mut Tables<'_>,
    account: AccountId,
    alert: AlertId,
    was: Timestamp,
    due: Timestamp,
) -> Result<bool, StoreError> {
    let Some(row) = readable(tables.row::<AlertRow>(&schema::alert(account, alert)))? else { return Ok(false) };
    let subject = row.subject.as_ref().map_or("", |subject| &subject.id);
    let key = schema::alert_state(account, row.condition, subject);
    set_due(tables, &key, was, |row: &mut AlertStateRow| match &mut row.state {
        State::Open(open) => Some(std::mem::replace(open.remind_at.as_mut()?, due)),
        State::Absent | State::Suspected { .. } | State::Ended { .. } => None,
    })
}

/// Sets the time of an intact row by `set`, which returns the earlier one. Returns false, without a change, if there is
/// no row, or if it was not due at `was`.
fn set_due<R: Row + Clone>(
    tables: &mut Tables<'_>,
    key: &[u8],
    was: Timestamp,
    set: impl FnOnce(&mut R) -> Option<Timestamp>,
) -> Result<bool, StoreError> {
    let Some(mut row) = readable(tables.row::<R>(key))? else { return Ok(false) };
    if set(&mut row) != Some(was) {
        return Ok(false);
    }
    tables.put(key, &row);
    Ok(true)
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
