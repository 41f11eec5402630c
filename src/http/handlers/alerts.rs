//! Alerts: an account's own, and for the operator all of them, with checks and a test notice.

use std::sync::Arc;

use hyper::StatusCode;

use super::id;
use super::listing::Listing;
use crate::base::id::{AccountId, AlertId};
use crate::domain::violation::Violations;
use crate::engine::Caller;
use crate::engine::alerts::listing::{AlertFilter, AlertsOf};
use crate::engine::blocking::OPERATOR;
use crate::engine::listing::Page;
use crate::http::answer::Answer;
use crate::http::error::ApiError;
use crate::http::route::Call;
use crate::http::state::Api;
use crate::http::view::alert::{AlertTestView, ChangedView};

/// The filters of the lists.
const FILTERS: [&str; 2] = ["state", "condition"];

/// `GET /v1/alerts`.
pub(in crate::http) async fn list(api: &Api, call: Call<Caller>) -> Result<Answer, ApiError> {
    let account = call.caller.account;
    listed(api, &call, account, AlertsOf::Account(account)).await
}

/// `GET /v1/alerts/{id}`.
pub(in crate::http) async fn show(api: &Api, call: Call<Caller>) -> Result<Answer, ApiError> {
    call.no_query()?;
    shown(api, AlertsOf::Account(call.caller.account), id(&call)?)
}

/// `GET /v1/operator/alerts`: alerts of the service and of every account.
pub(in crate::http) async fn list_all(api: &Api, call: Call<()>) -> Result<Answer, ApiError> {
    listed(api, &call, AccountId::default(), AlertsOf::All).await
}

/// `GET /v1/operator/alerts/{id}`.
pub(in crate::http) async fn show_any(api: &Api, call: Call<()>) -> Result<Answer, ApiError> {
    call.no_query()?;
    shown(api, AlertsOf::All, id(&call)?)
}

async fn listed<C>(api: &Api, call: &Call<C>, account: AccountId, of: AlertsOf) -> Result<Answer, ApiError> {
    let mut violations = Violations::new();
    let listing = Listing::read(call, "alerts", account, &FILTERS, &mut violations);
    let state = listing.parsed("state", &mut violations);
    let condition = listing.parsed("condition", &mut violations);
    violations.or(|| Some(()))?;
    let (engine, page, filter) = (Arc::clone(&api.engine), listing.page, AlertFilter { state, condition, user: None });
    let turn = if of == AlertsOf::All { OPERATOR } else { account };
    let Page { rows, next } = api.engine.blocking(turn, move || engine.alerts_of(of, filter, page)).await??;
    let engine = &api.engine;
    listing.answer_of(rows.iter().map(|alert| engine.alert_record(alert.id, &alert.row)), next)
}

fn shown(api: &Api, of: AlertsOf, id: AlertId) -> Result<Answer, ApiError> {
    let alert = api.engine.alert(of, id)?.ok_or(ApiError::NotFound)?;
    Ok(Answer::json(StatusCode::OK, &api.engine.alert_record(alert.id, &alert.row)))
}

/// `POST /v1/operator/alerts/check`: runs every check now.
pub(in crate::http) async fn check(api: &Api, call: Call<()>) -> Result<Answer, ApiError> {
    call.no_members()?;
    let changed = api.engine.check_alerts().await?;
    Ok(Answer::json(StatusCode::OK, &ChangedView::new(&changed)))
}

/// `POST /v1/operator/alerts/test`: sends a test to all recipients of the operator's alerts.
pub(in crate::http) async fn test(api: &Api, call: Call<()>) -> Result<Answer, ApiError> {
    call.no_members()?;
    let results = api.engine.test_alerts().await?;
    let warnings = api.engine.owner_mail_warning()?.into_iter().collect();
    Ok(Answer::json(StatusCode::OK, &AlertTestView { results, warnings }))
}
