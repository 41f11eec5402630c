//! Sign-in with OpenID Connect: the redirect to the provider, and the callback. A failure is a page with one sentence
//! and the request ID. The log has the reason under the same request ID, without an address.

use askama::Template;
use hyper::StatusCode;
use hyper::header::{RETRY_AFTER, SET_COOKIE};
use url::form_urlencoded;

use super::login::{entered, leave_other};
use crate::domain::session::Stage;
use crate::engine::oidc::{BeginOidc, CALLBACK, OidcRefusal, ProviderReturn, SignedIn};
use crate::engine::ports::Clock as _;
use crate::http::answer::Answer;
use crate::http::error::ApiError;
use crate::http::route::Call;
use crate::http::state::Api;
use crate::net::clock::SystemClock;
use crate::panel::cookie::{self, Theme};
use crate::panel::form::{Form, own_address};
use crate::panel::html;
use crate::panel::layout::BasePage;
use crate::panel::page_error::PageError;
use crate::panel::page_guard::{address_of, client_of};
use crate::store::error::OpError;

/// Maximum length, in characters, of a setup link's token, because the cookie contains it.
const LINK_MAX: usize = 200;

#[derive(Template)]
#[template(path = "oidc.html")]
struct RefusedPage<'a> {
    base: BasePage,
    sentence: &'a str,
    request_id: &'a str,
}

/// Link that starts a sign-in at the provider.
pub(super) struct ProviderLink {
    /// Host of the provider.
    pub(super) name: String,
    /// Our path that redirects to the provider.
    pub(super) path: String,
}

impl ProviderLink {
    /// Returns the link of a sign-in that continues to `next`. With `is_again` the provider must authenticate the user
    /// again.
    pub(super) fn new(api: &Api, next: &str, is_again: bool) -> Option<Self> {
        let name = api.engine.oidc.get()?.provider_name().to_owned();
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.append_pair("next", next);
        query.extend_pairs(is_again.then_some(("again", "1")));
        Some(Self { name, path: format!("/login/oidc?{}", query.finish()) })
    }

    /// Returns the link for the page of the setup link with this token.
    pub(super) fn of_setup(api: &Api, token: &str) -> Option<Self> {
        let name = api.engine.oidc.get()?.provider_name().to_owned();
        let mut query = form_urlencoded::Serializer::new(String::new());
        Some(Self { name, path: format!("/login/oidc?{}", query.append_pair("link", token).finish()) })
    }
}

/// `GET /login/oidc`.
pub(in crate::panel) async fn begin(api: &Api, call: Call<()>) -> Result<Answer, PageError> {
    let oidc = api.engine.oidc.get().ok_or(ApiError::NotFound)?;
    let query = Form::of_query(&call);
    let (next, is_again, link) = (own_address(query.text("next")), query.is_ticked("again"), query.text("link"));
    let link = if link.len() > LINK_MAX { "" } else { link };
    let is_new = !is_again && link.is_empty();
    if is_new && super::login::visitor(api, &call)?.is_some_and(|one| one.session.stage == Stage::SignedIn) {
        return Ok(html::redirect(next));
    }
    let begin = BeginOidc { next, is_again, link };
    match api.engine.begin_oidc(oidc, begin, &address_of(&call), SystemClock::new().now()).await {
        Ok((url, cookie)) => Ok(html::redirect(url.as_str()).with_header(SET_COOKIE, &cookie::with_oidc(api, &cookie))),
        Err(refusal) => refused(&call, &refusal),
    }
}

/// `GET /login/oidc/callback`.
pub(in crate::panel) async fn finish(api: &Api, call: Call<()>) -> Result<Answer, PageError> {
    debug_assert_eq!(call.path(), CALLBACK);
    api.engine.oidc.get().ok_or(ApiError::NotFound)?;
    let query = Form::of_query(&call);
    let [state, code, error] = ["state", "code", "error"].map(|name| query.text(name).to_owned());
    let issuer = query.field("iss").map(str::to_owned);
    let cookie = cookie::oidc(api, &call.headers).to_owned();
    let (returned, address) = (ProviderReturn { cookie, state, code, error, issuer }, address_of(&call));
    let from = client_of(api, &call, &address);
    let answer = match api.engine.finish_oidc(returned, from, SystemClock::new().now()).await {
        Ok(SignedIn { begun, next }) => {
            leave_other(api, &call).await?;
            Ok(entered(api, &begun, &next))
        }
        Err(OpError::Refused(refusal)) => refused(&call, &refusal),
        Err(OpError::Failed(error)) => Err(error.into()),
    };
    // The callback always ends the sign-in, even if it failed.
    answer.map(|answer| answer.and_header(SET_COOKIE, &cookie::without_oidc(api)))
}

/// Renders the page of a refusal.
fn refused(call: &Call<()>, refusal: &OidcRefusal) -> Result<Answer, PageError> {
    tracing::warn!(request_id = &*call.request_id, reason = %refusal, "sign-in by OpenID Connect failed");
    let (status, sentence) = match refusal {
        OidcRefusal::NotStarted => (
            StatusCode::BAD_REQUEST,
            "This browser has not started this sign-in, or it took longer than 10 minutes: start again.",
        ),
        OidcRefusal::Denied(_) => (StatusCode::FORBIDDEN, "The identity provider refused the sign-in."),
        OidcRefusal::Provider(_) | OidcRefusal::Slow => (
            StatusCode::BAD_GATEWAY,
            "The identity provider can't be reached or returned an invalid answer: try again later.",
        ),
        OidcRefusal::Issuer | OidcRefusal::Token(_) | OidcRefusal::OtherSubject => {
            (StatusCode::BAD_GATEWAY, "The identity provider's answer can't be trusted, so you were not signed in.")
        }
        OidcRefusal::Unverified => {
            (StatusCode::FORBIDDEN, "The identity provider has not verified your email address.")
        }
        OidcRefusal::Nobody => {
            (StatusCode::FORBIDDEN, "There is no user with your address: ask an owner of the account to add you.")
        }
        OidcRefusal::OtherAddress => (StatusCode::FORBIDDEN, "This invitation is for another address."),
        OidcRefusal::Taken => {
            (StatusCode::FORBIDDEN, "The user with your address signs in with another identity: ask an owner.")
        }
        OidcRefusal::Disabled => (StatusCode::FORBIDDEN, "You aren't allowed to sign in. Ask an owner of the account."),
        OidcRefusal::Closed => (StatusCode::FORBIDDEN, "The account accepts no new users: ask one of its owners."),
        OidcRefusal::Throttled(_) => (StatusCode::TOO_MANY_REQUESTS, "Too many failed attempts: try again later."),
        OidcRefusal::Crowded => return Err(ApiError::Overloaded.into()),
    };
    let base = BasePage::new("Sign-in failed", Theme::of(&call.headers));
    let answer = html::page(status, &RefusedPage { base, sentence, request_id: &call.request_id })?;
    Ok(match refusal {
        OidcRefusal::Throttled(throttled) => answer.with_header(RETRY_AFTER, &throttled.retry_after_secs.to_string()),
        _ => answer,
    })
}
