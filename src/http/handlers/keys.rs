//! API keys (contract 2).

use hyper::StatusCode;
use serde_json::{Map, Value};

use super::listing::Listing;
use super::{id, label, not_found, stream, texts};
use crate::base::id::KeyId;
use crate::base::time::Timestamp;
use crate::domain::api_key::{ApiKey, Scopes};
use crate::domain::fields::Fields;
use crate::domain::limits::ACTIVE_KEYS_COUNT;
use crate::domain::violation::Violations;
use crate::engine::Caller;
use crate::engine::accounts::{NewKey, NewKeyRefusal};
use crate::engine::listing::Page;
use crate::http::answer::Answer;
use crate::http::error::ApiError;
use crate::http::route::Call;
use crate::http::state::Api;
use crate::http::view::account::KeyView;
use crate::store::error::OpError;

/// `POST /v1/keys`.
pub(in crate::http) async fn create(api: &Api, call: Call<Caller>) -> Result<Answer, ApiError> {
    let new = new_of(call.json()?, api.engine.clock.now())?;
    let (key, secret) = api.engine.create_key(&call.caller, new).await.map_err(refused)?;
    let answer = Answer::json(StatusCode::CREATED, &KeyView::with_secret(&key, secret.expose()));
    Ok(answer.with_location(&format!("/v1/keys/{}", key.id)))
}

/// Parses the members of `object` as a new key. The panel's form uses it too.
pub(crate) fn new_of(object: Map<String, Value>, now: Timestamp) -> Result<NewKey, ApiError> {
    let mut violations = Violations::new();
    let mut fields = Fields::new(object, &mut violations);
    let name = fields.required_text("name");
    let name = label(&mut fields, "name", name);
    let stream = stream(&mut fields);
    let scopes = texts(&mut fields, "scopes").map(|names| Scopes::parse("scopes", &names));
    let expires_at = expires_at(&mut fields, now);
    fields.finish();
    let scopes = match scopes {
        Some(Ok(scopes)) => scopes,
        Some(Err(faults)) => {
            violations.absorb(faults);
            Scopes::ALL
        }
        None => Scopes::ALL,
    };
    Ok(violations.or(|| Some(NewKey { name: name?, stream, scopes, expires_at }))?)
}

fn expires_at(fields: &mut Fields<'_>, now: Timestamp) -> Option<Timestamp> {
    let text = fields.text("expires_at")?;
    let at: Timestamp = fields.check("expires_at", text.parse())?;
    if at <= now {
        fields.fault("expires_at", "must be in the future");
    }
    Some(at)
}

/// Returns the error of a refused new key.
pub(crate) fn refused(stop: OpError<NewKeyRefusal>) -> ApiError {
    match stop {
        OpError::Refused(NewKeyRefusal::Scope(scope)) => ApiError::ScopeForbidden(scope),
        OpError::Refused(NewKeyRefusal::Stream(stream)) => ApiError::StreamForbidden(stream.to_string()),
        OpError::Refused(NewKeyRefusal::NoSuchAccount) => ApiError::NotFound,
        OpError::Refused(NewKeyRefusal::TooMany) => ApiError::Conflict(format!(
            "An account has at most {ACTIVE_KEYS_COUNT} active API keys. Revoke a key first."
        )),
        OpError::Failed(error) => error.into(),
    }
}

/// `GET /v1/keys`.
pub(in crate::http) async fn list(api: &Api, call: Call<Caller>) -> Result<Answer, ApiError> {
    let listing = Listing::plain(&call, "keys", call.caller.account)?;
    let Page { rows, next } = api.engine.keys(call.caller.account, listing.page)?;
    listing.answer_of(rows.iter().map(KeyView::new), next)
}

/// `GET /v1/keys/{id}`.
pub(in crate::http) async fn show(api: &Api, call: Call<Caller>) -> Result<Answer, ApiError> {
    call.no_query()?;
    let key = api.engine.key(call.caller.account, id(&call)?)?.ok_or(ApiError::NotFound)?;
    Ok(shown(&key))
}

/// Returns the record of a key.
pub(crate) fn shown(key: &ApiKey) -> Answer {
    Answer::json(StatusCode::OK, &KeyView::new(key))
}

/// `PATCH /v1/keys/{id}`: only the name can change.
pub(in crate::http) async fn update(api: &Api, call: Call<Caller>) -> Result<Answer, ApiError> {
    let (account, id): (_, KeyId) = (call.caller.account, id(&call)?);
    // An unknown key is a 404 even if the body is invalid.
    api.engine.key(account, id)?.ok_or(ApiError::NotFound)?;
    let name = change_of(call.json()?)?;
    let key = api.engine.rename_key(&call.caller, id, name).await.map_err(not_found)?;
    Ok(shown(&key))
}

/// Parses the new name in `object`. The panel's form uses it too.
pub(crate) fn change_of(object: Map<String, Value>) -> Result<Option<String>, ApiError> {
    let mut violations = Violations::new();
    let mut fields = Fields::new(object, &mut violations);
    fields.refuse_null(&["name"]);
    let name = fields.text("name");
    let name = label(&mut fields, "name", name);
    fields.finish();
    Ok(violations.or(|| Some(name))?)
}

/// `DELETE /v1/keys/{id}`: revokes the key. The next request with it is refused.
pub(in crate::http) async fn delete(api: &Api, call: Call<Caller>) -> Result<Answer, ApiError> {
    call.no_query()?;
    api.engine.revoke_key(&call.caller, id(&call)?).await.map_err(not_found)?;
    Ok(Answer::no_content())
}
