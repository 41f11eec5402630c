//! Sweeping expired data, in slices that never delay accepting: idempotency records, old events, and the timers of
//! destroyed content buckets.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Infallible, Op, audit, dmarc, outcomes, stored_content};
use crate::base::id::{AccountId, Ulid};
use crate::base::time::Timestamp;
use crate::domain::account::Account;
use crate::store::clock_doubts;
use crate::store::error::{OpError, StoreError};
use crate::store::read::{Order, Read, sound};
use crate::store::row::Row;
use crate::store::row::destroyed_content::DestroyedContent;
use crate::store::row::event::EventLogRow;
use crate::store::schema::{self, Table, meta};
use crate::store::tables::Tables;
use crate::store::timer::{Timer, TimerKind};

/// Number of rows that one operation removes.
const SLICE: usize = 512;
/// The time for which the event log keeps an event (contract 7).
pub const EVENT_LIFETIME: Duration = Duration::from_secs(30 * 24 * 3600);
/// Interval between sweeps of the event log. Expired events are never listed, even before they are swept.
const EVENT_SWEEP_STEP: Duration = Duration::from_secs(24 * 3600);
/// Number of accounts that one sweep of the event log covers.
const ACCOUNTS_MAX: usize = 100_000;

/// Removes expired idempotency records.
#[derive(Debug, Serialize, Deserialize)]
pub struct SweepIdempotency {
    /// The timer that was served.
    pub due: Timestamp,
}

impl Op for SweepIdempotency {
    type Reply = ();
    type Refusal = Infallible;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<(), OpError<Infallible>> {
        tables.disarm(Timer::of_store(self.due, TimerKind::Idempotency));
        let end = Timer::first_after(tables.expiry());
        let keys = tables.sound_keys(Table::IdempotencyByExpiry, &[], &end, Order::Ascending, SLICE)?;
        for key in &keys {
            tables.remove(Table::IdempotencyByExpiry, key);
            let bound = &key[8..];
            // The key may have been bound again since.
            let row = tables.sound_row::<crate::store::row::idempotency::IdempotencyRow>(bound)?;
            if row.is_some_and(|row| row.binding.expires_at <= tables.expiry()) {
                tables.remove(Table::Idempotency, bound);
            }
        }
        if keys.len() == SLICE {
            tables.arm(Timer::of_store(tables.now(), TimerKind::Idempotency));
        }
        Ok(())
    }
}

/// Records that content is about to be destroyed: it counts as deleted from now on, even if the clock is set back.
#[derive(Debug, Serialize, Deserialize)]
pub struct ContentExpires {
    /// The latest deadline of this content.
    pub until: Timestamp,
}

impl Op for ContentExpires {
    type Reply = ();
    type Refusal = Infallible;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<(), OpError<Infallible>> {
        let mut content: DestroyedContent = tables.sound_row(meta::DESTROYED)?.unwrap_or_default();
        let last = tables.get(Table::Meta, meta::LAST_MESSAGE_ID)?.and_then(|last| last.try_into().ok());
        content.add(self.until, last.map(Ulid).unwrap_or_default());
        tables.put(meta::DESTROYED, &content);
        Ok(())
    }
}

/// Records that a content bucket is destroyed. Its messages' rows are kept.
#[derive(Debug, Serialize, Deserialize)]
pub struct ContentDestroyed {
    /// The bucket's end, which is its timer's due time.
    pub bucket: Timestamp,
}

impl Op for ContentDestroyed {
    type Reply = ();
    type Refusal = Infallible;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<(), OpError<Infallible>> {
        tables.disarm(Timer::of_store(self.bucket, TimerKind::Content));
        if !stored_content::give_back(tables, self.bucket, SLICE)? {
            // The timer continues with the rest.
            tables.arm(Timer::of_store(self.bucket, TimerKind::Content));
        }
        // The journal may contain some of the bucket's bodies.
        tables.clear_journal();
        Ok(())
    }
}

/// Removes a slice of the events older than 30 days from the log, with the transcripts of their attempts. The messages'
/// timelines keep the events. Expired counts of outcomes and audit lines are removed too.
#[derive(Debug, Serialize, Deserialize)]
pub struct SweepEvents {
    /// The timer that was served.
    pub due: Timestamp,
}

impl Op for SweepEvents {
    type Reply = ();
    type Refusal = Infallible;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<(), OpError<Infallible>> {
        tables.disarm(Timer::of_store(self.due, TimerKind::EventLog));
        let end = oldest_kept(tables, tables.expiry())?;
        let mut left = SLICE;
        for (account, _) in tables.sound_rows::<Account>(&[], ACCOUNTS_MAX)? {
            let Ok(account) = <[u8; 16]>::try_from(account).map(|bytes| AccountId(Ulid(bytes))) else { continue };
            left -= self.sweep_account(tables, account, end, left)?;
            left -= outcomes::sweep(tables, account, left)?;
            left -= audit::sweep(tables, account, left)?;
            left -= dmarc::sweep(tables, account, left)?;
            if left == 0 {
                break;
            }
        }
        let next = if left == 0 { tables.now() } else { tables.now() + EVENT_SWEEP_STEP };
        tables.arm(Timer::of_store(next, TimerKind::EventLog));
        Ok(())
    }
}

impl SweepEvents {
    fn sweep_account(
        &self,
        tables: &mut Tables<'_>,
        account: AccountId,
        end: Ulid,
        limit: usize,
    ) -> Result<usize, StoreError> {
        let (from, to) = (schema::owned(account, &[0; 16]), schema::owned(account, &end.0));
        let keys = tables.sound_keys(Table::EventLog, &from, &to, Order::Ascending, limit)?;
        for key in &keys {
            if let Some(bytes) = tables.get(Table::EventLog, key)?
                && let Some(event) = key.last_chunk::<16>()
                && let Some(row) = sound(EventLogRow::decode(&bytes))?
            {
                let event = crate::base::id::EventId(Ulid(*event));
                tables.remove(Table::EventLogByType, &schema::event_of_type(account, row.kind, event));
                tables.remove(Table::Transcripts, &schema::timeline(account, row.message, event));
            }
            tables.remove(Table::EventLog, key);
        }
        Ok(keys.len())
    }
}

/// Removes a stale timer.
#[derive(Debug, Serialize, Deserialize)]
pub struct DropTimer {
    /// The timer.
    pub timer: Timer,
}

impl Op for DropTimer {
    type Reply = ();
    type Refusal = Infallible;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<(), OpError<Infallible>> {
        tables.disarm(self.timer);
        Ok(())
    }
}

/// Returns the lowest event identifier that the log still shows at `now`. Identifiers of a doubt that ended with a step
/// forward are older than their events, so they are kept for the whole time after the doubt's end.
///
/// # Errors
/// Database errors.
pub fn oldest_kept(read: &impl Read, now: Timestamp) -> Result<Ulid, StoreError> {
    let lifetime_ago = now - EVENT_LIFETIME;
    let began = clock_doubts::first_step_forward_after(read, lifetime_ago)?;
    Ok(Ulid::new(began.map_or(lifetime_ago, |began| began.min(lifetime_ago)), [0; 10]))
}
