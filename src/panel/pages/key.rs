//! One API key: permissions, name, and revocation.

use askama::Template;
use hyper::StatusCode;

use super::delete::{self, Deletion};
use super::keys::{badge_of, scopes_of};
use crate::base::id::KeyId;
use crate::domain::api_key::ApiKey;
use crate::domain::stream::Stream;
use crate::http::answer::Answer;
use crate::http::error::ApiError;
use crate::http::handlers::keys::{change_of, shown};
use crate::http::handlers::not_found;
use crate::panel::components::{Badge, FormErrors, sentence_case};
use crate::panel::form::Form;
use crate::panel::html;
use crate::panel::layout::PageFrame;
use crate::panel::page_error::PageError;
use crate::panel::page_guard::Visit;
use crate::panel::record_card::Record;
use crate::panel::timestamp::Moment;

#[derive(Template)]
#[template(path = "key.html")]
struct KeyPage {
    frame: PageFrame,
    id: KeyId,
    title: String,
    badge: Badge,
    is_revoked: bool,
    facts: Vec<(&'static str, String)>,
    moments: Vec<(&'static str, Option<Moment>)>,
    name: String,
    faults: FormErrors,
    record: Record,
}

fn find(visit: &Visit<'_>) -> Result<ApiKey, PageError> {
    visit.api.engine.key(visit.account_id(), visit.id()?)?.ok_or_else(|| ApiError::NotFound.into())
}

/// `GET /keys/{id}`.
pub(in crate::panel) async fn show(visit: Visit<'_>) -> Result<Answer, PageError> {
    let key = find(&visit)?;
    let name = key.name.clone();
    written(&visit, StatusCode::OK, &key, name, FormErrors::none())
}

fn written(
    visit: &Visit<'_>,
    status: StatusCode,
    key: &ApiKey,
    name: String,
    faults: FormErrors,
) -> Result<Answer, PageError> {
    let done = match Form::of_query(&visit.call).text("done") {
        "renamed" => Some("Key renamed."),
        "revoked" => Some("Key revoked."),
        _ => None,
    };
    let moment = |at: Option<_>| at.map(|at| visit.detail(at));
    let page = KeyPage {
        frame: PageFrame::new(visit, key.name.as_str(), "/keys")?.with_done(done),
        id: key.id,
        title: key.name.clone(),
        badge: badge_of(key, visit.now),
        is_revoked: key.revoked_at.is_some(),
        facts: vec![
            ("Prefix", key.prefix.clone()),
            ("Permissions", scopes_of(key)),
            ("Stream", sentence_case(key.stream.map_or("both", Stream::as_str))),
        ],
        moments: vec![
            ("Created", moment(Some(key.created_at))),
            ("Last used", moment(key.last_used_at)),
            ("Expires", moment(key.expires_at)),
            ("Revoked", moment(key.revoked_at)),
        ],
        name,
        faults,
        record: Record::new(visit, key.id, &format!("/keys/{}", key.id), &format!("/v1/keys/{}", key.id)),
    };
    html::page(status, &page)
}

/// `GET /keys/{id}/json`: the record as the API returns it.
pub(in crate::panel) async fn json(visit: Visit<'_>) -> Result<Answer, PageError> {
    Ok(shown(&find(&visit)?))
}

/// `POST /keys/{id}`: renames the key. Nothing else can change.
pub(in crate::panel) async fn rename(visit: Visit<'_>) -> Result<Answer, PageError> {
    let (key, form) = (find(&visit)?, Form::of(&visit.call)?);
    let name = form.field("name").map(|name| ("name".to_owned(), name.into()));
    let name = match change_of(name.into_iter().collect()) {
        Ok(name) => name,
        Err(ApiError::Invalid(faults)) => {
            let (status, typed) = (StatusCode::UNPROCESSABLE_ENTITY, form.text("name").to_owned());
            return written(&visit, status, &key, typed, faults.into());
        }
        Err(error) => return Err(error.into()),
    };
    visit.api.engine.rename_key(visit.on(), key.id, name).await.map_err(not_found)?;
    Ok(html::redirect(&format!("/keys/{}?done=renamed", key.id)))
}

fn deletion(key: &ApiKey) -> Deletion {
    Deletion {
        title: format!("Revoke key {}", key.name),
        consequences: "Requests with it fail at once; this can't be undone. Give its program another key first.",
        name: key.name.clone(),
        action: format!("/keys/{}/revoke", key.id),
        button: "Revoke key",
        back: format!("/keys/{}", key.id),
    }
}

/// `GET /keys/{id}/delete`.
pub(in crate::panel) async fn ask_to_revoke(visit: Visit<'_>) -> Result<Answer, PageError> {
    let key = find(&visit)?;
    delete::show(&visit, "/keys", deletion(&key))
}

/// `POST /keys/{id}/revoke`: revokes the key immediately and permanently.
pub(in crate::panel) async fn revoke(visit: Visit<'_>) -> Result<Answer, PageError> {
    let key = find(&visit)?;
    if let Some(refused) = delete::refused(&visit, "/keys", deletion(&key))? {
        return Ok(refused);
    }
    let id = key.id;
    visit.api.engine.revoke_key(visit.on(), id).await.map_err(not_found)?;
    Ok(html::redirect(&format!("/keys/{id}?done=revoked")))
}
