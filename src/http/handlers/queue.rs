//! The queue, for the operator alone (contract 8).

use hyper::StatusCode;
use serde_json::json;

use crate::http::answer::Answer;
use crate::http::error::ApiError;
use crate::http::route::Call;
use crate::http::state::Api;
use crate::http::view::queue::SiteQueueView;

/// `GET /v1/queue`: every site for which something waits or is on the wire, on one page.
pub(in crate::http) async fn list(api: &Api, call: Call<()>) -> Result<Answer, ApiError> {
    call.no_query()?;
    let sites = api.engine.queue().await?;
    let data: Vec<_> = sites.iter().map(SiteQueueView::new).collect();
    Ok(Answer::json(StatusCode::OK, &json!({ "data": data, "next_cursor": null })))
}
