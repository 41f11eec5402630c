//! Changes of one webhook endpoint: settings, pause and reactivation, secret, test, replay, and deletion.

use hyper::StatusCode;
use serde_json::{Map, Value};

use super::delete;
use super::webhook::{NewSecret, deletion, find, written};
use crate::base::id::EndpointId;
use crate::engine::endpoints::EndpointChange;
use crate::http::answer::Answer;
use crate::http::error::ApiError;
use crate::http::handlers::endpoints::{change_of, not_redelivered, refused, replay_of};
use crate::panel::endpoint_form::{EndpointForm, as_body};
use crate::panel::form::Form;
use crate::panel::html;
use crate::panel::page_error::PageError;
use crate::panel::page_guard::Visit;

fn back(id: EndpointId, done: &str) -> Answer {
    html::redirect(&format!("/webhooks/{id}?done={done}"))
}

/// `POST /webhooks/{id}`: changes the settings, with the API's checks.
pub(in crate::panel) async fn change(visit: Visit<'_>) -> Result<Answer, PageError> {
    let (id, row) = find(&visit)?;
    let form = Form::of(&visit.call)?;
    let change = match change_of(as_body(&form), &visit.api.guard) {
        Ok(change) => change,
        Err(ApiError::Invalid(faults)) => {
            let form = EndpointForm::refused(&form, faults.into());
            return written(&visit, StatusCode::UNPROCESSABLE_ENTITY, id, &row, Some(form), None);
        }
        Err(error) => return Err(error.into()),
    };
    visit.api.engine.update_endpoint(visit.on(), id, change).await.map_err(refused)?;
    Ok(html::redirect(&format!("/webhooks/{id}?tab=settings&done=saved")))
}

/// `POST /webhooks/{id}/reactivate`: enables the endpoint. Its held deliveries become due.
pub(in crate::panel) async fn reactivate(visit: Visit<'_>) -> Result<Answer, PageError> {
    enable(&visit, true).await?;
    Ok(back(visit.id()?, "reactivated"))
}

/// `POST /webhooks/{id}/pause`.
pub(in crate::panel) async fn pause(visit: Visit<'_>) -> Result<Answer, PageError> {
    enable(&visit, false).await?;
    Ok(back(visit.id()?, "paused"))
}

async fn enable(visit: &Visit<'_>, enabled: bool) -> Result<(), PageError> {
    let change = EndpointChange { enabled: Some(enabled), ..EndpointChange::default() };
    visit.api.engine.update_endpoint(visit.on(), visit.id()?, change).await.map_err(refused)?;
    Ok(())
}

/// `POST /webhooks/{id}/rotate-secret`: creates a new secret and shows it once.
pub(in crate::panel) async fn rotate_secret(visit: Visit<'_>) -> Result<Answer, PageError> {
    let id: EndpointId = visit.id()?;
    let (row, secret) = visit.api.engine.rotate_secret(visit.on(), id).await.map_err(refused)?;
    let new_secret = NewSecret { secret: secret.expose_text().to_owned(), is_new: false };
    written(&visit, StatusCode::OK, id, &row, None, Some(new_secret))
}

/// `POST /webhooks/{id}/test`.
pub(in crate::panel) async fn test(visit: Visit<'_>) -> Result<Answer, PageError> {
    let id: EndpointId = visit.id()?;
    visit.api.engine.test_endpoint(visit.on(), id).await.map_err(not_redelivered)?;
    Ok(back(id, "test"))
}

/// `POST /webhooks/{id}/replay`: sends the events since a time again, all or only the failed ones.
pub(in crate::panel) async fn replay(visit: Visit<'_>) -> Result<Answer, PageError> {
    let (id, _) = find(&visit)?;
    let form = Form::of(&visit.call)?;
    let body = Map::from_iter([
        ("since".to_owned(), Value::from(form.text("since"))),
        ("only_failed".to_owned(), Value::from(form.text("events") != "all")),
    ]);
    let (of, since) = replay_of(body)?;
    let created = visit.api.engine.replay(visit.on(), id, of, since).await.map_err(not_redelivered)?;
    Ok(back(id, if created == 0 { "replayed-none" } else { "replayed" }))
}

/// `POST /webhooks/{id}/delete`.
pub(in crate::panel) async fn delete(visit: Visit<'_>) -> Result<Answer, PageError> {
    let (id, row) = find(&visit)?;
    if let Some(refused) = delete::refused(&visit, "/webhooks", deletion(id, &row))? {
        return Ok(refused);
    }
    visit.api.engine.delete_endpoint(visit.on(), id).await.map_err(refused)?;
    Ok(html::redirect("/webhooks?done=deleted"))
}
