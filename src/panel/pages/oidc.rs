//! Signing in by OpenID Connect: the way to the provider, and the way back. A failure is a page with one sentence and
//! the request to quote; the log has its reason under the same request, without an address.

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
use crate::panel::layout::PageFrame;
use crate::panel::page_error::Fault;
use crate::panel::page_guard::{address_of, client_of};
use crate::store::error::OpError;

/// Characters of a setup link's token at most: the cookie carries it.
const LINK_MAX: usize = 200;

#[derive(Template)]
#[template(path = "oidc.html")]
struct RefusedPage<'a> {
    sheet: PageFrame,
    sentence: &'a str,
    request_id: &'a str,
}

/// The link to the provider, where there is one.
pub(super) struct ProviderLink {
    /// The provider's host.
    pub(super) name: String,
    /// Our address that leads there.
    pub(super) path: String,
}

impl ProviderLink {
    /// The link of a sign-in that leads to `next`. `is_again` has the provider ask the person even where it knows them.
    pub(super) fn new(api: &Api, next: &str, is_again: bool) -> Option<Self> {
        let name = api.engine.oidc.get()?.provider_name().to_owned();
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.append_pair("next", next);
        query.extend_pairs(is_again.then_some(("again", "1")));
        Some(Self { name, path: format!("/login/oidc?{}", query.finish()) })
    }

    /// The link on the page of the setup link that has this token.
    pub(super) fn of_setup(api: &Api, token: &str) -> Option<Self> {
        let name = api.engine.oidc.get()?.provider_name().to_owned();
        let mut query = form_urlencoded::Serializer::new(String::new());
        Some(Self { name, path: format!("/login/oidc?{}", query.append_pair("link", token).finish()) })
    }
}

/// `GET /login/oidc`.
pub(in crate::panel) async fn begin(api: &Api, call: Call<()>) -> Result<Answer, Fault> {
    let oidc = api.engine.oidc.get().ok_or(ApiError::NotFound)?;
    let query = Form::of_query(&call);
    let (next, is_again, link) = (own_address(query.text("next")), query.is_ticked("again"), query.text("link"));
    let link = if link.len() > LINK_MAX { "" } else { link };
    let is_new = !is_again && link.is_empty();
    if is_new && super::login::visitor(api, &call)?.is_some_and(|one| one.session.stage == Stage::SignedIn) {
        return Ok(html::redirect(next));
    }
    match api.engine.begin_oidc(oidc, BeginOidc { next, is_again, link }, SystemClock::new().now()).await {
        Ok((url, cookie)) => Ok(html::redirect(url.as_str()).with_header(SET_COOKIE, &cookie::with_oidc(api, &cookie))),
        Err(refusal) => refused(&call, &refusal),
    }
}

/// `GET /login/oidc/callback`.
pub(in crate::panel) async fn finish(api: &Api, call: Call<()>) -> Result<Answer, Fault> {
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
    // A sign-in ends with its answer, whatever that is.
    answer.map(|answer| answer.and_header(SET_COOKIE, &cookie::without_oidc(api)))
}

/// The page of a refusal.
fn refused(call: &Call<()>, refusal: &OidcRefusal) -> Result<Answer, Fault> {
    tracing::warn!(request_id = &*call.request_id, reason = %refusal, "sign-in by OpenID Connect failed");
    let (status, sentence) = match refusal {
        OidcRefusal::NotStarted => (
            StatusCode::BAD_REQUEST,
            "This browser has not started this sign-in, or it took longer than 10 minutes: start again.",
        ),
        OidcRefusal::Denied(_) => (StatusCode::FORBIDDEN, "The identity provider refused the sign-in."),
        OidcRefusal::Provider(_) | OidcRefusal::Slow => (
            StatusCode::BAD_GATEWAY,
            "The identity provider can't be reached, or gives wrong answers: try again later.",
        ),
        OidcRefusal::Issuer | OidcRefusal::Token(_) | OidcRefusal::OtherSubject => {
            (StatusCode::BAD_GATEWAY, "The identity provider's answer can't be trusted, so nobody was signed in.")
        }
        OidcRefusal::Unverified => {
            (StatusCode::FORBIDDEN, "The identity provider has not verified your email address.")
        }
        OidcRefusal::Nobody => {
            (StatusCode::FORBIDDEN, "There is no user with your address: ask an owner of the account to add you.")
        }
        OidcRefusal::Taken => {
            (StatusCode::FORBIDDEN, "The user with your address signs in with another identity: ask an owner.")
        }
        OidcRefusal::Disabled => (StatusCode::FORBIDDEN, "You may not sign in: ask an owner of the account."),
        OidcRefusal::Closed => (StatusCode::FORBIDDEN, "The account takes no new users: ask an owner of it."),
        OidcRefusal::Throttled(_) => (StatusCode::TOO_MANY_REQUESTS, "Too many attempts have failed: try again later."),
        OidcRefusal::Crowded => return Err(ApiError::Overloaded.into()),
    };
    let sheet = PageFrame::new("Sign-in failed", Theme::of(&call.headers));
    let answer = html::page(status, &RefusedPage { sheet, sentence, request_id: &call.request_id })?;
    Ok(match refusal {
        OidcRefusal::Throttled(throttled) => answer.with_header(RETRY_AFTER, &throttled.retry_after_secs.to_string()),
        _ => answer,
    })
}
