//! The service's clock, for the operator alone.

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

/// `POST /v1/clock/accept`: the wall clock is right. May be repeated. The answer comes when the wall clock has been
/// taken over.
pub(in crate::http) async fn accept(api: &Api, call: Call<()>) -> Result<Answer, ApiError> {
    call.no_members()?;
    api.engine.accept_clock().await?;
    Ok(Answer::json(StatusCode::OK, &view(api)))
}

fn view(api: &Api) -> ClockView {
    let clock = &api.engine.clock;
    ClockView::new(&clock.time(), clock.doubt().as_ref())
}
