//! Settling a webhook attempt. The delivery and its endpoint step together, the attempt is logged and the next timer
//! armed, in one transaction.

use serde::{Deserialize, Serialize};

use super::suspension::accepts_deliveries;
use super::{Infallible, Op, alert, audit, outstanding};
use crate::base::id::{AccountId, AttemptId, DeliveryId, EndpointId};
use crate::base::time::Timestamp;
use crate::domain::alert::{Condition, Severity, Sighting, Subject, SubjectKind};
use crate::domain::audit::{Action, Actor, Change};
use crate::machine::{delivery, endpoint};
use crate::store::error::{OpError, StoreError};
use crate::store::read::Read;
use crate::store::row::delivery::{AttemptRow, DeliveryPayload, DeliveryRow};
use crate::store::row::endpoint::{EndpointRow, FailedAttempt};
use crate::store::schema::{self, Table};
use crate::store::tables::Tables;
use crate::store::timer::{Timer, TimerKind};

/// Facts of one attempt.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Attempt {
    /// Beginning of the attempt.
    pub at: Timestamp,
    /// End of the attempt, from which the delay before a retry counts.
    pub ended_at: Timestamp,
    /// HTTP status, if there was an answer.
    pub status: Option<u16>,
    /// Name of the failure; `None` for a 2xx.
    pub error: Option<String>,
    /// Duration in milliseconds.
    pub duration_ms: u64,
    /// Address of the receiver that answered.
    pub peer: Option<String>,
    /// The first 4 KiB of the answer's body.
    pub response_body: Option<String>,
}

/// Result of serving a delivery's timer.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum DeliveryEnd {
    /// One request was made.
    Attempted(Attempt),
    /// The endpoint has too many due deliveries. This delivery is parked until their number falls.
    Overflowed(UnparkTimer),
    /// The endpoint is not enabled, or its account is suspended. The delivery is parked until that ends.
    Parked,
    /// The endpoint was deleted, or the delivery is older than 30 days.
    Abandoned,
}

/// Whether a timer already exists for deliveries that were parked because too many were due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum UnparkTimer {
    /// A timer exists.
    Armed,
    /// No timer exists, so arm one.
    Arm,
}

/// Records the result of a delivery's timer.
#[derive(Debug, Serialize, Deserialize)]
pub struct SettleDelivery {
    /// The account.
    pub account: AccountId,
    /// The delivery.
    pub delivery: DeliveryId,
    /// The timer that was served.
    pub due: Timestamp,
    /// Result of the attempt.
    pub end: DeliveryEnd,
}

/// Change of the endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndpointChange {
    /// No change to report.
    None,
    /// This was the tenth failure in a row.
    Disabled(EndpointId),
}

impl Op for SettleDelivery {
    type Reply = EndpointChange;
    type Refusal = Infallible;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<EndpointChange, OpError<Infallible>> {
        tables.disarm(self.timer(self.due));
        let key = schema::delivery(self.account, self.delivery);
        let Some(mut row) = tables.row::<DeliveryRow>(&key)? else { return Ok(EndpointChange::None) };
        let Some(due) = row.state.due(Timestamp::ZERO) else { return Ok(EndpointChange::None) };
        if due != self.due {
            // A delivery has one timer, which this operation replaces.
            tables.disarm(self.timer(due));
        }
        let input = match &self.end {
            DeliveryEnd::Parked => return self.park(tables, &row, due),
            DeliveryEnd::Overflowed(unparking) => return Ok(self.overflow(tables, &row, due, *unparking)),
            DeliveryEnd::Abandoned => delivery::Input::EndpointDeleted,
            DeliveryEnd::Attempted(Attempt { error: None, .. }) => delivery::Input::Acknowledged,
            DeliveryEnd::Attempted(Attempt { ended_at, .. }) => delivery::Input::AttemptFailed { ended_at: *ended_at },
        };
        let next = row.state.step(input, tables.now());
        row.state = next.state;
        tables.put(&key, &row);
        if row.state.due(Timestamp::ZERO).is_none() {
            outstanding::ended(tables, self.account, self.delivery, &row)?;
        }
        for effect in next.effects {
            match effect {
                delivery::Effect::Schedule(due) => tables.arm(self.timer(due)),
                delivery::Effect::StartAttempt(_) | delivery::Effect::Settle => {}
            }
        }
        match &self.end {
            DeliveryEnd::Attempted(attempt) => Ok(self.log(tables, &row, attempt)?),
            DeliveryEnd::Overflowed(_) | DeliveryEnd::Parked | DeliveryEnd::Abandoned => Ok(EndpointChange::None),
        }
    }
}

impl SettleDelivery {
    fn timer(&self, due: Timestamp) -> Timer {
        Timer::new(due, TimerKind::Delivery, self.account, self.delivery.0)
    }

    /// Parks the delivery. It stays due if the endpoint was enabled in the meantime.
    fn park(
        &self,
        tables: &mut Tables<'_>,
        row: &DeliveryRow,
        due: Timestamp,
    ) -> Result<EndpointChange, OpError<Infallible>> {
        let endpoint = tables.row::<EndpointRow>(&schema::endpoint(self.account, row.endpoint))?;
        if accepts_deliveries(tables, self.account, endpoint.as_ref())? {
            tables.arm(self.timer(due));
        } else {
            let key = schema::parked(self.account, row.endpoint, due, self.delivery);
            tables.put_bytes(Table::Parked, &key, Vec::new());
        }
        Ok(EndpointChange::None)
    }

    /// Parks the delivery because too many are due.
    fn overflow(
        &self,
        tables: &mut Tables<'_>,
        row: &DeliveryRow,
        due: Timestamp,
        unparking: UnparkTimer,
    ) -> EndpointChange {
        let key = schema::parked(self.account, row.endpoint, due, self.delivery);
        tables.put_bytes(Table::Parked, &key, Vec::new());
        if unparking == UnparkTimer::Arm {
            tables.arm(Timer::new(tables.now(), TimerKind::Unpark, self.account, row.endpoint.0));
        }
        EndpointChange::None
    }

    fn log(&self, tables: &mut Tables<'_>, row: &DeliveryRow, attempt: &Attempt) -> Result<EndpointChange, StoreError> {
        let logged = AttemptRow {
            id: tables.next_id::<AttemptId>(),
            at: attempt.at,
            status: attempt.status,
            error: attempt.error.clone(),
            duration_ms: attempt.duration_ms,
            peer: attempt.peer.clone(),
            response_body: attempt.response_body.clone(),
        };
        tables.put(&schema::attempt(self.account, self.delivery, row.state.attempts), &logged);
        match row.owed {
            DeliveryPayload::Event { .. } => self.step_endpoint(tables, row, attempt),
            // A test is not counted (contract 5).
            DeliveryPayload::Test { .. } => Ok(EndpointChange::None),
        }
    }

    fn step_endpoint(
        &self,
        tables: &mut Tables<'_>,
        delivery: &DeliveryRow,
        attempt: &Attempt,
    ) -> Result<EndpointChange, StoreError> {
        let id = delivery.endpoint;
        let key = schema::endpoint(self.account, id);
        let Some(mut row) = tables.row::<EndpointRow>(&key)? else { return Ok(EndpointChange::None) };
        // A delivery that was in flight while the endpoint was disabled must not disable it.
        let counts = row.state.is_enabled();
        // Receivers refuse signatures with a wrong time, so a failure while the clock is doubtful does not count
        // against the endpoint.
        if attempt.error.is_some() && tables.time().is_doubtful() {
            row.last_failure_at = Some(attempt.ended_at);
            tables.put(&key, &row);
            return Ok(EndpointChange::None);
        }
        let input = if attempt.error.is_none() {
            row.last_success_at = Some(attempt.ended_at);
            if counts {
                row.failed.clear();
            }
            endpoint::Input::AttemptSucceeded
        } else {
            row.last_failure_at = Some(attempt.ended_at);
            if counts {
                row.failed.push(FailedAttempt { delivery: self.delivery, number: delivery.state.attempts });
            }
            endpoint::Input::AttemptFailed
        };
        let next = row.state.step(input, tables.now());
        row.state = next.state;
        let disabled = next.effects.contains(&endpoint::Effect::Hold);
        if disabled {
            row.updated_at = tables.now();
            let change = Change::new(Action::WebhookDisabled, id, audit::host(&row));
            audit::write(tables, self.account, &Actor::Service, change)?;
            alert::found(tables, self.account, &disabled_alert(id, &row))?;
        }
        tables.put(&key, &row);
        Ok(if disabled { EndpointChange::Disabled(id) } else { EndpointChange::None })
    }
}

/// Returns the alert of an endpoint that the service disabled.
fn disabled_alert(id: EndpointId, row: &EndpointRow) -> Sighting {
    let host = audit::host(row);
    let summary = format!("The webhook at {host} was disabled after repeated failures");
    let seen =
        format!("{} attempts in a row failed. Deliveries are held until it is enabled again.", endpoint::FAILURES_MAX);
    let subject = Subject::new(SubjectKind::Webhook, id, host);
    Sighting::new(Condition::WebhookDisabled, Severity::Critical, summary, seen).of(subject)
}

/// Makes a slice of parked deliveries due, oldest first; a timer makes the rest due.
#[derive(Debug, Serialize, Deserialize)]
pub struct Unpark {
    /// The account.
    pub account: AccountId,
    /// The endpoint that was enabled.
    pub endpoint: EndpointId,
    /// The timer that was served.
    pub due: Timestamp,
}

/// Number of parked deliveries that one operation makes due.
const UNPARK_SLICE: usize = 256;

impl Op for Unpark {
    type Reply = ();
    type Refusal = Infallible;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<(), OpError<Infallible>> {
        tables.disarm(Timer::new(self.due, TimerKind::Unpark, self.account, self.endpoint.0));
        let endpoint = tables.row::<EndpointRow>(&schema::endpoint(self.account, self.endpoint))?;
        if accepts_deliveries(tables, self.account, endpoint.as_ref())? {
            unpark(tables, self.account, self.endpoint)?;
        }
        Ok(())
    }
}

/// Makes the first slice of an endpoint's parked deliveries due, and arms a timer for the rest.
///
/// # Errors
/// Store errors.
pub fn unpark(tables: &mut Tables<'_>, account: AccountId, endpoint: EndpointId) -> Result<(), StoreError> {
    let prefix = schema::owned(account, endpoint.as_bytes());
    let end = crate::store::read::after_prefix(&prefix);
    let now = tables.now();
    let order = crate::store::read::Order::Ascending;
    let keys = tables.sound_keys(Table::Parked, &prefix, &end, order, UNPARK_SLICE)?;
    for key in &keys {
        tables.remove(Table::Parked, key);
        let Some((due, delivery)) = schema::parked_parts(key) else { continue };
        let row_key = schema::delivery(account, delivery);
        let Some(mut row) = tables.sound_row::<DeliveryRow>(&row_key)? else { continue };
        // Due now or at its scheduled time, whichever is later (contract 5).
        let due = due.max(now);
        row.state.stage = delivery::Stage::Pending { due };
        tables.put(&row_key, &row);
        tables.arm(Timer::new(due, TimerKind::Delivery, account, delivery.0));
    }
    if keys.len() == UNPARK_SLICE {
        tables.arm(Timer::new(now, TimerKind::Unpark, account, endpoint.0));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
