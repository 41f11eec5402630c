//! The answers of receiving providers (contract 14.3).

use hyper::StatusCode;

use crate::domain::violation::Violations;
use crate::engine::Caller;
use crate::http::answer::Answer;
use crate::http::error::ApiError;
use crate::http::query::Query;
use crate::http::route::Call;
use crate::http::state::Api;
use crate::http::view::providers::ProvidersView;

/// Default number of days.
pub(crate) const DAYS_DEFAULT: u32 = 7;
/// Maximum number of days.
pub(crate) const DAYS_MAX: u32 = 90;

/// `GET /v1/providers`.
pub(in crate::http) async fn show(api: &Api, call: Call<Caller>) -> Result<Answer, ApiError> {
    let mut violations = Violations::new();
    let query = call.query(&["days"], &mut violations);
    let days = days(&query, &mut violations);
    let days = violations.or(|| days)?;
    let providers = api.engine.providers(call.caller.account, days).await?;
    Ok(Answer::json(StatusCode::OK, &ProvidersView::new(&providers)))
}

fn days(query: &Query, violations: &mut Violations) -> Option<u32> {
    let Some(text) = query.get("days") else { return Some(DAYS_DEFAULT) };
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let days = text.parse().ok().filter(|days| is_number && (1..=DAYS_MAX).contains(days));
    if days.is_none() {
        violations.add("days", format!("must be a whole number from 1 to {DAYS_MAX}"));
    }
    days
}
