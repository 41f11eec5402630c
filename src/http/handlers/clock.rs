//! The service's clock, for the operator only.

use hyper::StatusCode;

use crate::http::answer::Answer;
use crate::http::error::ApiError;
use crate::http::route::Call;
use crate::http::state::Api;
use crate::http::view::clock::ClockView;

/// `GET /v1/clock`: whether the wall clock is trusted.
pub(in crate::http) async fn show(api: &Api, call: Call<()>) -> Result<Answer, ApiError> {
    call.no_query()?;
    Ok(Answer::json(StatusCode::OK, &view(api)))
}

/// `POST /v1/clock/accept`: declares the wall clock correct. Idempotent. The answer is sent once the service has
/// adopted the wall clock.
pub(in crate::http) async fn accept(api: &Api, call: Call<()>) -> Result<Answer, ApiError> {
    call.no_members()?;
    api.engine.accept_clock().await?;
    Ok(Answer::json(StatusCode::OK, &view(api)))
}

fn view(api: &Api) -> ClockView {
    let clock = &api.engine.clock;
    ClockView::new(&clock.time(), clock.doubt().as_ref())
}
