//! Reading webhook deliveries, their attempts, and the failures that count against an endpoint (contract 5).

use super::Engine;
use super::listing::{self, Page, PageRequest, until};
use crate::base::id::{AccountId, DeliveryId, EndpointId, EventId};
use crate::base::time::Timestamp;
use crate::machine::delivery::{ATTEMPTS_MAX, Stage, Status};
use crate::store::error::StoreError;
use crate::store::op::event::ENDPOINTS_MAX;
use crate::store::op::outstanding;
use crate::store::op::suspension::accepts_deliveries;
use crate::store::read::{Order, Read, after_prefix, sound};
use crate::store::row::delivery::{AttemptRow, DeliveryRow};
use crate::store::row::endpoint::{EndpointRow, FailedAttempt};
use crate::store::schema::{self, Table};

/// Maximum number of deliveries that one page reads. Then the page ends with a position to continue from, even if it is
/// not full.
const LOOKED_AT_MAX: usize = 4_000;

/// A delivery's row, with the other data of its API record.
#[derive(Clone, Debug)]
pub struct DeliveryRecord {
    /// Identifier.
    pub id: DeliveryId,
    /// Row.
    pub row: DeliveryRow,
    /// Status of its endpoint.
    pub endpoint: EndpointStanding,
}

/// Whether attempts at an endpoint may start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EndpointStanding {
    /// Attempts may start.
    Enabled,
    /// The endpoint is disabled, or its account is suspended. Its deliveries are held.
    Disabled,
    /// Deleted. Its waiting deliveries have ended.
    Gone,
}

impl EndpointStanding {
    fn of(read: &impl Read, account: AccountId, row: &EndpointRow) -> Result<Self, StoreError> {
        Ok(if accepts_deliveries(read, account, Some(row))? { Self::Enabled } else { Self::Disabled })
    }
}

/// The attempts of a delivery, each with its number.
pub type NumberedAttempts = Vec<(u8, AttemptRow)>;

impl DeliveryRecord {
    /// Returns the status as shown on every interface.
    pub const fn status(&self) -> Status {
        match self.endpoint {
            EndpointStanding::Enabled => self.row.state.status(true),
            EndpointStanding::Disabled => self.row.state.status(false),
            // Outstanding deliveries end when their timers are due.
            EndpointStanding::Gone => match self.row.state.stage {
                Stage::Delivered => Status::Delivered,
                Stage::Pending { .. } | Stage::Failed => Status::Failed,
            },
        }
    }

    /// Returns the time of the next attempt. A held delivery waits for its endpoint, so it has no such time.
    pub const fn next_attempt_at(&self) -> Option<Timestamp> {
        match (self.status(), self.row.state.stage) {
            (Status::Pending, Stage::Pending { due }) => Some(due),
            (Status::Pending | Status::Held | Status::Delivered | Status::Failed, _) => None,
        }
    }
}

impl Engine {
    /// Returns a delivery of the account, with its attempts by number.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn delivery(
        &self,
        account: AccountId,
        id: DeliveryId,
    ) -> Result<Option<(DeliveryRecord, NumberedAttempts)>, StoreError> {
        let snapshot = self.store.snapshot()?;
        let key = schema::delivery(account, id);
        let Some(row) = snapshot.row::<DeliveryRow>(&key)? else { return Ok(None) };
        let attempts = attempts_of(&snapshot, account, id)?;
        let endpoint = snapshot.row::<EndpointRow>(&schema::endpoint(account, row.endpoint))?;
        let endpoint = match &endpoint {
            Some(endpoint) => EndpointStanding::of(&snapshot, account, endpoint)?,
            None => EndpointStanding::Gone,
        };
        Ok(Some((DeliveryRecord { id, row, endpoint }, attempts)))
    }

    /// Returns the deliveries of an event with their last attempts. For each endpoint this is the first delivery, or
    /// the latest redelivery.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn deliveries_of(
        &self,
        account: AccountId,
        event: EventId,
    ) -> Result<Vec<(DeliveryRecord, Option<AttemptRow>)>, StoreError> {
        let snapshot = self.store.snapshot()?;
        // An event's deliveries are written directly after it, so their identifiers follow the event's identifier.
        let (from, to) = (schema::owned(account, &event.0.next().0), after_prefix(account.as_bytes()));
        let keys = snapshot.sound_keys(Table::Deliveries, &from, &to, Order::Ascending, ENDPOINTS_MAX)?;
        let mut found = Vec::new();
        for first in keys.iter().filter_map(|key| listing::last_id(key)).map(DeliveryId) {
            let Some(row) = snapshot.sound_row::<DeliveryRow>(&schema::delivery(account, first))? else { continue };
            if row.event != event {
                break;
            }
            let latest =
                sound(outstanding::latest(&snapshot, account, row.endpoint, event))?.flatten().unwrap_or(first);
            if let Some((record, mut attempts)) = self.delivery(account, latest)? {
                found.push((record, attempts.pop().map(|(_, row)| row)));
            }
        }
        Ok(found)
    }

    /// Returns a page of an endpoint's deliveries, optionally of one status. `None` if there is no such endpoint. If
    /// few deliveries have the status, a page may be short and still have a next one.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn deliveries(
        &self,
        account: AccountId,
        endpoint: EndpointId,
        status: Option<Status>,
        page: PageRequest,
    ) -> Result<Option<Page<DeliveryRecord>>, StoreError> {
        let snapshot = self.store.snapshot()?;
        let prefix = schema::endpoint(account, endpoint);
        let Some(of) = snapshot.row::<EndpointRow>(&prefix)? else { return Ok(None) };
        let endpoint = EndpointStanding::of(&snapshot, account, &of)?;
        let (from, to) = listing::range(&prefix, page.before);
        let (mut rows, mut next, mut last, mut looked_at) = (Vec::new(), None, None, 0);
        snapshot.scan_sound(Table::DeliveriesByEndpoint, &from, &to, Order::Descending, &mut |key, _| {
            if rows.len() == page.limit || looked_at == LOOKED_AT_MAX {
                next = last;
                return Ok(until(true));
            }
            looked_at += 1;
            let Some(id) = listing::last_id(key) else { return Ok(until(false)) };
            last = Some(id);
            if let Some(row) = snapshot.sound_row::<DeliveryRow>(&schema::delivery(account, DeliveryId(id)))? {
                let record = DeliveryRecord { id: DeliveryId(id), row, endpoint };
                rows.extend(Some(record).filter(|record| status.is_none_or(|status| record.status() == status)));
            }
            Ok(until(false))
        })?;
        Ok(Some(Page { rows, next }))
    }

    /// Returns the failures that count against an endpoint, newest first, each with its delivery. Expired deliveries
    /// are skipped.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn failures(
        &self,
        account: AccountId,
        endpoint: &EndpointRow,
    ) -> Result<Vec<(DeliveryId, AttemptRow)>, StoreError> {
        let snapshot = self.store.snapshot()?;
        let mut failures = Vec::with_capacity(endpoint.failed.len());
        for FailedAttempt { delivery, number } in endpoint.failed.iter().rev() {
            let row = snapshot.row::<AttemptRow>(&schema::attempt(account, *delivery, *number))?;
            failures.extend(row.map(|row| (*delivery, row)));
        }
        Ok(failures)
    }
}

fn attempts_of(read: &impl Read, account: AccountId, id: DeliveryId) -> Result<NumberedAttempts, StoreError> {
    let attempts = read.sound_rows::<AttemptRow>(&schema::delivery(account, id), usize::from(ATTEMPTS_MAX))?;
    Ok(attempts.into_iter().filter_map(|(key, row)| Some((*key.last()?, row))).collect())
}
