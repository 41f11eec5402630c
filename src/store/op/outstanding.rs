//! Outstanding webhook deliveries: the pending and held ones of an endpoint. They are counted when they begin and end,
//! and found by their event. A replay is limited by the count and skips events with an outstanding delivery.
//!
//! The first delivery of an event is found by its identifier, which closely follows that of the event. Later deliveries
//! of the event are counted in its row of [`Table::Redelivered`], beside the identifier of the latest.
//!
//! Tests and later deliveries also count for the account as long as their rows are stored, ended or not. Otherwise
//! replays to an endpoint that answers immediately, or that is deleted and created again, would fill the disk.

use super::event::ENDPOINTS_MAX;
use crate::base::id::{AccountId, DeliveryId, EndpointId, EventId, Ulid};
use crate::base::time::Timestamp;
use crate::domain::limits::OUTSTANDING_DELIVERIES_COUNT;
use crate::store::error::StoreError;
use crate::store::read::{Order, Read, sound};
use crate::store::row::delivery::{DeliveryPayload, DeliveryRow};
use crate::store::row::totals::OutstandingRow;
use crate::store::schema::{self, Table, meta};
use crate::store::tables::Tables;

/// The latest delivery of an event that an endpoint got more than once.
struct Redelivered {
    latest: DeliveryId,
    /// Number of outstanding deliveries of the event, without the first. Earlier versions did not count them.
    outstanding: Option<u32>,
}

impl Redelivered {
    const COUNTED_LENGTH: usize = 20;

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (latest, count) = bytes.split_first_chunk::<16>()?;
        let outstanding = match count {
            [] => None,
            count => Some(u32::from_be_bytes(count.try_into().ok()?)),
        };
        Some(Self { latest: DeliveryId(Ulid(*latest)), outstanding })
    }

    fn encode(latest: DeliveryId, outstanding: u32) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(Self::COUNTED_LENGTH);
        bytes.extend_from_slice(latest.as_bytes());
        bytes.extend_from_slice(&outstanding.to_be_bytes());
        bytes
    }

    fn read(read: &impl Read, key: &[u8]) -> Result<Option<Self>, StoreError> {
        let Some(bytes) = read.get(Table::Redelivered, key)? else { return Ok(None) };
        let damaged = || StoreError::Row { table: Table::Redelivered, fault: "its length is wrong".to_owned() };
        Self::decode(&bytes).map(Some).ok_or_else(damaged)
    }

    /// Returns the number of the event's outstanding deliveries, counted or found.
    fn outstanding(&self, read: &impl Read, account: AccountId, event: EventId) -> Result<u32, StoreError> {
        match self.outstanding {
            Some(count) => Ok(count),
            None if is_near(event, self.latest) => Ok(0),
            None => Ok(u32::from(is_outstanding(read, account, event, self.latest)?)),
        }
    }
}

/// Returns whether the bytes are a value of [`Table::Redelivered`].
pub(in crate::store) fn is_redelivered(bytes: &[u8]) -> bool {
    Redelivered::decode(bytes).is_some()
}

/// Returns the latest delivery of an event to an endpoint, if there were several.
///
/// # Errors
/// Store errors.
pub fn latest(
    read: &impl Read,
    account: AccountId,
    endpoint: EndpointId,
    event: EventId,
) -> Result<Option<DeliveryId>, StoreError> {
    let found = Redelivered::read(read, &schema::redelivered(account, endpoint, event))?;
    Ok(found.map(|redelivered| redelivered.latest))
}

/// Returns the number of outstanding deliveries of an endpoint.
///
/// # Errors
/// Store errors.
pub fn count(read: &impl Read, account: AccountId, endpoint: EndpointId) -> Result<u64, StoreError> {
    let row = read.row::<OutstandingRow>(&schema::endpoint(account, endpoint))?;
    Ok(row.unwrap_or_default().deliveries)
}

/// Returns the number of deliveries that may still be requested for an endpoint. The limit applies to its outstanding
/// ones, and to the stored requested ones of the whole account.
///
/// # Errors
/// Store errors.
pub(super) fn remaining(read: &impl Read, account: AccountId, endpoint: EndpointId) -> Result<u64, StoreError> {
    let stored = read.row::<OutstandingRow>(account.as_bytes())?.unwrap_or_default().deliveries;
    let most = count(read, account, endpoint)?.max(stored);
    Ok(OUTSTANDING_DELIVERIES_COUNT.saturating_sub(most))
}

/// Counts a new requested delivery.
pub(super) fn requested(
    tables: &mut Tables<'_>,
    account: AccountId,
    id: DeliveryId,
    row: &DeliveryRow,
) -> Result<(), StoreError> {
    count_requested(tables, account, (id, row), |deliveries| deliveries.saturating_add(1))
}

/// Counts a delivery whose row was removed. Rows of earlier versions were not counted.
pub(super) fn removed(
    tables: &mut Tables<'_>,
    account: AccountId,
    id: DeliveryId,
    row: &DeliveryRow,
) -> Result<(), StoreError> {
    count_requested(tables, account, (id, row), |deliveries| deliveries.saturating_sub(1))
}

/// Changes the account's number of stored requested deliveries, if this is one.
fn count_requested(
    tables: &mut Tables<'_>,
    account: AccountId,
    (id, row): (DeliveryId, &DeliveryRow),
    counted: impl FnOnce(u64) -> u64,
) -> Result<(), StoreError> {
    if is_requested(row, id) { change(tables, account.as_bytes(), counted) } else { Ok(()) }
}

/// Returns whether a delivery is a test or a later delivery of its event.
pub(in crate::store) fn is_requested(row: &DeliveryRow, id: DeliveryId) -> bool {
    matches!(row.owed, DeliveryPayload::Test { .. }) || !is_near(row.event, id)
}

/// Returns whether an event has an outstanding delivery at an endpoint. Reads a bounded number of rows.
///
/// # Errors
/// Store errors.
pub fn is_owed(read: &impl Read, account: AccountId, endpoint: EndpointId, event: EventId) -> Result<bool, StoreError> {
    let of = |id| schema::delivery_of_endpoint(account, endpoint, DeliveryId(id));
    let (from, to) = (of(event.0.next()), of(end_of_near(event)));
    for key in read.keys(Table::DeliveriesByEndpoint, &from, &to, Order::Ascending, ENDPOINTS_MAX)? {
        let Some(id) = key.last_chunk::<16>() else { continue };
        if is_outstanding(read, account, event, DeliveryId(Ulid(*id)))? {
            return Ok(true);
        }
    }
    let Some(redelivered) = Redelivered::read(read, &schema::redelivered(account, endpoint, event))? else {
        return Ok(false);
    };
    Ok(redelivered.outstanding(read, account, event)? > 0)
}

/// Counts a new delivery.
pub(super) fn began(tables: &mut Tables<'_>, account: AccountId, endpoint: EndpointId) -> Result<(), StoreError> {
    change(tables, &schema::endpoint(account, endpoint), |deliveries| deliveries.saturating_add(1))
}

/// Counts a delivery that has ended.
pub(super) fn ended(
    tables: &mut Tables<'_>,
    account: AccountId,
    id: DeliveryId,
    row: &DeliveryRow,
) -> Result<(), StoreError> {
    change(tables, &schema::endpoint(account, row.endpoint), |deliveries| deliveries.saturating_sub(1))?;
    if is_near(row.event, id) {
        return Ok(());
    }
    let key = schema::redelivered(account, row.endpoint, row.event);
    // Record the attempt even if this count is wrong.
    if let Some(Some(Redelivered { latest, outstanding: Some(count) })) = sound(Redelivered::read(tables, &key))? {
        tables.put_bytes(Table::Redelivered, &key, Redelivered::encode(latest, count.saturating_sub(1)));
    }
    Ok(())
}

/// Makes `id` the latest delivery of the event to the endpoint.
pub(super) fn redelivered(
    tables: &mut Tables<'_>,
    account: AccountId,
    id: DeliveryId,
    row: &DeliveryRow,
) -> Result<(), StoreError> {
    let key = schema::redelivered(account, row.endpoint, row.event);
    let before = match Redelivered::read(tables, &key)? {
        Some(redelivered) => redelivered.outstanding(tables, account, row.event)?,
        None => 0,
    };
    let count = before.saturating_add(u32::from(!is_near(row.event, id)));
    tables.put_bytes(Table::Redelivered, &key, Redelivered::encode(id, count));
    Ok(())
}

fn change(tables: &mut Tables<'_>, key: &[u8], change: impl FnOnce(u64) -> u64) -> Result<(), StoreError> {
    let found = match tables.row::<OutstandingRow>(key) {
        // Events are delivered and settled even if this count is damaged. A replay depends on it, and fails until the
        // next start has counted again.
        Err(error) if error.is_of_row() => {
            tables.remove(Table::Meta, meta::TOTALS);
            return Ok(());
        }
        found => found?.unwrap_or_default(),
    };
    match change(found.deliveries) {
        0 => tables.remove(Table::Outstanding, key),
        deliveries => tables.put(key, &OutstandingRow { deliveries }),
    }
    Ok(())
}

/// Returns whether a delivery is outstanding and belongs to this event.
fn is_outstanding(read: &impl Read, account: AccountId, event: EventId, id: DeliveryId) -> Result<bool, StoreError> {
    let row = read.row::<DeliveryRow>(&schema::delivery(account, id))?;
    Ok(row.is_some_and(|row| row.event == event && row.state.due(Timestamp::ZERO).is_some()))
}

/// Returns whether a delivery's identifier is among those that directly follow its event's. The first delivery to each
/// endpoint has such an identifier, because one operation writes the event and its deliveries.
fn is_near(event: EventId, id: DeliveryId) -> bool {
    event.0 < id.0 && id.0 < end_of_near(event)
}

fn end_of_near(event: EventId) -> Ulid {
    let near = u128::try_from(ENDPOINTS_MAX).unwrap_or(u128::MAX);
    Ulid(u128::from_be_bytes(event.0.0).saturating_add(near + 1).to_be_bytes())
}
