//! Webhook endpoints: registering one, and changing it or its secret.

use serde::{Deserialize, Serialize};

use super::event::ENDPOINTS_MAX;
use super::settle_delivery::unpark;
use super::{Op, alert};
use crate::base::id::{AccountId, EndpointId};
use crate::base::secret::SealedSecret;
use crate::domain::alert::Condition;
use crate::domain::event::EventType;
use crate::machine::endpoint::{Effect, Input};
use crate::store::error::OpError;
use crate::store::read::Read;
use crate::store::row::endpoint::EndpointRow;
use crate::store::schema;
use crate::store::tables::Tables;

/// Registers an endpoint.
#[derive(Debug, Serialize, Deserialize)]
pub struct CreateEndpoint {
    /// The account.
    pub account: AccountId,
    /// Identifier, reserved because the endpoint's secret is sealed for it.
    pub id: EndpointId,
    /// The endpoint.
    pub row: EndpointRow,
}

/// Reason why a change of an endpoint is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndpointRefusal {
    /// The account already has ten.
    TooMany,
    /// There is no such endpoint.
    NotFound,
}

impl Op for CreateEndpoint {
    type Reply = EndpointRow;
    type Refusal = EndpointRefusal;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<EndpointRow, OpError<EndpointRefusal>> {
        let there = tables.sound_rows::<EndpointRow>(self.account.as_bytes(), ENDPOINTS_MAX)?;
        if there.len() >= ENDPOINTS_MAX {
            return Err(OpError::Refused(EndpointRefusal::TooMany));
        }
        let now = tables.now();
        let row = EndpointRow { created_at: now, updated_at: now, ..self.row.clone() };
        tables.put(&schema::endpoint(self.account, self.id), &row);
        Ok(row)
    }
}

/// Changes an endpoint. Absent members stay unchanged.
#[derive(Debug, Serialize, Deserialize)]
pub struct UpdateEndpoint {
    /// The account.
    pub account: AccountId,
    /// The endpoint.
    pub endpoint: EndpointId,
    /// URL to which events are posted.
    pub url: Option<String>,
    /// Selected event types.
    pub events: Option<Option<Vec<EventType>>>,
    /// The account's description.
    pub description: Option<Option<String>>,
    /// Whether the endpoint may be attempted.
    pub enabled: Option<bool>,
}

impl Op for UpdateEndpoint {
    type Reply = EndpointRow;
    type Refusal = EndpointRefusal;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<EndpointRow, OpError<EndpointRefusal>> {
        let key = schema::endpoint(self.account, self.endpoint);
        let Some(mut row) = tables.row::<EndpointRow>(&key)? else {
            return Err(OpError::Refused(EndpointRefusal::NotFound));
        };
        row.updated_at = tables.now();
        if let Some(url) = &self.url {
            row.url.clone_from(url);
        }
        if let Some(events) = &self.events {
            row.events.clone_from(events);
        }
        if let Some(description) = &self.description {
            row.description.clone_from(description);
        }
        let mut release = false;
        if let Some(enabled) = self.enabled {
            let input = if enabled { Input::Enabled } else { Input::DisabledByHand };
            let next = row.state.step(input, tables.now());
            row.state = next.state;
            release = next.effects.contains(&Effect::Release);
            if release {
                row.failed.clear();
            }
        }
        tables.put(&key, &row);
        if row.state.is_enabled() {
            alert::gone(tables, self.account, Condition::WebhookDisabled, &self.endpoint.to_string())?;
        }
        if release {
            unpark(tables, self.account, self.endpoint)?;
        }
        Ok(row)
    }
}

/// Replaces an endpoint's secret; every later attempt is signed with the new one.
#[derive(Debug, Serialize, Deserialize)]
pub struct RotateSecret {
    /// The account.
    pub account: AccountId,
    /// The endpoint.
    pub endpoint: EndpointId,
    /// The new secret, sealed for this endpoint.
    pub secret: SealedSecret,
}

impl Op for RotateSecret {
    type Reply = EndpointRow;
    type Refusal = EndpointRefusal;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<EndpointRow, OpError<EndpointRefusal>> {
        let key = schema::endpoint(self.account, self.endpoint);
        let Some(row) = tables.row::<EndpointRow>(&key)? else {
            return Err(OpError::Refused(EndpointRefusal::NotFound));
        };
        let row = EndpointRow { secret: self.secret.clone(), updated_at: tables.now(), ..row };
        tables.put(&key, &row);
        Ok(row)
    }
}
