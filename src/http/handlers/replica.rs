//! Replication, for the operator only.

use hyper::StatusCode;

use crate::engine::replica::ReplicaStatus;
use crate::http::answer::Answer;
use crate::http::error::ApiError;
use crate::http::route::Call;
use crate::http::state::Api;

/// `GET /v1/replica`: the state of replication.
pub(in crate::http) async fn show(api: &Api, call: Call<()>) -> Result<Answer, ApiError> {
    call.no_query()?;
    Ok(Answer::json(StatusCode::OK, &status(api)))
}

/// `POST /v1/replica/base`: makes a base now. The answer is sent when it is complete.
pub(in crate::http) async fn base(api: &Api, call: Call<()>) -> Result<Answer, ApiError> {
    call.no_members()?;
    if let Some(replication) = api.engine.replication.get() {
        replication.make_base().await;
    }
    Ok(Answer::json(StatusCode::OK, &status(api)))
}

fn status(api: &Api) -> ReplicaStatus {
    let replication = api.engine.replication.get();
    replication.map_or_else(ReplicaStatus::off, |replication| replication.status(api.engine.clock.now()))
}
