//! Views of a webhook endpoint, and its deliveries with their attempts (contract 5).

use serde::Serialize;

use crate::base::id::{self, AttemptId, DeliveryId, EndpointId, EventId, MessageId};
use crate::base::time::{Timestamp, iso};
use crate::domain::event::EventType;
use crate::engine::deliveries::DeliveryRecord;
use crate::http::openapi::schema::Schema;
use crate::http::openapi::shape::{Shape as _, describe};
use crate::http::openapi::words::{attempt_error, delivered_type};
use crate::machine::delivery::Status;
use crate::store::row::delivery::AttemptRow;
use crate::store::row::endpoint::EndpointRow;

/// An endpoint; its secret is only in the answer that creates it.
#[derive(Serialize)]
pub(in crate::http) struct EndpointView<'a> {
    #[serde(serialize_with = "id::as_text")]
    id: EndpointId,
    url: &'a str,
    events: Option<&'a [EventType]>,
    description: Option<&'a str>,
    enabled: bool,
    #[serde(serialize_with = "iso::option::serialize")]
    disabled_at: Option<Timestamp>,
    disabled_reason: Option<&'static str>,
    consecutive_failures: u8,
    #[serde(serialize_with = "iso::option::serialize")]
    last_success_at: Option<Timestamp>,
    #[serde(serialize_with = "iso::option::serialize")]
    last_failure_at: Option<Timestamp>,
    #[serde(serialize_with = "iso::serialize")]
    created_at: Timestamp,
    #[serde(serialize_with = "iso::serialize")]
    updated_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    secret: Option<&'a str>,
}

impl<'a> EndpointView<'a> {
    pub(in crate::http) fn new(id: EndpointId, row: &'a EndpointRow) -> Self {
        Self {
            id,
            url: &row.url,
            events: row.events.as_deref(),
            description: row.description.as_deref(),
            enabled: row.state.is_enabled(),
            disabled_at: row.state.disabled_at(),
            disabled_reason: row.state.disabled_reason(),
            consecutive_failures: row.state.consecutive_failures(),
            last_success_at: row.last_success_at,
            last_failure_at: row.last_failure_at,
            created_at: row.created_at,
            updated_at: row.updated_at,
            secret: None,
        }
    }

    pub(in crate::http) fn with_secret(id: EndpointId, row: &'a EndpointRow, secret: &'a str) -> Self {
        Self { secret: Some(secret), ..Self::new(id, row) }
    }
}

/// Result of a replay.
#[derive(Serialize)]
pub(in crate::http) struct ReplayView {
    pub(in crate::http) created: u64,
}

/// A delivery; its attempts are only included if it is shown alone.
#[derive(Serialize)]
pub(in crate::http) struct DeliveryView<'a> {
    #[serde(serialize_with = "id::as_text")]
    id: DeliveryId,
    #[serde(serialize_with = "id::as_text")]
    webhook_id: EndpointId,
    #[serde(serialize_with = "id::as_text")]
    event_id: EventId,
    event_type: &'static str,
    message_id: Option<String>,
    status: Status,
    attempt: u8,
    #[serde(serialize_with = "iso::option::serialize")]
    next_attempt_at: Option<Timestamp>,
    #[serde(serialize_with = "iso::serialize")]
    created_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    attempts: Option<Vec<AttemptView<'a>>>,
}

#[derive(Serialize)]
struct AttemptView<'a> {
    #[serde(serialize_with = "id::as_text")]
    id: AttemptId,
    attempt: u8,
    #[serde(serialize_with = "iso::serialize")]
    at: Timestamp,
    status: Option<u16>,
    error: Option<&'a str>,
    duration_ms: u64,
    response_body: Option<&'a str>,
}

impl<'a> DeliveryView<'a> {
    pub(in crate::http) fn new(record: &DeliveryRecord) -> Self {
        let row = &record.row;
        Self {
            id: record.id,
            webhook_id: row.endpoint,
            event_id: row.event,
            event_type: row.owed.event_type(),
            message_id: row.owed.message().map(|message| message.to_string()),
            status: record.status(),
            attempt: row.state.attempts,
            next_attempt_at: record.next_attempt_at(),
            created_at: row.state.created_at,
            attempts: None,
        }
    }

    pub(in crate::http) fn with_attempts(record: &DeliveryRecord, attempts: &'a [(u8, AttemptRow)]) -> Self {
        let attempts = attempts.iter().map(|(number, row)| AttemptView {
            id: row.id,
            attempt: *number,
            at: row.at,
            status: row.status,
            error: row.error.as_deref(),
            duration_ms: row.duration_ms,
            response_body: row.response_body.as_deref(),
        });
        Self { attempts: Some(attempts.collect()), ..Self::new(record) }
    }
}

describe! {
    EndpointView<'_> as "Webhook", "A webhook endpoint."
    {
        id: "The endpoint's identifier.",
        url: "The URL that gets events by POST." => |schema| schema.example("https://app.example.com/hook"),
        events: "The types that it receives; null for all."
            => |schema| schema.example(serde_json::json!(["delivered", "bounced"])),
        description: "Free text of the account." => |schema| schema.example("order status"),
        enabled: "Whether deliveries are attempted. They are held while the endpoint is disabled."
            => |schema| schema.example(true),
        disabled_at: "Time at which the service disabled it after repeated failures." => |schema| schema.example(()),
        disabled_reason: "The reason." => |schema| schema.example(()),
        consecutive_failures: "Failed attempts since the last success; ten disable the endpoint."
            => |schema| schema.example(0),
        last_success_at: "Time of the last successful attempt." => |schema| schema.example(()),
        last_failure_at: "Time of the last failed attempt." => |schema| schema.example(()),
        created_at: "Creation time.",
        updated_at: "Time of the last change.",
    }
    whole "WebhookWithSecret", "A webhook endpoint with its signing secret, which is shown only once."
    {
        secret: "The whole string is the HMAC key of X-Service-Signature."
            => |_| Schema::string()
                .pattern("^whsec_[A-Za-z0-9+/]{43}=$")
                .example("whsec_q83vASNFZ4mrze8BI0VniavN7wEjRWeJq83vASNFZ4k="),
    }
}

describe! {
    ReplayView as "Replay", "The result of a replay."
    {
        created: "Number of deliveries created." => |schema| schema.example(3),
    }
}

describe! {
    DeliveryView<'_> as "WebhookDelivery", "The delivery of one event to one webhook endpoint."
    {
        id: "The delivery's identifier, the same for all attempts.",
        webhook_id: "The webhook endpoint.",
        event_id: "The event's identifier.",
        event_type: "The event's type." => |_| delivered_type(),
        message_id: "The message that the event is about; null for a test."
            => |_| <Option<MessageId>>::schema(),
        status: "The delivery's status.",
        attempt: "Attempts so far, of at most seven." => |schema| schema.within(0, 7).example(0),
        next_attempt_at: "Time of the next attempt; null without one, or while the endpoint's queue is suspended.",
        created_at: "Creation time.",
    }
    whole "WebhookDeliveryWithAttempts", "The delivery of one event to one webhook endpoint, with every attempt."
    {
        attempts: "The delivery's attempts, oldest first." => |_| <Vec<AttemptView<'_>>>::schema(),
    }
}

describe! {
    AttemptView<'_> as "WebhookAttempt", "One request of a webhook delivery."
    {
        id: "The attempt's identifier.",
        attempt: "The attempt's number, from 1." => |schema| schema.within(1, 7).example(1),
        at: "Start time.",
        status: "HTTP status of the response; null without one." => |schema| schema.example(200),
        error: "The reason of the failure; null after a success." => |_| attempt_error().or_null().example(()),
        duration_ms: "Duration in milliseconds." => |schema| schema.example(84),
        response_body: "The first 4 KiB of the response body." => |schema| schema.example("ok"),
    }
}
