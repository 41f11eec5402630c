//! Webhook endpoints and their deliveries (contract 5).

use hyper::StatusCode;
use serde_json::{Map, Value};

use super::listing::Listing;
use super::{id, label, texts};
use crate::base::id::{DeliveryId, EndpointId};
use crate::base::time::Timestamp;
use crate::domain::event::EventType;
use crate::domain::fields::Fields;
use crate::domain::limits::OUTSTANDING_DELIVERIES_COUNT;
use crate::domain::violation::Violations;
use crate::domain::webhook_url::WebhookUrl;
use crate::engine::Caller;
use crate::engine::deliveries::DeliveryRecord;
use crate::engine::endpoints::{EndpointChange, NewEndpoint};
use crate::engine::listing::Page;
use crate::http::answer::Answer;
use crate::http::error::ApiError;
use crate::http::route::Call;
use crate::http::state::Api;
use crate::http::view::endpoint::{DeliveryView, EndpointView, ReplayView};
use crate::net::network_guard::Guard;
use crate::store::error::OpError;
use crate::store::op::endpoint::EndpointRefusal;
use crate::store::op::event::ENDPOINTS_MAX;
use crate::store::op::redeliver::{RedeliverRefusal, ReplayOf};
use crate::store::row::delivery::AttemptRow;
use crate::store::row::endpoint::EndpointRow;

/// Advice for URLs that no endpoint may have: the way for events to reach a program under development.
const WHILE_DEVELOPING: &str = "While developing: postrider webhook listen --forward-to URL";

/// `POST /v1/webhooks`.
pub(in crate::http) async fn create(api: &Api, call: Call<Caller>) -> Result<Answer, ApiError> {
    let new = new_of(call.json()?, &api.guard)?;
    let (id, row, secret) = api.engine.create_endpoint(&call.caller, new).await.map_err(refused)?;
    let answer = Answer::json(StatusCode::CREATED, &EndpointView::with_secret(id, &row, secret.expose_text()));
    Ok(answer.with_location(&format!("/v1/webhooks/{id}")))
}

/// Parses the members of `object` as a new endpoint. The panel's form uses it too.
pub(crate) fn new_of(object: Map<String, Value>, guard: &Guard) -> Result<NewEndpoint, ApiError> {
    let mut violations = Violations::new();
    let mut fields = Fields::new(object, &mut violations);
    let text = fields.required_text("url");
    let url = url(&mut fields, text, guard);
    let events = event_types(&mut fields);
    let description = description(&mut fields);
    fields.finish();
    Ok(violations.or(|| Some(NewEndpoint { url: url?, events, description }))?)
}

/// `PATCH /v1/webhooks/{id}`. Missing members stay unchanged; `events` and `description` may be set to null.
pub(in crate::http) async fn update(api: &Api, call: Call<Caller>) -> Result<Answer, ApiError> {
    let id: EndpointId = id(&call)?;
    // An unknown endpoint is a 404 even if the body is invalid.
    api.engine.endpoint(call.caller.account, id)?.ok_or(ApiError::NotFound)?;
    let change = change_of(call.json()?, &api.guard)?;
    let row = api.engine.update_endpoint(&call.caller, id, change).await.map_err(refused)?;
    Ok(shown(id, &row))
}

/// Parses the members of `object` as a change. The panel's form uses it too.
pub(crate) fn change_of(object: Map<String, Value>, guard: &Guard) -> Result<EndpointChange, ApiError> {
    let is_given = |name: &str| object.contains_key(name);
    let (sets_events, sets_description) = (is_given("events"), is_given("description"));
    let mut violations = Violations::new();
    let mut fields = Fields::new(object, &mut violations);
    fields.refuse_null(&["url", "enabled"]);
    let text = fields.text("url");
    let url = url(&mut fields, text, guard);
    let events = event_types(&mut fields);
    let description = description(&mut fields);
    let enabled = fields.boolean("enabled");
    fields.finish();
    let (events, description) = (sets_events.then_some(events), sets_description.then_some(description));
    Ok(violations.or(|| Some(EndpointChange { url, events, description, enabled }))?)
}

/// Returns the record of an endpoint.
pub(crate) fn shown(id: EndpointId, row: &EndpointRow) -> Answer {
    Answer::json(StatusCode::OK, &EndpointView::new(id, row))
}

fn url(fields: &mut Fields<'_>, text: Option<String>, guard: &Guard) -> Option<WebhookUrl> {
    let text = text?;
    let permits = |address| guard.permits(address);
    let parsed = match guard.permits_plain_http() {
        true => WebhookUrl::parse_local(&text, permits),
        false => WebhookUrl::parse(&text, permits),
    };
    match parsed {
        Ok(url) => Some(url),
        Err(fault) if fault.is_local() => {
            fields.fault("url", format!("{fault}. {WHILE_DEVELOPING}"));
            fields.violations().hint(WHILE_DEVELOPING);
            None
        }
        Err(fault) => fields.check("url", Err(fault)),
    }
}

/// Parses the event types, in the caller's order without duplicates.
fn event_types(fields: &mut Fields<'_>) -> Option<Vec<EventType>> {
    let names = texts(fields, "events")?;
    if names.is_empty() {
        fields.fault("events", "must name at least one event type; leave it out to receive all");
    }
    let mut named = Vec::with_capacity(names.len());
    for (place, name) in names.into_iter().enumerate() {
        let kind = fields.check::<EventType, _>(&format!("events.{place}"), name.parse());
        named.extend(kind.filter(|kind| !named.contains(kind)));
    }
    Some(named)
}

fn description(fields: &mut Fields<'_>) -> Option<String> {
    let text = fields.text("description").filter(|text| !text.is_empty());
    label(fields, "description", text)
}

/// Returns the error of a refused change.
pub(crate) fn refused(stop: OpError<EndpointRefusal>) -> ApiError {
    match stop {
        OpError::Refused(EndpointRefusal::TooMany) => ApiError::Conflict(format!(
            "An account has at most {ENDPOINTS_MAX} webhook endpoints. Change or delete one."
        )),
        OpError::Refused(EndpointRefusal::NotFound) => ApiError::NotFound,
        OpError::Failed(error) => error.into(),
    }
}

/// `GET /v1/webhooks`.
pub(in crate::http) async fn list(api: &Api, call: Call<Caller>) -> Result<Answer, ApiError> {
    let listing = Listing::plain(&call, "webhooks", call.caller.account)?;
    let Page { rows, next } = api.engine.endpoints(call.caller.account, listing.page)?;
    listing.answer_of(rows.iter().map(|(id, row)| EndpointView::new(*id, row)), next)
}

/// `GET /v1/webhooks/{id}`.
pub(in crate::http) async fn show(api: &Api, call: Call<Caller>) -> Result<Answer, ApiError> {
    call.no_query()?;
    let id: EndpointId = id(&call)?;
    let row = api.engine.endpoint(call.caller.account, id)?.ok_or(ApiError::NotFound)?;
    Ok(shown(id, &row))
}

/// `GET /v1/webhooks/{id}/deliveries`.
pub(in crate::http) async fn deliveries(api: &Api, call: Call<Caller>) -> Result<Answer, ApiError> {
    let (account, id): (_, EndpointId) = (call.caller.account, id(&call)?);
    // An unknown endpoint is a 404 even if the query is invalid.
    api.engine.endpoint(account, id)?.ok_or(ApiError::NotFound)?;
    let listing = Listing::plain(&call, format!("deliveries of {id}"), account)?;
    let Page { rows, next } = api.engine.deliveries(account, id, None, listing.page)?.ok_or(ApiError::NotFound)?;
    listing.answer_of(rows.iter().map(DeliveryView::new), next)
}

/// `GET /v1/webhook-deliveries/{id}`.
pub(in crate::http) async fn delivery(api: &Api, call: Call<Caller>) -> Result<Answer, ApiError> {
    call.no_query()?;
    let found = api.engine.delivery(call.caller.account, id(&call)?)?;
    let (record, attempts) = found.ok_or(ApiError::NotFound)?;
    Ok(delivery_shown(&record, &attempts))
}

/// Returns the record of a delivery.
pub(crate) fn delivery_shown(record: &DeliveryRecord, attempts: &[(u8, AttemptRow)]) -> Answer {
    Answer::json(StatusCode::OK, &DeliveryView::with_attempts(record, attempts))
}

/// `DELETE /v1/webhooks/{id}`.
pub(in crate::http) async fn delete(api: &Api, call: Call<Caller>) -> Result<Answer, ApiError> {
    call.no_query()?;
    api.engine.delete_endpoint(&call.caller, id(&call)?).await.map_err(refused)?;
    Ok(Answer::no_content())
}

/// `POST /v1/webhooks/{id}/rotate-secret`.
pub(in crate::http) async fn rotate_secret(api: &Api, call: Call<Caller>) -> Result<Answer, ApiError> {
    let id: EndpointId = id(&call)?;
    api.engine.endpoint(call.caller.account, id)?.ok_or(ApiError::NotFound)?;
    call.no_members()?;
    let (row, secret) = api.engine.rotate_secret(&call.caller, id).await.map_err(refused)?;
    Ok(Answer::json(StatusCode::OK, &EndpointView::with_secret(id, &row, secret.expose_text())))
}

/// `POST /v1/webhooks/{id}/test`.
pub(in crate::http) async fn test(api: &Api, call: Call<Caller>) -> Result<Answer, ApiError> {
    let id: EndpointId = id(&call)?;
    api.engine.endpoint(call.caller.account, id)?.ok_or(ApiError::NotFound)?;
    call.no_members()?;
    let made = api.engine.test_endpoint(&call.caller, id).await.map_err(not_redelivered)?;
    Ok(created(&made))
}

/// `POST /v1/webhook-deliveries/{id}/redeliver`.
pub(in crate::http) async fn redeliver(api: &Api, call: Call<Caller>) -> Result<Answer, ApiError> {
    let id: DeliveryId = id(&call)?;
    api.engine.delivery(call.caller.account, id)?.ok_or(ApiError::NotFound)?;
    call.no_members()?;
    let made = api.engine.redeliver(&call.caller, id).await.map_err(not_redelivered)?;
    Ok(created(&made))
}

fn created(made: &DeliveryRecord) -> Answer {
    let answer = Answer::json(StatusCode::CREATED, &DeliveryView::with_attempts(made, &[]));
    answer.with_location(&format!("/v1/webhook-deliveries/{}", made.id))
}

/// `POST /v1/webhooks/{id}/replay`.
pub(in crate::http) async fn replay(api: &Api, call: Call<Caller>) -> Result<Answer, ApiError> {
    let (account, id): (_, EndpointId) = (call.caller.account, id(&call)?);
    api.engine.endpoint(account, id)?.ok_or(ApiError::NotFound)?;
    let (of, since) = replay_of(call.json()?)?;
    let created = api.engine.replay(&call.caller, id, of, since).await.map_err(not_redelivered)?;
    Ok(Answer::json(StatusCode::OK, &ReplayView { created }))
}

/// Parses the members of `object` as a replay. The panel's form uses it too.
pub(crate) fn replay_of(object: Map<String, Value>) -> Result<(ReplayOf, Timestamp), ApiError> {
    let mut violations = Violations::new();
    let mut fields = Fields::new(object, &mut violations);
    let since = fields.required_text("since").and_then(|text| fields.check("since", text.parse()));
    let of = match fields.boolean("only_failed") {
        Some(true) => ReplayOf::Failed,
        Some(false) | None => ReplayOf::All,
    };
    fields.finish();
    Ok((of, violations.or(|| since)?))
}

/// Returns the error of a refused redelivery.
pub(crate) fn not_redelivered(stop: OpError<RedeliverRefusal>) -> ApiError {
    match stop {
        OpError::Refused(RedeliverRefusal::NotFound) => ApiError::NotFound,
        OpError::Refused(RedeliverRefusal::EndpointGone) => {
            ApiError::Conflict("The webhook endpoint of this delivery was deleted.".to_owned())
        }
        OpError::Refused(RedeliverRefusal::TooManyOutstanding { created }) => ApiError::Conflict(format!(
            "The endpoint has {OUTSTANDING_DELIVERIES_COUNT} pending or held deliveries, or the account has as many \
             requested deliveries of the last 30 days; {created} were created now. Try again when some of them have \
             ended."
        )),
        OpError::Refused(RedeliverRefusal::ReplayRunning) => {
            ApiError::Conflict("A replay for this endpoint is running. Try again when it has finished.".to_owned())
        }
        OpError::Failed(error) => error.into(),
    }
}
