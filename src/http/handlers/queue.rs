//! The queue, for the operator only (contract 8).

use hyper::StatusCode;
use serde_json::json;

use super::users::account;
use crate::base::cursor::{Cursor, InvalidCursor};
use crate::base::id::{AccountId, Ulid};
use crate::domain::fields::Fields;
use crate::domain::site_name::SiteName;
use crate::domain::violation::Violations;
use crate::engine::audit::Behalf;
use crate::engine::queue::{QueuePage, SiteKey};
use crate::http::answer::Answer;
use crate::http::error::ApiError;
use crate::http::route::Call;
use crate::http::state::Api;
use crate::http::view::queue::{PausedView, ReleasedView, RestoreHoldView, SiteQueueView, TriedView};
use crate::store::error::OpError;
use crate::store::op::NotFound;
use crate::store::op::pause::{PAUSES_MAX, TooManyPauses};

/// Name of the list in cursors.
const LIST: &str = "queue";

/// `GET /v1/queue`: the sites with waiting or active messages, in pages of several thousand. If the queues of a
/// restored store are on hold, the page says so.
pub(in crate::http) async fn list(api: &Api, call: Call<()>) -> Result<Answer, ApiError> {
    let mut violations = Violations::new();
    let query = call.query(&["cursor"], &mut violations);
    let cursor = query.get("cursor").and_then(|text| violations.check("cursor", place(text)));
    let after = violations.or(|| Some(cursor))?;
    let on_hold = api.engine.restore_hold().await?;
    let QueuePage { sites, next } = api.engine.queue(after).await?;
    let data: Vec<_> = sites.iter().map(SiteQueueView::new).collect();
    let mut page = json!({ "data": data, "next_cursor": next.map(cursor_of) });
    if let Some((backup_at, on_hold)) = on_hold {
        page["standstill"] = json!(RestoreHoldView::new(backup_at, on_hold));
    }
    Ok(Answer::json(StatusCode::OK, &page))
}

/// Returns the cursor for the sites after this one. Its filters are the place in the list.
fn cursor_of((site, relay): SiteKey) -> String {
    let filters = vec![("relay".to_owned(), relay), ("site".to_owned(), site)];
    Cursor::new(LIST, AccountId::default(), Ulid::default(), filters).encode()
}

fn place(cursor: &str) -> Result<SiteKey, InvalidCursor> {
    let cursor = Cursor::decode(cursor, LIST, AccountId::default(), &[])?;
    let [(_, relay), (_, site)]: [_; 2] = cursor.filters.try_into().map_err(|_| InvalidCursor)?;
    Ok((site, relay))
}

/// `POST /v1/queue/release`: releases the queues of a restored store.
pub(in crate::http) async fn release(api: &Api, call: Call<()>) -> Result<Answer, ApiError> {
    call.no_members()?;
    let released = api.engine.release_queue().await?;
    Ok(Answer::json(StatusCode::OK, &ReleasedView::new(&released)))
}

/// Returns the account of the request, and the site or recipient domain in the body.
async fn named(api: &Api, call: &Call<()>) -> Result<(AccountId, SiteName), ApiError> {
    let account = account(api, call).await?;
    let mut violations = Violations::new();
    let mut fields = Fields::new(call.json()?, &mut violations);
    let site = fields.required_text("site").and_then(|text| fields.check("site", text.parse()));
    fields.finish();
    Ok((account, violations.or(|| site)?))
}

/// `POST /v1/queue/pause`: pauses an account's mail for a site. Idempotent.
pub(in crate::http) async fn pause(api: &Api, call: Call<()>) -> Result<Answer, ApiError> {
    let (account, site) = named(api, &call).await?;
    api.engine.pause_site(Behalf::operator(account), site.clone()).await.map_err(too_many)?;
    Ok(Answer::json(StatusCode::OK, &PausedView { site: site.as_str(), paused: true }))
}

/// Returns the error of too many paused sites.
pub(crate) fn too_many(stop: OpError<TooManyPauses>) -> ApiError {
    match stop {
        OpError::Refused(TooManyPauses) => {
            ApiError::Conflict(format!("{PAUSES_MAX} sites are already paused. Resume one first."))
        }
        OpError::Failed(error) => error.into(),
    }
}

/// `POST /v1/queue/resume`: resumes an account's mail for a site. Idempotent.
pub(in crate::http) async fn resume(api: &Api, call: Call<()>) -> Result<Answer, ApiError> {
    let (account, site) = named(api, &call).await?;
    match api.engine.resume_site(Behalf::operator(account), site.clone()).await {
        Ok(()) | Err(OpError::Refused(NotFound)) => {}
        Err(OpError::Failed(error)) => return Err(error.into()),
    }
    Ok(Answer::json(StatusCode::OK, &PausedView { site: site.as_str(), paused: false }))
}

/// `POST /v1/queue/try`: retries an account's waiting mail for a site at once.
pub(in crate::http) async fn try_now(api: &Api, call: Call<()>) -> Result<Answer, ApiError> {
    let (account, site) = named(api, &call).await?;
    let tried = api.engine.try_site(Behalf::operator(account), site.clone()).await?;
    let view = TriedView { site: site.as_str(), messages: tried.messages, more: tried.is_cut };
    Ok(Answer::json(StatusCode::OK, &view))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_continues_after_its_site() {
        let key = ("mx1.host.example,mx2.host.example".to_owned(), "direct".to_owned());
        assert_eq!(place(&cursor_of(key.clone())), Ok(key));
        assert_eq!(place("x"), Err(InvalidCursor));
    }
}
