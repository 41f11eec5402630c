//! The queue, for the operator alone (contract 8).

use hyper::StatusCode;
use serde_json::json;

use super::users::account;
use crate::base::id::AccountId;
use crate::domain::fields::Fields;
use crate::domain::site_name::SiteName;
use crate::domain::violation::Violations;
use crate::engine::audit::Behalf;
use crate::http::answer::Answer;
use crate::http::error::ApiError;
use crate::http::route::Call;
use crate::http::state::Api;
use crate::http::view::queue::{PausedView, ReleasedView, SiteQueueView, StandstillView, TriedView};
use crate::store::error::Stop;
use crate::store::op::NotThere;
use crate::store::op::pause::{PAUSES_MAX, TooManyPauses};

/// `GET /v1/queue`: every site for which something waits or is on the wire, on one page. Where the queues of a restored
/// store stand still, the page says so.
pub(in crate::http) async fn list(api: &Api, call: Call<()>) -> Result<Answer, ApiError> {
    call.no_query()?;
    let standing = api.engine.standing().await?;
    let sites = api.engine.queue().await?;
    let data: Vec<_> = sites.iter().map(SiteQueueView::new).collect();
    let mut page = json!({ "data": data, "next_cursor": null });
    if let Some((backup_at, standing)) = standing {
        page["standstill"] = json!(StandstillView::new(backup_at, standing));
    }
    Ok(Answer::json(StatusCode::OK, &page))
}

/// `POST /v1/queue/release`: has the queues of a restored store go on.
pub(in crate::http) async fn release(api: &Api, call: Call<()>) -> Result<Answer, ApiError> {
    call.no_members()?;
    let released = api.engine.release_queue().await?;
    Ok(Answer::json(StatusCode::OK, &ReleasedView::new(&released)))
}

/// The account that is spoken for, and the site or recipients' domain that the body names.
async fn named(api: &Api, call: &Call<()>) -> Result<(AccountId, SiteName), ApiError> {
    let account = account(api, call).await?;
    let mut violations = Violations::new();
    let mut fields = Fields::new(call.json()?, &mut violations);
    let site = fields.required_text("site").and_then(|text| fields.check("site", text.parse()));
    fields.finish();
    Ok((account, violations.or(|| site)?))
}

/// `POST /v1/queue/pause`: an account's mail for a site waits. May be repeated.
pub(in crate::http) async fn pause(api: &Api, call: Call<()>) -> Result<Answer, ApiError> {
    let (account, site) = named(api, &call).await?;
    api.engine.pause_site(Behalf::operator(account), site.clone()).await.map_err(too_many)?;
    Ok(Answer::json(StatusCode::OK, &PausedView { site: site.as_str(), paused: true }))
}

/// Why one more site is not paused.
pub(crate) fn too_many(stop: Stop<TooManyPauses>) -> ApiError {
    match stop {
        Stop::Refused(TooManyPauses) => {
            ApiError::Conflict(format!("{PAUSES_MAX} sites are paused already; resume one of them first."))
        }
        Stop::Failed(error) => error.into(),
    }
}

/// `POST /v1/queue/resume`: it goes on. May be repeated.
pub(in crate::http) async fn resume(api: &Api, call: Call<()>) -> Result<Answer, ApiError> {
    let (account, site) = named(api, &call).await?;
    match api.engine.resume_site(Behalf::operator(account), site.clone()).await {
        Ok(()) | Err(Stop::Refused(NotThere)) => {}
        Err(Stop::Failed(error)) => return Err(error.into()),
    }
    Ok(Answer::json(StatusCode::OK, &PausedView { site: site.as_str(), paused: false }))
}

/// `POST /v1/queue/try`: what an account has waiting for a site is tried at once.
pub(in crate::http) async fn try_now(api: &Api, call: Call<()>) -> Result<Answer, ApiError> {
    let (account, site) = named(api, &call).await?;
    let tried = api.engine.try_site(Behalf::operator(account), site.clone()).await?;
    let view = TriedView { site: site.as_str(), messages: tried.messages, more: tried.is_cut };
    Ok(Answer::json(StatusCode::OK, &view))
}
