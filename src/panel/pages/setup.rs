//! Page of a setup link, where a user chooses a password and is signed in.

use askama::Template;
use hyper::StatusCode;

use super::login::{LoginRefusal, entered};
use super::oidc::ProviderLink;
use crate::domain::user::NewPassword;
use crate::http::answer::Answer;
use crate::http::route::Call;
use crate::http::state::Api;
use crate::panel::cookie::Theme;
use crate::panel::form::Form;
use crate::panel::html;
use crate::panel::layout::BasePage;
use crate::panel::page_error::PageError;
use crate::panel::page_guard::{address_of, client_of};

#[derive(Template)]
#[template(path = "setup.html")]
struct SetupPage<'a> {
    base: BasePage,
    /// Address of the user. `None` if the link is no longer valid.
    email: Option<&'a str>,
    token: &'a str,
    refused: Option<String>,
    provider: Option<ProviderLink>,
}

/// Renders the page of an invalid link. It does not reveal whether the link expired, was used, or never existed.
fn over(call: &Call<()>) -> Result<Answer, PageError> {
    let base = BasePage::new("Link expired", Theme::of(&call.headers));
    html::page(StatusCode::GONE, &SetupPage { base, email: None, token: "", refused: None, provider: None })
}

fn asked(
    api: &Api,
    call: &Call<()>,
    status: StatusCode,
    email: &str,
    token: &str,
    refused: Option<String>,
) -> Result<Answer, PageError> {
    let base = BasePage::new("Choose your password", Theme::of(&call.headers));
    let provider = ProviderLink::of_setup(api, token);
    html::page(status, &SetupPage { base, email: Some(email), token, refused, provider })
}

/// `GET /setup`: shows the form. It changes nothing, so a link scanner does not use up the link.
pub(in crate::panel) async fn show(api: &Api, call: Call<()>) -> Result<Answer, PageError> {
    let query = Form::of_query(&call);
    let token = query.text("token");
    match api.engine.user_by_link(token)? {
        Some(linked) => asked(api, &call, StatusCode::OK, linked.user.email.as_given(), token, None),
        None => over(&call),
    }
}

/// `POST /setup`.
pub(in crate::panel) async fn choose(api: &Api, call: Call<()>) -> Result<Answer, PageError> {
    let form = Form::of(&call)?;
    let token = form.text("token");
    let Some(found) = api.engine.user_by_link(token)? else { return over(&call) };
    let email = found.user.email.as_given().to_owned();
    let password = match NewPassword::chosen(form.secret("password").expose_text(), &found.user.email) {
        Ok(password) => password,
        Err(weak) => {
            let sentence = format!("The password {weak}.");
            return asked(api, &call, StatusCode::UNPROCESSABLE_ENTITY, &email, token, Some(sentence));
        }
    };
    let address = address_of(&call);
    match api.engine.set_up(found, password, client_of(api, &call, &address)).await {
        Ok(begun) => Ok(entered(api, &begun, "/")),
        Err(stop) => {
            // Another request has used the link in the meantime.
            LoginRefusal::of(stop, "")?;
            over(&call)
        }
    }
}
