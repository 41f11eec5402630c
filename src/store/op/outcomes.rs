//! Counting what becomes of messages, in hourly rows by stream, sending domain and receiving provider: what rates and
//! charts are made of, so that neither ever scans messages. Called for every event, inside its transaction.
//!
//! An outcome counts for the hour in which its message was accepted, however late it comes. So bounces and complaints
//! stand beside the deliveries that they are of, and a past hour's rate may still rise.

use std::ops::ControlFlow;
use std::time::Duration;

use super::event::{Happening, Subject};
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

/// The provider of servers that no known one runs.
pub const OTHER: &str = "other";
/// Time for which counts are kept: a year can be compared with the one before.
pub const KEPT: Duration = Duration::from_secs(400 * 24 * 3600);
/// Rows of one account and hour. What further domains and providers do counts for its stream alone, under no domain
/// and [`OTHER`].
const ROWS_MAX: usize = 256;
const HOUR_MS: u64 = 3_600_000;
/// Interval at which counts are judged.
const JUDGED_EVERY_MS: u64 = 60_000;

/// The UTC hour of `moment`, counted from the epoch.
pub fn hour_of(moment: Timestamp) -> u32 {
    u32::try_from(moment.as_millis() / HOUR_MS).unwrap_or(u32::MAX)
}

/// When a UTC hour begins.
pub const fn start_of(hour: u32) -> Timestamp {
    Timestamp::from_millis(hour as u64 * HOUR_MS)
}

/// Counts an event of a message. What is past the time that counts are kept is counted no more.
pub(super) fn count(
    tables: &mut Tables<'_>,
    subject: &Subject<'_>,
    kind: EventType,
    happening: &Happening<'_>,
) -> Result<(), StoreError> {
    let Subject { account, row: message, .. } = *subject;
    if message.created_at < tables.expiry() - KEPT {
        return Ok(());
    }
    let hour = hour_of(message.created_at);
    let provider = happening.transfer.and_then(|transfer| transfer.provider.as_deref()).unwrap_or_default();
    let (key, mut counts) = place(tables, account, hour, (message.stream, message.domain, provider))?;
    counts.count(kind, happening.bounce);
    let has_one_click = message.unsubscribe_url.as_deref().is_some_and(is_https);
    if kind == EventType::Queued && message.stream == Stream::Marketing && !has_one_click {
        counts.without_one_click += 1;
    }
    if kind == EventType::Delivered {
        counts.count_delivery(tables.now().since(message.created_at), happening.facts.tls.is_some());
    }
    if completes_a_return(kind, happening.transfer) {
        counts.returned += 1;
    }
    tables.put(&key, &counts);
    if matches!(kind, EventType::Bounced | EventType::Complained) {
        let due = tables.now().as_millis() / JUDGED_EVERY_MS * JUDGED_EVERY_MS + JUDGED_EVERY_MS;
        tables.arm(judged_at(account, Timestamp::from_millis(due)));
    }
    Ok(())
}

/// The timer by which an account is judged.
pub(super) fn judged_at(account: AccountId, due: Timestamp) -> Timer {
    Timer::new(due, TimerKind::Reputation, account, Ulid::default())
}

/// Whether one-click unsubscription may be offered at this URL (RFC 8058 3.1).
fn is_https(url: &str) -> bool {
    url.get(..6).is_some_and(|scheme| scheme.eq_ignore_ascii_case("https:"))
}

/// Whether the message is now known as delivered and bounced, of which this is the later news.
fn completes_a_return(kind: EventType, transfer: Option<&TransferRow>) -> bool {
    matches!(kind, EventType::Delivered | EventType::Bounced) && transfer.is_some_and(|row| row.state.is_returned())
}

/// Where to count, and what is counted there already.
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
    // Where the rest is counted already, the hour is full, and nobody has to look how full.
    if let Some(counts) = counted(tables, &rest)? {
        return Ok((rest, counts));
    }
    let prefix = schema::outcomes_of_hour(account, hour);
    let rows = tables.sound_keys(Table::Outcomes, &prefix, &after_prefix(&prefix), Order::Ascending, ROWS_MAX)?;
    Ok((if rows.len() < ROWS_MAX { key } else { rest }, OutcomeCounts::default()))
}

/// Returns the counts of a row. A damaged one starts again: no outcome is left unrecorded because of its count.
fn counted(tables: &Tables<'_>, key: &[u8]) -> Result<Option<OutcomeCounts>, StoreError> {
    match tables.row(key) {
        Err(error) if error.is_of_row() => Ok(Some(OutcomeCounts::default())),
        counts => counts,
    }
}

/// Counts of one row, as a scan yields them.
pub struct HourlyOutcomes<'a> {
    /// The UTC hour in which the messages were accepted, counted from the epoch.
    pub hour: u32,
    /// Their stream.
    pub stream: Stream,
    /// Their sending domain; the zero one for what no further row was made for.
    pub domain: DomainId,
    /// Provider that was asked: a known one, [`OTHER`], or empty for none.
    pub provider: &'a str,
    /// The counts.
    pub counts: OutcomeCounts,
}

/// Shows the account's counts of the hours `from..to` to `each`, the oldest first.
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

/// Removes up to `limit` rows of the account that have been kept for long enough; tells how many.
pub(super) fn sweep(tables: &mut Tables<'_>, account: AccountId, limit: usize) -> Result<usize, StoreError> {
    let from = schema::outcomes_of_hour(account, 0);
    let to = schema::outcomes_of_hour(account, hour_of(tables.expiry() - KEPT));
    let keys = tables.sound_keys(Table::Outcomes, &from, &to, Order::Ascending, limit)?;
    keys.iter().for_each(|key| tables.remove(Table::Outcomes, key));
    Ok(keys.len())
}

#[cfg(test)]
mod tests;
