//! `GET /v1/me`: the account, its quota and the key of the request.

use hyper::StatusCode;

use crate::engine::Caller;
use crate::http::answer::Answer;
use crate::http::error::ApiError;
use crate::http::route::Call;
use crate::http::state::Api;
use crate::http::view::account::{MeView, StorageView};
use crate::machine::rate::RateView;
use crate::store::op::stored_content;

/// `GET /v1/me`.
pub(in crate::http) async fn show(api: &Api, call: Call<Caller>) -> Result<Answer, ApiError> {
    call.no_query()?;
    let engine = &api.engine;
    let account = api.account_of(&call.caller)?;
    let quota = engine.quota(&account)?;
    let reputation = engine.reputation(account.id)?;
    let limit = engine.settings.requests_per_minute;
    let key = call.caller.key.as_deref();
    let rate = match key {
        Some(key) => engine.rates.view(key.id, limit, engine.clock.monotonic()),
        None => RateView { limit, remaining: limit, reset_secs: 0 },
    };
    let used = stored_content::used(&engine.store.snapshot()?, account.id)?;
    let storage = StorageView::new(used, engine.settings.stored_bytes_per_account);
    let now = engine.clock.now();
    let suspension = engine.suspension(account.id)?;
    let view = MeView::new(
        &account,
        suspension,
        key,
        quota,
        rate,
        storage,
        &reputation,
        now,
        &engine.settings,
        api.body_bytes,
    );
    Ok(Answer::json(StatusCode::OK, &view))
}
