//! Liveness and readiness of the process (contract 8).

use hyper::StatusCode;

use crate::http::answer::Answer;
use crate::http::error::ApiError;
use crate::http::route::Call;
use crate::http::state::Api;

/// `GET /healthz`.
pub(in crate::http) async fn lives(_: &Api, _: Call<()>) -> Result<Answer, ApiError> {
    Ok(ok())
}

/// `GET /readyz`.
pub(in crate::http) async fn ready(api: &Api, _: Call<()>) -> Result<Answer, ApiError> {
    api.check_ready().map(|()| ok())
}

fn ok() -> Answer {
    Answer::json_bytes(StatusCode::OK, &b"{\"status\":\"ok\"}"[..])
}
