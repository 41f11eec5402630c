//! A webhook endpoint (contract 5).

use serde::{Deserialize, Serialize};

use super::Row;
use crate::base::id::DeliveryId;
use crate::base::secret::SealedSecret;
use crate::base::time::Timestamp;
use crate::domain::event::EventType;
use crate::machine::endpoint;
use crate::store::schema::Table;

/// An endpoint. Row key: account and endpoint.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EndpointRow {
    /// URL to which events are posted.
    pub url: String,
    /// Selected event types; `None` means all.
    pub events: Option<Vec<EventType>>,
    /// The account's description.
    pub description: Option<String>,
    /// The signing secret.
    pub secret: SealedSecret,
    /// Whether the endpoint may be attempted, and its recent results.
    pub state: endpoint::State,
    /// The failures counted by its state, newest last. Once the service has disabled the endpoint, they are the reason.
    pub failed: Vec<FailedAttempt>,
    /// Time of the last 2xx.
    pub last_success_at: Option<Timestamp>,
    /// Time of the last failed attempt.
    pub last_failure_at: Option<Timestamp>,
    /// Time of registration.
    pub created_at: Timestamp,
    /// Time of the owner's last change, or of the disabling by the service.
    pub updated_at: Timestamp,
}

/// Identifies a failed attempt.
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
    /// Returns whether events of `kind` are sent to the endpoint.
    pub fn takes(&self, kind: EventType) -> bool {
        self.events.as_ref().is_none_or(|kinds| kinds.contains(&kind))
    }

    /// Returns the context for which the secret is sealed, so that it can't be used for another endpoint.
    pub fn secret_context(id: crate::base::id::EndpointId) -> Vec<u8> {
        [b"webhook secret ".as_slice(), id.as_bytes()].concat()
    }
}
