//! The account's settings (contract 2).

use hyper::StatusCode;
use serde_json::{Map, Value};

use super::not_found;
use crate::domain::account::{InvalidRetentionDays, RetentionDays};
use crate::domain::fields::Fields;
use crate::domain::violation::Violations;
use crate::engine::Caller;
use crate::engine::accounts::AccountChange;
use crate::http::answer::Answer;
use crate::http::error::ApiError;
use crate::http::route::Call;
use crate::http::state::Api;
use crate::http::view::account::SettingsView;

/// `GET /v1/settings`.
pub(in crate::http) async fn show(api: &Api, call: Call<Caller>) -> Result<Answer, ApiError> {
    call.no_query()?;
    Ok(Answer::json(StatusCode::OK, &SettingsView::new(&api.account_of(&call.caller)?)))
}

/// `PATCH /v1/settings`. Missing members stay unchanged.
pub(in crate::http) async fn update(api: &Api, call: Call<Caller>) -> Result<Answer, ApiError> {
    let change = read(&call)?;
    let account = api.engine.change_account(&call.caller, change).await.map_err(not_found)?;
    Ok(Answer::json(StatusCode::OK, &SettingsView::new(&account)))
}

fn read(call: &Call<Caller>) -> Result<AccountChange, ApiError> {
    change_of(call.json()?)
}

/// Parses the members of `object` as a change. The panel's form uses it too.
pub(crate) fn change_of(object: Map<String, Value>) -> Result<AccountChange, ApiError> {
    let mut violations = Violations::new();
    let mut fields = Fields::new(object, &mut violations);
    fields.refuse_null(&["name", "time_zone", "content_retention_days", "hosted_unsubscribe", "keep_message_id"]);
    let name = fields.text("name").and_then(|text| fields.check("name", text.parse()));
    let time_zone = fields.text("time_zone").and_then(|text| fields.check("time_zone", text.parse()));
    let content_retention_days = fields.value("content_retention_days").and_then(|value| {
        let days = value.as_i64().ok_or(InvalidRetentionDays).and_then(RetentionDays::new);
        fields.check("content_retention_days", days)
    });
    let hosted_unsubscribe = fields.boolean("hosted_unsubscribe");
    let keep_message_id = fields.boolean("keep_message_id");
    fields.finish();
    let change = AccountChange {
        name,
        time_zone,
        content_retention_days,
        hosted_unsubscribe,
        keep_message_id,
        ..AccountChange::default()
    };
    Ok(violations.or(|| Some(change))?)
}
