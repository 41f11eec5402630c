//! The routes of webhook endpoints and deliveries (contract 5), and the request to an endpoint.

use hyper::StatusCode;
use serde_json::{Value, json};

use super::operation::Operation;
use super::request;
use super::schema::Schema;
use super::shape::{FullShape as _, Shape as _};
use super::words::delivered_type;
use crate::base::id::{DeliveryId, EndpointId};
use crate::domain::event::EventRecord;
use crate::http::error::ApiError;
use crate::http::handlers::endpoints::not_redelivered;
use crate::http::view::endpoint::{DeliveryView, EndpointView, ReplayView};
use crate::store::error::OpError;
use crate::store::op::event::ENDPOINTS_MAX;
use crate::store::op::redeliver::RedeliverRefusal;

const WEBHOOKS: &str = "Webhooks";
const ID: &str = "The endpoint's identifier.";
const DELIVERY_ID: &str = "The delivery's identifier.";

/// Returns the description of a route of webhooks.
pub(super) fn operation(name: &str) -> Option<Operation> {
    let too_many = format!("An account has at most {ENDPOINTS_MAX} webhook endpoints. Change or delete one.");
    let no_redelivery = |refusal| not_redelivered(OpError::Refused(refusal));
    let at_limit = || no_redelivery(RedeliverRefusal::TooManyOutstanding { created: 0 });
    Some(match name {
        "webhooks.create" => Operation::new(WEBHOOKS, "Register a webhook endpoint")
            .says("At most ten per account. The answer shows the signing secret, which is shown only once.")
            .takes(
                request::new_webhook(),
                &[("some", json!({ "url": "https://app.example.com/hook", "events": ["delivered", "bounced"] }))],
            )
            .gives(StatusCode::CREATED, "Registered.", EndpointView::whole())
            .fails([ApiError::Conflict(too_many)]),
        "webhooks.list" => {
            Operation::new(WEBHOOKS, "List webhook endpoints").gives_page("WebhookPage", EndpointView::schema())
        }
        "webhooks.show" => Operation::new(WEBHOOKS, "Get a webhook endpoint").at("id", EndpointId::schema(), ID).gives(
            StatusCode::OK,
            "The endpoint.",
            EndpointView::schema(),
        ),
        "webhooks.update" => Operation::new(WEBHOOKS, "Change a webhook endpoint")
            .says("Enabling a disabled endpoint releases its held deliveries.")
            .at("id", EndpointId::schema(), ID)
            .takes(request::webhook_change(), &[("enable", json!({ "enabled": true }))])
            .gives(StatusCode::OK, "The changed endpoint.", EndpointView::schema()),
        "webhooks.delete" => Operation::new(WEBHOOKS, "Delete a webhook endpoint")
            .says("The endpoint's pending deliveries are marked as failed.")
            .at("id", EndpointId::schema(), ID)
            .gives_nothing("Deleted."),
        "webhooks.rotate" => Operation::new(WEBHOOKS, "Rotate a signing secret")
            .says("Attempts from now on are signed with the new secret. The answer shows it only once.")
            .at("id", EndpointId::schema(), ID)
            .gives(StatusCode::OK, "The endpoint with its new secret.", EndpointView::whole()),
        "webhooks.test" => Operation::new(WEBHOOKS, "Test a webhook endpoint")
            .says("Delivers an event of type `test`. It has no effect on failure counts.")
            .at("id", EndpointId::schema(), ID)
            .gives(StatusCode::CREATED, "The delivery.", DeliveryView::whole())
            .fails([at_limit()]),
        "webhooks.replay" => Operation::new(WEBHOOKS, "Replay past events")
            .says(
                "Creates new deliveries of all events since then that the endpoint receives. Events with a pending or \
                 held delivery are skipped. An endpoint has one replay at a time, and a replay stops at 100,000 \
                 pending and held deliveries.",
            )
            .at("id", EndpointId::schema(), ID)
            .takes(
                request::replay(),
                &[("failed", json!({ "since": "2026-11-20T00:00:00+00:00", "only_failed": true }))],
            )
            .gives(StatusCode::OK, "Number of deliveries created.", ReplayView::schema())
            .fails([at_limit(), no_redelivery(RedeliverRefusal::ReplayRunning)]),
        "webhooks.deliveries" => Operation::new(WEBHOOKS, "List an endpoint's deliveries")
            .at("id", EndpointId::schema(), ID)
            .gives_page("WebhookDeliveryPage", DeliveryView::schema()),
        "deliveries.show" => Operation::new(WEBHOOKS, "Get a delivery")
            .says("The delivery with the log of its attempts.")
            .at("id", DeliveryId::schema(), DELIVERY_ID)
            .gives(StatusCode::OK, "The delivery.", DeliveryView::whole()),
        "deliveries.redeliver" => Operation::new(WEBHOOKS, "Deliver an event again")
            .says("Creates a new delivery of the same event. A failed delivery is never attempted again.")
            .at("id", DeliveryId::schema(), DELIVERY_ID)
            .gives(StatusCode::CREATED, "The new delivery.", DeliveryView::whole())
            .fails([no_redelivery(RedeliverRefusal::EndpointGone), at_limit()]),
        _ => return None,
    })
}

/// Returns the request to an endpoint (contract 5).
pub(super) fn event() -> Value {
    let header = |name: &str, says: &str, schema: Schema| {
        let schema = schema.into_value();
        json!({ "in": "header", "name": name, "required": true, "description": says, "schema": schema })
    };
    let signature = Schema::string()
        .pattern("^t=[0-9]+,v1=[0-9a-f]{64}$")
        .example("t=1700000000,v1=0bd7d1936c1feda6866144e916fd796d06dedf89dec93ff5597b00bd4656bad3");
    let standard = Schema::string().example("v1,IJlv8gazXzAfb0TRP4H4vPEiQGsm3VsVSJIjO0K7SEI=");
    let seconds = Schema::string().pattern("^[0-9]+$").example("1700000000");
    let parameters = [
        header(
            "X-Service-Signature",
            "HMAC-SHA256 of `<t>.<raw body>` with the whole secret as key. Reject a `t` older than 300 s.",
            signature,
        ),
        header("X-Service-Event", "The event's type.", delivered_type()),
        header("X-Service-Delivery", "Delivery ID, the same for all attempts.", DeliveryId::schema()),
        header("X-Service-Attempt", "The attempt's number.", Schema::count().within(1, 7)),
        header("webhook-id", "Event ID (Standard Webhooks).", Schema::string()),
        header("webhook-timestamp", "The attempt's time, in seconds since the epoch.", seconds),
        header("webhook-signature", "Signature (Standard Webhooks).", standard),
    ];
    json!({
        "post": {
            "operationId": "webhook_event",
            "tags": [WEBHOOKS],
            "summary": "An event",
            "description": "Sent to each endpoint that receives the event's type. The body's bytes are the same for \
                all attempts. Any 2xx within 10 seconds is a success; redirects are failures. A test event has the \
                type `test`, and null for all facts that it lacks.",
            "parameters": parameters,
            "requestBody": {
                "required": true,
                "content": { "application/json": { "schema": EventRecord::schema().into_value() } },
            },
            "responses": {
                "2XX": { "description": "Accepted." },
                "default": { "description": "Any other response is retried." },
            },
        }
    })
}
