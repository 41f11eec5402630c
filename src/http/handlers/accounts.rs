//! Accounts, for the operator only (contract 8).

use hyper::StatusCode;
use serde_json::{Map, Value};

use super::listing::Listing;
use super::{id, not_found};
use crate::base::id::AccountId;
use crate::domain::account::{Account, AccountName, InvalidReason, QuotaLimits, TimeZoneName};
use crate::domain::fields::Fields;
use crate::domain::violation::Violations;
use crate::engine::accounts::AccountChange;
use crate::engine::audit::Behalf;
use crate::engine::listing::Page;
use crate::http::answer::Answer;
use crate::http::error::ApiError;
use crate::http::route::Call;
use crate::http::state::Api;
use crate::http::view::account::AccountView;

/// A request for a new account.
pub(crate) struct NewAccount {
    /// Name.
    pub(crate) name: AccountName,
    /// Time zone.
    pub(crate) time_zone: Option<TimeZoneName>,
    /// Sending quota.
    pub(crate) quota: QuotaLimits,
}

/// Parses the members of `object` as a new account. The panel's form uses it too.
pub(crate) fn new_of(object: Map<String, Value>, usual: QuotaLimits) -> Result<NewAccount, ApiError> {
    let mut violations = Violations::new();
    let mut fields = Fields::new(object, &mut violations);
    let name = fields.required_text("name").and_then(|text| fields.check("name", text.parse()));
    let time_zone = fields.text("time_zone").and_then(|text| fields.check("time_zone", text.parse()));
    let per_hour = count(&mut fields, "quota_per_hour").unwrap_or(usual.per_hour);
    let per_day = count(&mut fields, "quota_per_day").unwrap_or(usual.per_day);
    fields.finish();
    let name = violations.or(|| name)?;
    Ok(NewAccount { name, time_zone, quota: QuotaLimits { per_hour, per_day } })
}

/// `POST /v1/accounts`.
pub(in crate::http) async fn create(api: &Api, call: Call<()>) -> Result<Answer, ApiError> {
    let NewAccount { name, time_zone, quota } = new_of(call.json()?, api.engine.settings.quota)?;
    let account = api.engine.create_account(name, time_zone, quota).await?;
    let answer = Answer::json(StatusCode::CREATED, &AccountView::new(&account, None));
    Ok(answer.with_location(&format!("/v1/accounts/{}", account.id)))
}

fn count(fields: &mut Fields<'_>, name: &'static str) -> Option<u64> {
    let value = fields.value(name)?;
    let count = value.as_u64();
    if count.is_none() {
        fields.fault(name, "must be a whole number, 0 or more");
    }
    count
}

/// `GET /v1/accounts`.
pub(in crate::http) async fn list(api: &Api, call: Call<()>) -> Result<Answer, ApiError> {
    let listing = Listing::plain(&call, "accounts", AccountId::default())?;
    let Page { rows, next } = api.engine.accounts(listing.page)?;
    let suspension = |account: &Account| api.engine.suspension(account.id);
    let suspensions = rows.iter().map(suspension).collect::<Result<Vec<_>, _>>()?;
    let views = rows.iter().zip(suspensions).map(|(account, suspension)| AccountView::new(account, suspension));
    listing.answer_of(views, next)
}

/// `GET /v1/accounts/{id}`.
pub(in crate::http) async fn show(api: &Api, call: Call<()>) -> Result<Answer, ApiError> {
    call.no_query()?;
    shown(api, id(&call)?)
}

/// Returns an account as it is now.
fn shown(api: &Api, id: AccountId) -> Result<Answer, ApiError> {
    let account = api.engine.account(id)?.ok_or(ApiError::NotFound)?;
    Ok(Answer::json(StatusCode::OK, &AccountView::new(&account, api.engine.suspension(id)?)))
}

/// Parses the reason in `object`: for a suspension, or for viewing the account.
pub(crate) fn reason_of<R>(object: Map<String, Value>) -> Result<R, ApiError>
where
    R: std::str::FromStr<Err = InvalidReason>,
{
    let mut violations = Violations::new();
    let mut fields = Fields::new(object, &mut violations);
    let reason = fields.required_text("reason").and_then(|text| fields.check("reason", text.parse()));
    fields.finish();
    Ok(violations.or(|| reason)?)
}

/// `POST /v1/accounts/{id}/suspend`.
pub(in crate::http) async fn suspend(api: &Api, call: Call<()>) -> Result<Answer, ApiError> {
    let id: AccountId = id(&call)?;
    // An unknown account is a 404 even if the body is invalid.
    api.engine.account(id)?.ok_or(ApiError::NotFound)?;
    let reason = reason_of(call.json()?)?;
    api.engine.suspend_account(Behalf::operator(id), reason).await.map_err(not_found)?;
    shown(api, id)
}

/// `POST /v1/accounts/{id}/resume`.
pub(in crate::http) async fn resume(api: &Api, call: Call<()>) -> Result<Answer, ApiError> {
    let id: AccountId = id(&call)?;
    api.engine.account(id)?.ok_or(ApiError::NotFound)?;
    call.no_query()?;
    api.engine.resume_account(Behalf::operator(id)).await.map_err(not_found)?;
    shown(api, id)
}

/// `PATCH /v1/accounts/{id}`. Missing members stay unchanged.
pub(in crate::http) async fn update(api: &Api, call: Call<()>) -> Result<Answer, ApiError> {
    let id: AccountId = id(&call)?;
    // An unknown account is a 404 even if the body is invalid.
    api.engine.account(id)?.ok_or(ApiError::NotFound)?;
    let change = change_of(call.json()?)?;
    let account = api.engine.change_account(Behalf::operator(id), change).await.map_err(not_found)?;
    Ok(Answer::json(StatusCode::OK, &AccountView::new(&account, api.engine.suspension(id)?)))
}

/// Parses the members of `object` as a change. The panel's form uses it too.
pub(crate) fn change_of(object: Map<String, Value>) -> Result<AccountChange, ApiError> {
    let mut violations = Violations::new();
    let mut fields = Fields::new(object, &mut violations);
    fields.refuse_null(&["name", "time_zone", "quota_per_hour", "quota_per_day"]);
    let name = fields.text("name").and_then(|text| fields.check("name", text.parse()));
    let time_zone = fields.text("time_zone").and_then(|text| fields.check("time_zone", text.parse()));
    let quota_per_hour = count(&mut fields, "quota_per_hour");
    let quota_per_day = count(&mut fields, "quota_per_day");
    fields.finish();
    let change = AccountChange { name, time_zone, quota_per_hour, quota_per_day, ..AccountChange::default() };
    Ok(violations.or(|| Some(change))?)
}
