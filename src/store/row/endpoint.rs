//! A webhook endpoint (contract 5).

use serde::{Deserialize, Serialize};

use super::Row;
use crate::base::id::DeliveryId;
use crate::base::secret::Sealed;
use crate::base::time::Timestamp;
use crate::domain::event::EventType;
use crate::machine::endpoint;
use crate::store::schema::Table;

/// An endpoint; its key names account and endpoint.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EndpointRow {
    /// Where events are posted.
    pub url: String,
    /// Which events; none means all.
    pub events: Option<Vec<EventType>>,
    /// The account's own words.
    pub description: Option<String>,
    /// The signing secret.
    pub secret: Sealed,
    /// Whether it may be attempted, and how it has been answering.
    pub state: endpoint::State,
    /// The failures that its state counts, newest last: why the service disabled it, once it has.
    pub failed: Vec<FailedAttempt>,
    /// Last 2xx.
    pub last_success_at: Option<Timestamp>,
    /// Last failed attempt.
    pub last_failure_at: Option<Timestamp>,
    /// When it was registered.
    pub created_at: Timestamp,
    /// When its owner last changed it, or the service disabled it.
    pub updated_at: Timestamp,
}

/// A failed attempt: which of which delivery.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FailedAttempt {
    /// The delivery.
    pub delivery: DeliveryId,
    /// The attempt's number.
    pub number: u8,
}

impl Row for EndpointRow {
    const TABLE: Table = Table::Endpoints;
}

impl EndpointRow {
    /// Whether events of `kind` are sent to it.
    pub fn takes(&self, kind: EventType) -> bool {
        self.events.as_ref().is_none_or(|kinds| kinds.contains(&kind))
    }

    /// Returns the context that the secret is sealed for, so that one endpoint's can't be put in another's place.
    pub fn secret_context(id: crate::base::id::EndpointId) -> Vec<u8> {
        [b"webhook secret ".as_slice(), id.as_bytes()].concat()
    }
}
