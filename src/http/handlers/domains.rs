//! Sending domains (contract 2).

use hyper::StatusCode;
use serde_json::{Map, Value};

use super::listing::Listing;
use super::{id, stream};
use crate::base::id::DomainId;
use crate::domain::fields::Fields;
use crate::domain::hostname::DomainName;
use crate::domain::limits::{DOMAINS_COUNT, ROTATION_DAYS};
use crate::domain::stream::Stream;
use crate::domain::violation::Violations;
use crate::engine::Caller;
use crate::engine::domains::DomainChange;
use crate::engine::listing::Page;
use crate::http::answer::Answer;
use crate::http::error::ApiError;
use crate::http::route::Call;
use crate::http::state::Api;
use crate::http::view::checklist::ChecklistView;
use crate::http::view::domain::DomainView;
use crate::store::error::OpError;
use crate::store::op::domain::DomainRefusal;
use crate::store::row::domain::DomainRow;

/// `POST /v1/domains`.
pub(in crate::http) async fn create(api: &Api, call: Call<Caller>) -> Result<Answer, ApiError> {
    let (name, stream) = new_of(call.json()?)?;
    let (id, row) = api.engine.create_domain(&call.caller, name, stream).await.map_err(refused)?;
    let answer = Answer::json(StatusCode::CREATED, &DomainView::new(id, &row, &api.engine.settings));
    Ok(answer.with_location(&format!("/v1/domains/{id}")))
}

/// Parses the members of `object` as a new domain. The panel's form uses it too.
pub(crate) fn new_of(object: Map<String, Value>) -> Result<(DomainName, Stream), ApiError> {
    let mut violations = Violations::new();
    let mut fields = Fields::new(object, &mut violations);
    let name = fields.required_text("name").and_then(|text| fields.check("name", text.parse()));
    let stream = fields.required_text("stream").and_then(|text| fields.check("stream", text.parse()));
    fields.finish();
    Ok(violations.or(|| name.zip(stream))?)
}

/// Returns the record of a domain.
pub(crate) fn shown(api: &Api, id: DomainId, row: &DomainRow) -> Answer {
    Answer::json(StatusCode::OK, &DomainView::new(id, row, &api.engine.settings))
}

/// `GET /v1/domains`.
pub(in crate::http) async fn list(api: &Api, call: Call<Caller>) -> Result<Answer, ApiError> {
    let listing = Listing::plain(&call, "domains", call.caller.account)?;
    let Page { rows, next } = api.engine.domains(call.caller.account, listing.page)?;
    let settings = &api.engine.settings;
    listing.answer_of(rows.iter().map(|(id, row)| DomainView::new(*id, row, settings)), next)
}

/// `GET /v1/domains/{id}`.
pub(in crate::http) async fn show(api: &Api, call: Call<Caller>) -> Result<Answer, ApiError> {
    call.no_query()?;
    let id: DomainId = id(&call)?;
    let row = api.engine.domain(call.caller.account, id)?.ok_or(ApiError::NotFound)?;
    Ok(shown(api, id, &row))
}

/// `GET /v1/domains/{id}/checklist`.
pub(in crate::http) async fn checklist(api: &Api, call: Call<Caller>) -> Result<Answer, ApiError> {
    let (account, id): (_, DomainId) = (call.caller.account, id(&call)?);
    let row = api.engine.domain(account, id)?.ok_or(ApiError::NotFound)?;
    call.no_query()?;
    let items = api.engine.checklist(account, id, &row).await?;
    Ok(Answer::json(StatusCode::OK, &ChecklistView::new(&row, &items)))
}

/// `POST /v1/domains/{id}/verify`.
pub(in crate::http) async fn verify(api: &Api, call: Call<Caller>) -> Result<Answer, ApiError> {
    let id: DomainId = id(&call)?;
    api.engine.domain(call.caller.account, id)?.ok_or(ApiError::NotFound)?;
    call.no_members()?;
    let row = api.engine.verify_domain(&call.caller, id).await.map_err(refused)?;
    Ok(shown(api, id, &row))
}

/// `PATCH /v1/domains/{id}`.
pub(in crate::http) async fn update(api: &Api, call: Call<Caller>) -> Result<Answer, ApiError> {
    call.no_query()?;
    let (account, id): (_, DomainId) = (call.caller.account, id(&call)?);
    // An unknown domain is a 404 even if the body is invalid.
    api.engine.domain(account, id)?.ok_or(ApiError::NotFound)?;
    let change = change_of(call.json()?)?;
    let row = api.engine.update_domain(&call.caller, id, change).await.map_err(refused)?;
    Ok(shown(api, id, &row))
}

/// Parses the members of `object` as a change. The panel's form uses it too.
pub(crate) fn change_of(object: Map<String, Value>) -> Result<DomainChange, ApiError> {
    let mut violations = Violations::new();
    let mut fields = Fields::new(object, &mut violations);
    fields.refuse_null(&["stream", "dkim_rotation_days"]);
    let stream = stream(&mut fields);
    let rotation_days = rotation_days(&mut fields);
    fields.finish();
    Ok(violations.or(|| Some(DomainChange { stream, rotation_days }))?)
}

fn rotation_days(fields: &mut Fields<'_>) -> Option<u16> {
    let value = fields.value("dkim_rotation_days")?;
    let days = value.as_u64().and_then(|days| u16::try_from(days).ok());
    let days = days.filter(|days| *days == 0 || ROTATION_DAYS.contains(days));
    if days.is_none() {
        let (least, most) = (ROTATION_DAYS.start(), ROTATION_DAYS.end());
        fields.fault("dkim_rotation_days", format!("must be 0, or a whole number of days from {least} to {most}"));
    }
    days
}

/// `DELETE /v1/domains/{id}`.
pub(in crate::http) async fn delete(api: &Api, call: Call<Caller>) -> Result<Answer, ApiError> {
    call.no_query()?;
    api.engine.delete_domain(&call.caller, id(&call)?).await.map_err(refused)?;
    Ok(Answer::no_content())
}

/// `POST /v1/domains/{id}/rotate-dkim`.
pub(in crate::http) async fn rotate_dkim(api: &Api, call: Call<Caller>) -> Result<Answer, ApiError> {
    let id: DomainId = id(&call)?;
    api.engine.domain(call.caller.account, id)?.ok_or(ApiError::NotFound)?;
    call.no_members()?;
    let row = api.engine.rotate_dkim(&call.caller, id).await.map_err(refused)?;
    Ok(shown(api, id, &row))
}

/// Returns the error of a refused change.
pub(crate) fn refused(stop: OpError<DomainRefusal>) -> ApiError {
    match stop {
        OpError::Refused(DomainRefusal::Exists) => Violations::of("name", "is already a domain of this account").into(),
        OpError::Refused(DomainRefusal::NotFound) => ApiError::NotFound,
        OpError::Refused(DomainRefusal::Stream(stream)) => ApiError::StreamForbidden(stream.to_string()),
        OpError::Refused(DomainRefusal::Taken) => {
            ApiError::Conflict("Another account has verified this domain; it must be removed there first.".to_owned())
        }
        OpError::Refused(DomainRefusal::TooMany) => {
            ApiError::Conflict(format!("An account has at most {DOMAINS_COUNT} domains. Delete a domain first."))
        }
        OpError::Refused(DomainRefusal::Crowded) => ApiError::Overloaded,
        // Name servers that don't answer hold a check for some seconds.
        OpError::Refused(DomainRefusal::Verifying) => ApiError::RateLimited(5),
        OpError::Failed(error) => error.into(),
    }
}
