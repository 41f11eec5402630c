//! Users of the panel, for the operator only (contract 8).

use hyper::StatusCode;

use super::id;
use super::listing::Listing;
use crate::base::id::AccountId;
use crate::domain::address::Address;
use crate::domain::fields::Fields;
use crate::domain::limits::USERS_COUNT;
use crate::domain::user::{NewPassword, User};
use crate::domain::violation::Violations;
use crate::engine::audit::Behalf;
use crate::engine::listing::Page;
use crate::engine::users::{UserChange, UserRefusal};
use crate::http::answer::Answer;
use crate::http::error::ApiError;
use crate::http::route::Call;
use crate::http::service::{ACCOUNT_HEADER, Authenticator as _};
use crate::http::state::Api;
use crate::http::view::user::{NewUserView, SetupLinkView, UserView};
use crate::store::error::OpError;

/// Returns the account that the operator acts for.
pub(super) async fn account(api: &Api, call: &Call<()>) -> Result<AccountId, ApiError> {
    let named = call.headers.get(ACCOUNT_HEADER).map(|value| value.to_str().unwrap_or(""));
    Ok(api.operator(named).await?.account)
}

/// Returns the user in the path, by identifier or address. An address determines the account, since it is unique in the
/// store.
async fn named(api: &Api, call: &Call<()>) -> Result<(AccountId, User), ApiError> {
    if let Ok(email) = call.param("id").parse::<Address>() {
        let found = api.engine.user_by_email(&email)?.ok_or(ApiError::NotFound)?;
        let is_of_other = call.headers.contains_key(ACCOUNT_HEADER) && account(api, call).await? != found.0;
        return if is_of_other { Err(ApiError::NotFound) } else { Ok(found) };
    }
    let account = account(api, call).await?;
    let user = api.engine.user(account, id(call)?)?.ok_or(ApiError::NotFound)?;
    Ok((account, user))
}

/// `POST /v1/users`: generates a password, which is shown only in this answer.
pub(in crate::http) async fn create(api: &Api, call: Call<()>) -> Result<Answer, ApiError> {
    let account = account(api, &call).await?;
    let mut violations = Violations::new();
    let mut fields = Fields::new(call.json()?, &mut violations);
    let email = fields.required_text("email").and_then(|text| fields.check("email", text.parse()));
    let role = fields.required_text("role").and_then(|text| fields.check("role", text.parse()));
    fields.finish();
    let (email, role) = violations.or(|| email.zip(role))?;
    let (user, password) = api.engine.create_user(Behalf::operator(account), email, role).await.map_err(refused)?;
    let answer = Answer::json(StatusCode::CREATED, &NewUserView::new(&user, password.expose()));
    Ok(answer.with_location(&format!("/v1/users/{}", user.id)))
}

/// `GET /v1/users`.
pub(in crate::http) async fn list(api: &Api, call: Call<()>) -> Result<Answer, ApiError> {
    let account = account(api, &call).await?;
    let listing = Listing::plain(&call, "users", account)?;
    let Page { rows, next } = api.engine.users(account, listing.page)?;
    listing.answer_of(rows.iter().map(UserView::new), next)
}

/// `GET /v1/users/{id}`.
pub(in crate::http) async fn show(api: &Api, call: Call<()>) -> Result<Answer, ApiError> {
    call.no_query()?;
    let (_, user) = named(api, &call).await?;
    Ok(Answer::json(StatusCode::OK, &UserView::new(&user)))
}

/// `PATCH /v1/users/{id}`: role, disabled, operator. `"new_password": true` generates a password and shows it once,
/// `"totp": false` removes a lost second factor, `"setup_link": true` returns a link for choosing a password.
pub(in crate::http) async fn update(api: &Api, call: Call<()>) -> Result<Answer, ApiError> {
    let (account, user) = named(api, &call).await?;
    let id = user.id;
    let mut violations = Violations::new();
    let mut fields = Fields::new(call.json()?, &mut violations);
    let role = fields.text("role").and_then(|text| fields.check("role", text.parse()));
    let disabled = fields.boolean("disabled");
    let operator = fields.boolean("operator");
    let totp = fields.boolean("totp");
    if totp == Some(true) {
        fields.fault("totp", "can only be false here: users set up their second factor in the panel");
    }
    let is_renewed = fields.boolean("new_password") == Some(true);
    let is_linked = fields.boolean("setup_link") == Some(true);
    if is_renewed && is_linked {
        fields.fault("setup_link", "is for a password that its user chooses; leave out \"new_password\"");
    }
    fields.finish();
    violations.or(|| Some(()))?;
    let kept_out = || ApiError::Conflict("The user is disabled; enable the user first.".to_owned());
    // This is checked before any change, so that a refused request changes nothing.
    if is_linked && disabled.unwrap_or(user.disabled) {
        return Err(kept_out());
    }
    let password = is_renewed.then(|| NewPassword::generate(&*api.engine.entropy));
    let totp = totp.map(|_| None);
    let change = UserChange { role, disabled, password: password.clone(), totp, ..UserChange::default() };
    let is_changed = role.is_some() || disabled.is_some() || password.is_some() || change.totp.is_some();
    let user = match is_changed {
        true => api.engine.change_user(Behalf::operator(account), id, change).await.map_err(refused)?,
        false => user,
    };
    let user = match operator {
        // The operator's right is a separate change, so that the audit log has a line for it.
        Some(_) => {
            let change = UserChange { operator, ..UserChange::default() };
            api.engine.change_user(Behalf::operator(account), id, change).await.map_err(refused)?
        }
        None => user,
    };
    if is_linked {
        let link = api.engine.setup_link(Behalf::operator(account), id).await?.ok_or_else(kept_out)?;
        return Ok(Answer::json(StatusCode::OK, &SetupLinkView::new(&user, &link)));
    }
    Ok(match password {
        Some(password) => Answer::json(StatusCode::OK, &NewUserView::new(&user, password.expose())),
        None => Answer::json(StatusCode::OK, &UserView::new(&user)),
    })
}

/// `DELETE /v1/users/{id}`.
pub(in crate::http) async fn delete(api: &Api, call: Call<()>) -> Result<Answer, ApiError> {
    call.no_query()?;
    let (account, user) = named(api, &call).await?;
    api.engine.delete_user(Behalf::operator(account), user.id).await.map_err(refused)?;
    Ok(Answer::no_content())
}

fn refused(stop: OpError<UserRefusal>) -> ApiError {
    match stop {
        OpError::Refused(UserRefusal::NotFound) => ApiError::NotFound,
        OpError::Refused(UserRefusal::EmailTaken) => {
            Violations::of("email", "is already a user of this service; use another address").into()
        }
        OpError::Refused(UserRefusal::TooMany) => too_many(),
        OpError::Refused(UserRefusal::LastOwner) => last_owner(),
        OpError::Refused(UserRefusal::Crowded) => ApiError::Overloaded,
        OpError::Failed(error) => error.into(),
    }
}

/// Returns the error of an account with the maximum number of users.
pub(crate) fn too_many() -> ApiError {
    ApiError::Conflict(format!("An account has at most {USERS_COUNT} panel users. Remove a user first."))
}

/// Returns the error of a change to the last owner who can sign in.
pub(crate) fn last_owner() -> ApiError {
    ApiError::Conflict("This is the account's last owner who can sign in. Make another user an owner first.".to_owned())
}
