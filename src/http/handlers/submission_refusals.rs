//! `GET /v1/submission-refusals`: the last 4xx and 5xx answers to the account's SMTP clients, from memory.

use super::super::view::submission::RefusalView;
use crate::domain::violation::Violations;
use crate::engine::Caller;
use crate::http::answer::Answer;
use crate::http::error::ApiError;
use crate::http::route::Call;
use crate::http::state::Api;

/// `GET /v1/submission-refusals`. A key that is limited to a stream sees only that stream.
pub(in crate::http) async fn list(api: &Api, call: Call<Caller>) -> Result<Answer, ApiError> {
    let mut violations = Violations::new();
    let query = call.query(&["limit"], &mut violations);
    let limit = query.get("limit").map(|_| query.page(&mut violations).limit);
    violations.or(|| Some(()))?;
    let limited_key = call.caller.key.as_ref().filter(|key| key.stream.is_some()).map(|key| key.id);
    let refusals = api.engine.smtp_refusals.of(call.caller.account, limited_key);
    let rows: Vec<_> = refusals.iter().take(limit.unwrap_or(usize::MAX)).map(RefusalView::new).collect();
    Ok(Answer::page_of(call.path(), limit.unwrap_or(rows.len()), &rows, None))
}
