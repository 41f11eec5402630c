//! Deliveries that the account requests (contract 5): a test, one event again, or all events since a moment. Each is a
//! new delivery with seven attempts.

use serde::{Deserialize, Serialize};

use super::event::owe;
use super::{Op, outstanding};
use crate::base::id::{AccountId, DeliveryId, EndpointId, EventId, Ulid};
use crate::domain::event::TestRecord;
use crate::machine::delivery::{self, Stage};
use crate::store::error::{OpError, StoreError};
use crate::store::read::{Order, Read};
use crate::store::row::delivery::{DeliveryPayload, DeliveryRow};
use crate::store::row::endpoint::EndpointRow;
use crate::store::row::event::EventLogRow;
use crate::store::schema::{self, Table};
use crate::store::tables::Tables;

/// Maximum number of deliveries that one operation of a replay creates.
const SLICE: usize = 256;
/// Maximum number of rows that one search for events to replay reads.
const SEARCHED_MAX: usize = 4096;

/// Reason why nothing is delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RedeliverRefusal {
    /// There is no such endpoint or delivery.
    NotFound,
    /// The delivery's endpoint was deleted.
    EndpointGone,
    /// The endpoint has [`crate::domain::limits::OUTSTANDING_DELIVERIES_COUNT`] outstanding deliveries, or the
    /// account has as many requested
    /// deliveries stored.
    TooManyOutstanding {
        /// Number of deliveries that the replay created before it reached the limit.
        created: u64,
    },
    /// Another replay for the endpoint is running.
    ReplayRunning,
}

const TOO_MANY: OpError<RedeliverRefusal> = OpError::Refused(RedeliverRefusal::TooManyOutstanding { created: 0 });

/// Creates a delivery of an event of type `test`. The event is not in a log.
#[derive(Debug, Serialize, Deserialize)]
pub struct TestEndpoint {
    /// The account.
    pub account: AccountId,
    /// The endpoint.
    pub endpoint: EndpointId,
}

impl Op for TestEndpoint {
    type Reply = DeliveryId;
    type Refusal = RedeliverRefusal;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<DeliveryId, OpError<RedeliverRefusal>> {
        let Some(endpoint) = tables.row::<EndpointRow>(&schema::endpoint(self.account, self.endpoint))? else {
            return Err(OpError::Refused(RedeliverRefusal::NotFound));
        };
        if outstanding::remaining(tables, self.account, self.endpoint)? == 0 {
            return Err(TOO_MANY);
        }
        let event: EventId = tables.next_id();
        let body = TestRecord::new(event, tables.now()).to_json();
        let state = delivery::State::new(tables.now());
        let row = DeliveryRow { endpoint: self.endpoint, event, owed: DeliveryPayload::Test { body }, state };
        let id = owe(tables, self.account, &row, endpoint.state.is_enabled())?;
        outstanding::requested(tables, self.account, id, &row)?;
        Ok(id)
    }
}

/// Delivers the event of an earlier delivery again.
#[derive(Debug, Serialize, Deserialize)]
pub struct Redeliver {
    /// The account.
    pub account: AccountId,
    /// The delivery, ended or not.
    pub delivery: DeliveryId,
}

impl Op for Redeliver {
    type Reply = DeliveryId;
    type Refusal = RedeliverRefusal;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<DeliveryId, OpError<RedeliverRefusal>> {
        let Some(row) = tables.row::<DeliveryRow>(&schema::delivery(self.account, self.delivery))? else {
            return Err(OpError::Refused(RedeliverRefusal::NotFound));
        };
        let Some(endpoint) = tables.row::<EndpointRow>(&schema::endpoint(self.account, row.endpoint))? else {
            return Err(OpError::Refused(RedeliverRefusal::EndpointGone));
        };
        if outstanding::remaining(tables, self.account, row.endpoint)? == 0 {
            return Err(TOO_MANY);
        }
        let row = DeliveryRow { state: delivery::State::new(tables.now()), ..row };
        Ok(owe_again(tables, self.account, &row, &endpoint)?)
    }
}

/// Selection of the events to replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReplayOf {
    /// All types that the endpoint is subscribed to.
    All,
    /// Events whose latest delivery to the endpoint failed.
    Failed,
}

/// A replay of past events to an endpoint.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Replay {
    /// The account.
    pub account: AccountId,
    /// The endpoint.
    pub endpoint: EndpointId,
    /// Selection of the events.
    pub of: ReplayOf,
    /// Earlier events are skipped.
    pub since: Ulid,
    /// The search ends before this row. The rows of the replay's own deliveries come after it.
    pub until: Ulid,
}

/// Events to replay that a search found.
#[derive(Debug, Default)]
pub struct ReplayFound {
    /// Rows that name the events: in the event log, or failed deliveries.
    pub rows: Vec<Ulid>,
    /// Start of the next search; `None` at the end.
    pub next: Option<Ulid>,
}

impl Replay {
    /// Searches for events to replay, beginning at `from`. It reads a limited number of rows and changes nothing, so
    /// skipping outstanding events costs the writer nothing.
    ///
    /// # Errors
    /// The endpoint does not exist; store failures.
    pub fn search(&self, read: &impl Read, from: Ulid) -> Result<ReplayFound, OpError<RedeliverRefusal>> {
        let endpoint = self.endpoint(read)?;
        let (table, prefix) = match self.of {
            ReplayOf::All => (Table::EventLog, self.account.as_bytes().to_vec()),
            // An event's deliveries come after it, so no delivery of a later event is missed.
            ReplayOf::Failed => (Table::DeliveriesByEndpoint, schema::endpoint(self.account, self.endpoint).to_vec()),
        };
        let (from, to) = ([&prefix[..], &from.0].concat(), [&prefix[..], &self.until.0].concat());
        let keys = read.sound_keys(table, &from, &to, Order::Ascending, SEARCHED_MAX)?;
        let mut found = ReplayFound::default();
        for id in keys.iter().filter_map(|key| key.last_chunk().copied().map(Ulid)) {
            if self.again(read, &endpoint, id)?.is_some() {
                found.rows.push(id);
            }
            if found.rows.len() == SLICE {
                found.next = Some(id.next());
                return Ok(found);
            }
            found.next = Some(id.next());
        }
        if keys.len() < SEARCHED_MAX {
            found.next = None;
        }
        Ok(found)
    }

    fn endpoint(&self, read: &impl Read) -> Result<EndpointRow, OpError<RedeliverRefusal>> {
        let row = read.row::<EndpointRow>(&schema::endpoint(self.account, self.endpoint))?;
        row.ok_or(OpError::Refused(RedeliverRefusal::NotFound))
    }

    /// Returns the event that a row names and its payload, if the replay includes it.
    fn again(
        &self,
        read: &impl Read,
        endpoint: &EndpointRow,
        row: Ulid,
    ) -> Result<Option<(EventId, DeliveryPayload)>, StoreError> {
        let again = match self.of {
            ReplayOf::All => self.logged(read, EventId(row))?,
            ReplayOf::Failed => self.failed(read, DeliveryId(row))?,
        };
        let Some((event, owed)) = again.filter(|(_, owed)| owed.is_taken_by(endpoint)) else { return Ok(None) };
        let is_owed = outstanding::is_owed(read, self.account, self.endpoint, event)?;
        Ok((!is_owed).then_some((event, owed)))
    }

    fn logged(&self, read: &impl Read, event: EventId) -> Result<Option<(EventId, DeliveryPayload)>, StoreError> {
        let row = read.sound_row::<EventLogRow>(&schema::event(self.account, event))?;
        Ok(row.map(|EventLogRow { message, kind }| (event, DeliveryPayload::Event { message, kind })))
    }

    /// Returns the event of a failed delivery that is the latest of its event to this endpoint.
    fn failed(&self, read: &impl Read, id: DeliveryId) -> Result<Option<(EventId, DeliveryPayload)>, StoreError> {
        let Some(row) = read.sound_row::<DeliveryRow>(&schema::delivery(self.account, id))? else { return Ok(None) };
        if row.state.stage != Stage::Failed || row.event.0 < self.since {
            return Ok(None);
        }
        let latest = outstanding::latest(read, self.account, self.endpoint, row.event)?;
        let is_latest = latest.is_none_or(|latest| latest == id);
        Ok(is_latest.then_some((row.event, row.owed)))
    }
}

/// Delivers a slice of past events again. The results of the search are checked again, since they may have changed.
#[derive(Debug, Serialize, Deserialize)]
pub struct ReplaySlice {
    /// The replay.
    pub replay: Replay,
    /// The rows that a search found.
    pub rows: Vec<Ulid>,
}

/// Result of a slice of a replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replayed {
    /// Number of created deliveries.
    pub created: u64,
    /// Whether the slice ended early at [`crate::domain::limits::OUTSTANDING_DELIVERIES_COUNT`].
    pub is_full: bool,
}

impl Op for ReplaySlice {
    type Reply = Replayed;
    type Refusal = RedeliverRefusal;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<Replayed, OpError<RedeliverRefusal>> {
        let Replay { account, endpoint: id, .. } = self.replay;
        let endpoint = self.replay.endpoint(tables)?;
        let room = outstanding::remaining(tables, account, id)?;
        let mut created = 0;
        for row in &self.rows {
            let Some((event, owed)) = self.replay.again(tables, &endpoint, *row)? else { continue };
            if created == room {
                return Ok(Replayed { created, is_full: true });
            }
            let state = delivery::State::new(tables.now());
            owe_again(tables, account, &DeliveryRow { endpoint: id, event, owed, state }, &endpoint)?;
            created += 1;
        }
        Ok(Replayed { created, is_full: false })
    }
}

/// Writes a new delivery of an event that the endpoint already had a delivery of, as the latest of the event.
fn owe_again(
    tables: &mut Tables<'_>,
    account: AccountId,
    row: &DeliveryRow,
    endpoint: &EndpointRow,
) -> Result<DeliveryId, StoreError> {
    let id = owe(tables, account, row, endpoint.state.is_enabled())?;
    outstanding::redelivered(tables, account, id, row)?;
    outstanding::requested(tables, account, id, row)?;
    Ok(id)
}

#[cfg(test)]
mod tests;
