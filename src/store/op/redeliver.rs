//! Deliveries that the account asks for (contract 5): a test, one event once more, or all events since a moment. Each
//! is a delivery of its own, with seven attempts of its own.

use serde::{Deserialize, Serialize};

use super::Op;
use super::event::owe;
use crate::base::id::{AccountId, DeliveryId, EndpointId, EventId, Ulid};
use crate::domain::event::TestRecord;
use crate::machine::delivery::{self, Stage};
use crate::store::error::{Stop, StoreError};
use crate::store::read::{Order, Read};
use crate::store::row::Row;
use crate::store::row::delivery::{DeliveryRow, Owed};
use crate::store::row::endpoint::EndpointRow;
use crate::store::row::event::EventLogRow;
use crate::store::schema::{self, Table};
use crate::store::tables::Tables;

/// How many rows one operation looks at, and therefore how many deliveries it makes at most.
const SLICE: usize = 256;

/// Why nothing is delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RedeliverRefusal {
    /// There is no such endpoint or delivery.
    NotFound,
    /// The delivery's endpoint was deleted.
    EndpointGone,
}

/// Owes an endpoint an event of type `test`, which stands in no log.
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

    fn apply(&self, tables: &mut Tables<'_>) -> Result<DeliveryId, Stop<RedeliverRefusal>> {
        let Some(endpoint) = tables.row::<EndpointRow>(&schema::endpoint(self.account, self.endpoint))? else {
            return Err(Stop::Refused(RedeliverRefusal::NotFound));
        };
        let event: EventId = tables.next_id();
        let body = TestRecord::new(event, tables.now()).to_json();
        let state = delivery::State::new(tables.now());
        let row = DeliveryRow { endpoint: self.endpoint, event, owed: Owed::Test { body }, state };
        Ok(owe(tables, self.account, &row, endpoint.state.is_enabled()))
    }
}

/// Owes an endpoint once more what it was owed by a delivery.
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

    fn apply(&self, tables: &mut Tables<'_>) -> Result<DeliveryId, Stop<RedeliverRefusal>> {
        let Some(row) = tables.row::<DeliveryRow>(&schema::delivery(self.account, self.delivery))? else {
            return Err(Stop::Refused(RedeliverRefusal::NotFound));
        };
        let Some(endpoint) = tables.row::<EndpointRow>(&schema::endpoint(self.account, row.endpoint))? else {
            return Err(Stop::Refused(RedeliverRefusal::EndpointGone));
        };
        let row = DeliveryRow { state: delivery::State::new(tables.now()), ..row };
        Ok(owe_again(tables, self.account, &row, &endpoint))
    }
}

/// Which events are replayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReplayOf {
    /// All that the endpoint takes.
    All,
    /// Those whose latest delivery to the endpoint failed.
    Failed,
}

/// Owes an endpoint a slice of past events once more.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Replay {
    /// The account.
    pub account: AccountId,
    /// The endpoint.
    pub endpoint: EndpointId,
    /// Which events.
    pub of: ReplayOf,
    /// No event before this one.
    pub since: Ulid,
    /// Where this slice begins; `since` at first.
    pub from: Ulid,
    /// Where the last slice ends: this row is not looked at. What the replay itself makes lies behind it.
    pub until: Ulid,
}

/// What a slice of a replay came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replayed {
    /// Deliveries made.
    pub created: u64,
    /// Where the next slice begins; none at the end.
    pub next: Option<Ulid>,
}

impl Op for Replay {
    type Reply = Replayed;
    type Refusal = RedeliverRefusal;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<Replayed, Stop<RedeliverRefusal>> {
        let Some(endpoint) = tables.row::<EndpointRow>(&schema::endpoint(self.account, self.endpoint))? else {
            return Err(Stop::Refused(RedeliverRefusal::NotFound));
        };
        let (table, prefix) = match self.of {
            ReplayOf::All => (Table::EventLog, self.account.as_bytes().to_vec()),
            // An event's deliveries come after it, so none of a later event is missed.
            ReplayOf::Failed => (Table::DeliveriesByEndpoint, schema::endpoint(self.account, self.endpoint).to_vec()),
        };
        let (from, to) = ([&prefix[..], &self.from.0].concat(), [&prefix[..], &self.until.0].concat());
        let keys = tables.keys(table, &from, &to, Order::Ascending, SLICE)?;
        let ids: Vec<_> = keys.iter().filter_map(|key| key.last_chunk().copied().map(Ulid)).collect();
        let mut created = 0;
        for id in &ids {
            let again = match self.of {
                ReplayOf::All => self.logged(tables, EventId(*id))?,
                ReplayOf::Failed => self.failed(tables, DeliveryId(*id))?,
            };
            let Some((event, owed)) = again.filter(|(_, owed)| owed.is_taken_by(&endpoint)) else { continue };
            let state = delivery::State::new(tables.now());
            owe_again(tables, self.account, &DeliveryRow { endpoint: self.endpoint, event, owed, state }, &endpoint);
            created += 1;
        }
        let next = ids.last().filter(|_| keys.len() == SLICE).map(|last| last.next());
        Ok(Replayed { created, next })
    }
}

impl Replay {
    fn logged(&self, tables: &Tables<'_>, event: EventId) -> Result<Option<(EventId, Owed)>, StoreError> {
        let row = tables.get(Table::EventLog, &schema::event(self.account, event))?;
        let row = row.map(|bytes| EventLogRow::decode(&bytes)).transpose()?;
        Ok(row.map(|EventLogRow { message, kind }| (event, Owed::Event { message, kind })))
    }

    /// The event of a delivery that failed and is the latest of its event to this endpoint.
    fn failed(&self, tables: &Tables<'_>, id: DeliveryId) -> Result<Option<(EventId, Owed)>, StoreError> {
        let Some(row) = tables.row::<DeliveryRow>(&schema::delivery(self.account, id))? else { return Ok(None) };
        if row.state.stage != Stage::Failed || row.event.0 < self.since {
            return Ok(None);
        }
        let latest = tables.get(Table::Redelivered, &schema::redelivered(self.account, self.endpoint, row.event))?;
        let is_latest = latest.is_none_or(|latest| latest.as_slice() == id.as_bytes());
        Ok(is_latest.then_some((row.event, row.owed)))
    }
}

/// Writes a new delivery of an event that the endpoint was owed before, and that it is the latest of them.
fn owe_again(tables: &mut Tables<'_>, account: AccountId, row: &DeliveryRow, endpoint: &EndpointRow) -> DeliveryId {
    let id = owe(tables, account, row, endpoint.state.is_enabled());
    let key = schema::redelivered(account, row.endpoint, row.event);
    tables.put_bytes(Table::Redelivered, &key, id.as_bytes().to_vec());
    id
}

#[cfg(test)]
mod tests;
