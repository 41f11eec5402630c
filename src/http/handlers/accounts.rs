//! Accounts, for the operator alone (contract 8).

use hyper::StatusCode;

use super::listing::Listing;
use super::{id, no_query};
use crate::base::id::AccountId;
use crate::domain::fields::Fields;
use crate::domain::violation::Violations;
use crate::engine::listing::Page;
use crate::http::answer::Answer;
use crate::http::error::ApiError;
use crate::http::route::Call;
use crate::http::state::Api;
use crate::http::view::account::AccountView;

/// `POST /v1/accounts`.
pub(in crate::http) async fn create(api: &Api, call: Call<()>) -> Result<Answer, ApiError> {
    let mut violations = Violations::new();
    let mut fields = Fields::new(call.json()?, &mut violations);
    let name = fields.required_text("name").and_then(|text| fields.check("name", text.parse()));
    fields.finish();
    let name = violations.or(|| name)?;
    let account = api.engine.create_account(name).await?;
    let answer = Answer::json(StatusCode::CREATED, &AccountView::new(&account));
    Ok(answer.with_location(&format!("/v1/accounts/{}", account.id)))
}

/// `GET /v1/accounts`.
pub(in crate::http) async fn list(api: &Api, call: Call<()>) -> Result<Answer, ApiError> {
    let listing = Listing::plain(&call, "accounts", AccountId::default())?;
    let Page { rows, next } = api.engine.accounts(listing.page)?;
    listing.answer_of(rows.iter().map(AccountView::new), next)
}

/// `GET /v1/accounts/{id}`.
pub(in crate::http) async fn show(api: &Api, call: Call<()>) -> Result<Answer, ApiError> {
    no_query(&call)?;
    let account = api.engine.account(id(&call)?)?.ok_or(ApiError::NotFound)?;
    Ok(Answer::json(StatusCode::OK, &AccountView::new(&account)))
}
