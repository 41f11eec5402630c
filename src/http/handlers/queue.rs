//! The queue, for the operator alone (contract 8).

use hyper::StatusCode;
use serde_json::json;

use crate::http::answer::Answer;
use crate::http::error::ApiError;
use crate::http::route::Call;
use crate::http::state::Api;
use crate::http::view::queue::{ReleasedView, SiteQueueView, StandstillView};

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
