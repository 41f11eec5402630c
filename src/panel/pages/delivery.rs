//! One webhook delivery: every attempt with its response, and a form that sends the event again.

use askama::Template;
use hyper::StatusCode;

use crate::base::id::{DeliveryId, EndpointId, EventId, MessageId};
use crate::engine::deliveries::{DeliveryRecord, NumberedAttempts};
use crate::http::answer::Answer;
use crate::http::error::ApiError;
use crate::http::handlers::endpoints::{delivery_shown, not_redelivered};
use crate::machine::delivery::ATTEMPTS_MAX;
use crate::panel::attempts::{AttemptLine, of_delivery};
use crate::panel::components::{Badge, sentence_case};
use crate::panel::endpoint_name::in_one_line;
use crate::panel::html;
use crate::panel::layout::PageFrame;
use crate::panel::page_error::PageError;
use crate::panel::page_guard::Visit;
use crate::panel::record_card::Record;
use crate::panel::timestamp::Moment;

#[derive(Template)]
#[template(path = "delivery.html")]
struct DeliveryPage {
    frame: PageFrame,
    endpoint: EndpointId,
    url: String,
    id: DeliveryId,
    badge: Badge,
    heading: String,
    event_id: EventId,
    /// Path of the message, and its subject.
    message: Option<(String, String)>,
    created_at: Moment,
    next_attempt_at: Option<Moment>,
    attempts: Vec<(u8, AttemptLine)>,
    attempts_max: u8,
    record: Record,
}

/// Returns the delivery in the path, which must belong to the endpoint in the path.
fn find(visit: &Visit<'_>) -> Result<(DeliveryRecord, NumberedAttempts), PageError> {
    let (endpoint, id): (EndpointId, DeliveryId) = (visit.id()?, visit.id_named("delivery")?);
    let found = visit.api.engine.delivery(visit.account_id(), id)?;
    found.filter(|(record, _)| record.row.endpoint == endpoint).ok_or_else(|| ApiError::NotFound.into())
}

/// Returns the page of a message, and its subject, or its identifier if the record is gone.
fn link_to(visit: &Visit<'_>, id: MessageId) -> Result<(String, String), PageError> {
    let record = visit.api.engine.message(visit.account_id(), id)?;
    let words = record.map(|record| record.row.subject.unwrap_or_else(|| "No subject".to_owned()));
    Ok((format!("/messages/{id}"), words.unwrap_or_else(|| id.to_string())))
}

/// `GET /webhooks/{id}/deliveries/{delivery}`.
pub(in crate::panel) async fn show(visit: Visit<'_>) -> Result<Answer, PageError> {
    let (record, attempts) = find(&visit)?;
    let DeliveryRecord { id, row, .. } = &record;
    let endpoint = visit.api.engine.endpoint(visit.account_id(), row.endpoint)?.ok_or(ApiError::NotFound)?;
    let own = format!("/webhooks/{}/deliveries/{id}", row.endpoint);
    let heading = format!("{} event", sentence_case(row.owed.event_type()));
    let page = DeliveryPage {
        frame: PageFrame::new(&visit, heading.as_str(), "/webhooks")?,
        heading,
        endpoint: row.endpoint,
        url: in_one_line(&visit, &endpoint),
        id: *id,
        badge: of_delivery(&record),
        event_id: row.event,
        message: row.owed.message().map(|id| link_to(&visit, id)).transpose()?,
        created_at: visit.detail(row.state.created_at),
        next_attempt_at: record.next_attempt_at().map(|at| visit.detail(at)),
        attempts: attempts.into_iter().map(|(number, row)| (number, AttemptLine::new(&visit, row))).collect(),
        attempts_max: ATTEMPTS_MAX,
        record: Record::new(&visit, id, &own, &format!("/v1/webhook-deliveries/{id}")),
    };
    html::page(StatusCode::OK, &page)
}

/// `GET /webhooks/{id}/deliveries/{delivery}/json`: the record as the API returns it.
pub(in crate::panel) async fn json(visit: Visit<'_>) -> Result<Answer, PageError> {
    let (record, attempts) = find(&visit)?;
    Ok(delivery_shown(&record, &attempts))
}

/// `POST /webhooks/{id}/deliveries/{delivery}/redeliver`: sends the same event in a new delivery.
pub(in crate::panel) async fn redeliver(visit: Visit<'_>) -> Result<Answer, PageError> {
    let (record, _) = find(&visit)?;
    visit.api.engine.redeliver(visit.on(), record.id).await.map_err(not_redelivered)?;
    Ok(html::redirect(&format!("/webhooks/{}?done=again", record.row.endpoint)))
}
