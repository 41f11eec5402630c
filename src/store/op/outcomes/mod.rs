//! Counting the outcomes of messages in hourly rows by stream, sending domain and receiving provider. Rates and charts
//! are computed from them and never scan messages. Called for every event, inside its transaction.
//!
//! An outcome counts for the hour in which its message was accepted, regardless of its delay. Bounces and complaints
//! are therefore counted beside their deliveries, and the rate of a past hour may still rise.

use std::ops::ControlFlow;
use std::time::Duration;

use super::event::{EventDetails, Subject};
use crate::base::id::{AccountId, DomainId, Ulid};
use crate::base::time::Timestamp;
use crate::domain::event::EventType;
use crate::domain::stream::Stream;
use crate::store::error::StoreError;
use crate::store::read::{Order, Read, after_prefix, sound};
use crate::store::row::Row;
use crate::store::row::message::TransferRow;
use crate::store::row::outcomes::OutcomeCounts;
use crate::store::schema::{self, Table};
use crate::store::tables::Tables;
use crate::store::timer::{Timer, TimerKind};

/// Provider name for servers of unknown providers.
pub const OTHER: &str = "other";
/// Time for which counts are kept, so that a year can be compared with the previous one.
pub const KEPT: Duration = Duration::from_secs(400 * 24 * 3600);
/// Maximum number of rows for one account and hour. Beyond it, outcomes are counted without their domain, under the
/// provider name [`OTHER`].
const ROWS_MAX: usize = 256;
const HOUR_MS: u64 = 3_600_000;
/// Interval at which counts are evaluated.
const JUDGED_EVERY_MS: u64 = 60_000;

/// Returns the UTC hour of `moment`, as a number of hours since the epoch.
pub fn hour_of(moment: Timestamp) -> u32 {
    u32::try_from(moment.as_millis() / HOUR_MS).unwrap_or(u32::MAX)
}

/// Returns the beginning of a UTC hour.
pub const fn start_of(hour: u32) -> Timestamp {
    Timestamp::from_millis(hour as u64 * HOUR_MS)
}

/// Counts an event of a message, unless its hour is older than counts are kept.
pub(super) fn count(
    tables: &mut Tables<'_>,
    subject: &Subject<'_>,
    kind: EventType,
    details: &EventDetails<'_>,
) -> Result<(), StoreError> {
    let Subject { account, row: message, .. } = *subject;
    if message.created_at < tables.expiry() - KEPT {
        return Ok(());
    }
    let hour = hour_of(message.created_at);
    let provider = details.transfer.and_then(|transfer| transfer.provider.as_deref()).unwrap_or_default();
    let (key, mut counts) = place(tables, account, hour, (message.stream, message.domain, provider))?;
    counts.count(kind, details.bounce);
    let has_one_click = message.unsubscribe_url.as_deref().is_some_and(is_https);
    if kind == EventType::Queued && message.stream == Stream::Marketing && !has_one_click {
        counts.without_one_click += 1;
    }
    if kind == EventType::Delivered {
        counts.count_delivery(tables.now().since(message.created_at), details.facts.tls.is_some());
    }
    if completes_a_return(kind, details.transfer) {
        counts.returned += 1;
    }
    tables.put(&key, &counts);
    if matches!(kind, EventType::Bounced | EventType::Complained) {
        let due = tables.now().as_millis() / JUDGED_EVERY_MS * JUDGED_EVERY_MS + JUDGED_EVERY_MS;
        tables.arm(judged_at(account, Timestamp::from_millis(due)));
    }
    Ok(())
}

/// Returns the timer by which an account is evaluated.
pub(super) fn judged_at(account: AccountId, due: Timestamp) -> Timer {
    Timer::new(due, TimerKind::Reputation, account, Ulid::default())
}

/// Returns whether one-click unsubscription may be offered at this URL (RFC 8058 3.1).
fn is_https(url: &str) -> bool {
    url.get(..6).is_some_and(|scheme| scheme.eq_ignore_ascii_case("https:"))
}

/// Returns whether the message is now both delivered and bounced, and this event is the later of the two.
fn completes_a_return(kind: EventType, transfer: Option<&TransferRow>) -> bool {
    matches!(kind, EventType::Delivered | EventType::Bounced) && transfer.is_some_and(|row| row.state.is_returned())
}

/// Returns the key of the row that counts the outcome, and its counts so far.
fn place(
    tables: &Tables<'_>,
    account: AccountId,
    hour: u32,
    (stream, domain, provider): (Stream, DomainId, &str),
) -> Result<(Vec<u8>, OutcomeCounts), StoreError> {
    let key = schema::outcomes(account, hour, stream, domain, provider);
    if let Some(counts) = counted(tables, &key)? {
        return Ok((key, counts));
    }
    let rest = schema::outcomes(account, hour, stream, DomainId::default(), OTHER);
    // If the common row already exists, the hour is full, and its rows need not be counted.
    if let Some(counts) = counted(tables, &rest)? {
        return Ok((rest, counts));
    }
    let prefix = schema::outcomes_of_hour(account, hour);
    let rows = tables.sound_keys(Table::Outcomes, &prefix, &after_prefix(&prefix), Order::Ascending, ROWS_MAX)?;
    Ok((if rows.len() < ROWS_MAX { key } else { rest }, OutcomeCounts::default()))
}

/// Returns the counts of a row. A damaged row starts again: an outcome is recorded even if its count is lost.
fn counted(tables: &Tables<'_>, key: &[u8]) -> Result<Option<OutcomeCounts>, StoreError> {
    match tables.row(key) {
        Err(error) if error.is_of_row() => Ok(Some(OutcomeCounts::default())),
        counts => counts,
    }
}

/// Counts of one row in a scan.
pub struct HourlyOutcomes<'a> {
    /// The UTC hour in which the messages were accepted, counted from the epoch.
    pub hour: u32,
    /// Stream.
    pub stream: Stream,
    /// Sending domain; the zero one for outcomes without a row of their own.
    pub domain: DomainId,
    /// Provider that was contacted: a known one, [`OTHER`], or empty for none.
    pub provider: &'a str,
    /// The counts.
    pub counts: OutcomeCounts,
}

/// Calls `each` with the account's counts of the hours `from..to`, oldest first.
///
/// # Errors
/// Store errors.
pub fn scan(
    read: &impl Read,
    account: AccountId,
    from: u32,
    to: u32,
    each: &mut dyn FnMut(&HourlyOutcomes<'_>),
) -> Result<(), StoreError> {
    let (from, to) = (schema::outcomes_of_hour(account, from), schema::outcomes_of_hour(account, to));
    read.scan_sound(Table::Outcomes, &from, &to, Order::Ascending, &mut |key, bytes| {
        if let Some((hour, stream, domain, provider)) = schema::outcomes_parts(key)
            && let Some(counts) = sound(OutcomeCounts::decode(bytes))?
        {
            each(&HourlyOutcomes { hour, stream, domain, provider, counts });
        }
        Ok(ControlFlow::Continue(()))
    })
}

/// Removes up to `limit` rows of the account that have been kept long enough. Returns their number.
pub(super) fn sweep(tables: &mut Tables<'_>, account: AccountId, limit: usize) -> Result<usize, StoreError> {
    let from = schema::outcomes_of_hour(account, 0);
    let to = schema::outcomes_of_hour(account, hour_of(tables.expiry() - KEPT));
    let keys = tables.sound_keys(Table::Outcomes, &from, &to, Order::Ascending, limit)?;
    keys.iter().for_each(|key| tables.remove(Table::Outcomes, key));
    Ok(keys.len())
}

#[cfg(test)]
mod tests;
