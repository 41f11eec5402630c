//! Sign-in and sign-out: email address and password, then the second factor if the user has one. All failures give the
//! same answer. A form that came after its session had ended is carried through the sign-in.

use askama::Template;
use hyper::StatusCode;
use hyper::header::{RETRY_AFTER, SET_COOKIE};

use super::oidc::ProviderLink;
use crate::domain::session::Stage;
use crate::engine::ports::Clock as _;
use crate::engine::sign_in::{SignInRefusal, StartedSession, Visitor};
use crate::http::answer::Answer;
use crate::http::error::ApiError;
use crate::http::route::Call;
use crate::http::state::Api;
use crate::net::clock::SystemClock;
use crate::panel::cookie::{self, Theme};
use crate::panel::form::{Form, own_address};
use crate::panel::html;
use crate::panel::kept_form::KeptForm;
use crate::panel::layout::BasePage;
use crate::panel::page_error::PageError;
use crate::panel::page_guard::{Visit, address_of, client_of};
use crate::store::error::OpError;

/// Maximum length, in characters, of an address that a page repeats.
const EMAIL_MAX: usize = 320;

#[derive(Template)]
#[template(path = "login.html")]
struct LoginPage<'a> {
    base: BasePage,
    email: &'a str,
    next: &'a str,
    refused: Option<String>,
    provider: Option<ProviderLink>,
    /// Whether a form came after the session had ended, and is lost.
    is_form_lost: bool,
    kept: Option<KeptForm>,
}

impl<'a> LoginPage<'a> {
    fn new(api: &Api, call: &Call<()>, (email, next): (&'a str, &'a str), refused: Option<String>) -> Self {
        let base = BasePage::new("Sign in", Theme::of(&call.headers));
        let provider = ProviderLink::new(api, next, false);
        Self { base, email: repeated(email), next, refused, provider, is_form_lost: false, kept: None }
    }
}

#[derive(Template)]
#[template(path = "code.html")]
struct CodePage<'a> {
    base: BasePage,
    next: &'a str,
    refused: Option<String>,
    kept: Option<KeptForm>,
}

impl<'a> CodePage<'a> {
    fn new(call: &Call<()>, next: &'a str, refused: Option<String>, kept: Option<KeptForm>) -> Self {
        Self { base: BasePage::new("Two-factor authentication", Theme::of(&call.headers)), next, refused, kept }
    }
}

/// Refusal of a sign-in as the user sees it.
pub(in crate::panel) struct LoginRefusal {
    status: StatusCode,
    /// Explanation in one sentence.
    pub(in crate::panel) sentence: String,
    /// Time to wait, in whole seconds.
    pub(in crate::panel) wait_seconds: Option<u64>,
}

impl LoginRefusal {
    /// Converts a refusal. All wrong credentials get the same sentence, `wrong`.
    ///
    /// # Errors
    /// Store errors.
    pub(in crate::panel) fn of(stop: OpError<SignInRefusal>, wrong: &str) -> Result<Self, PageError> {
        let (status, sentence, wait_seconds) = match stop {
            OpError::Refused(SignInRefusal::Wrong) => (StatusCode::UNAUTHORIZED, wrong.to_owned(), None),
            OpError::Refused(SignInRefusal::Throttled(throttled)) => {
                let seconds = throttled.retry_after_secs;
                let sentence = format!("Too many failed attempts. Wait {} min and try again.", seconds.div_ceil(60));
                (StatusCode::TOO_MANY_REQUESTS, sentence, Some(seconds))
            }
            OpError::Refused(SignInRefusal::Crowded) => return Err(ApiError::Overloaded.into()),
            OpError::Failed(error) => return Err(error.into()),
        };
        Ok(Self { status, sentence, wait_seconds })
    }

    /// Renders `page`, which shows the refusal, with the matching status.
    ///
    /// # Errors
    /// Fails if the page can't be rendered.
    pub(in crate::panel) fn answer(&self, page: &impl Template) -> Result<Answer, PageError> {
        let answer = html::page(self.status, page)?;
        Ok(match self.wait_seconds {
            Some(seconds) => answer.with_header(RETRY_AFTER, &seconds.to_string()),
            None => answer,
        })
    }
}

/// Returns the session in the request's cookie, at any stage of the sign-in.
pub(super) fn visitor(api: &Api, call: &Call<()>) -> Result<Option<Visitor>, PageError> {
    match cookie::session(api, &call.headers) {
        Some(token) => Ok(api.engine.visitor(&token)?),
        None => Ok(None),
    }
}

/// Returns the address for the page, or an empty string if it is longer than any valid address (RFC 5321 4.5.3.1).
fn repeated(email: &str) -> &str {
    if email.chars().nth(EMAIL_MAX).is_some() { "" } else { email }
}

/// `GET /login`.
pub(in crate::panel) async fn show(api: &Api, call: Call<()>) -> Result<Answer, PageError> {
    let query = Form::of_query(&call);
    let next = own_address(query.text("next"));
    if visitor(api, &call)?.is_some_and(|visitor| visitor.session.stage == Stage::SignedIn) {
        return Ok(html::redirect(next));
    }
    let page = LoginPage::new(api, &call, (query.text("email"), next), None);
    html::page(StatusCode::OK, &LoginPage { is_form_lost: query.is_ticked("ended"), ..page })
}

/// Asks for a sign-in before a form without a session. The page carries the form, unless that has a secret or is too
/// large.
pub(in crate::panel) fn ask_first(api: &Api, call: &Call<()>, next: String) -> Result<Answer, PageError> {
    match KeptForm::of_request(call).filter(|kept| !kept.has_secret()) {
        Some(kept) => {
            let page = LoginPage::new(api, call, ("", &next), None);
            html::page(StatusCode::FORBIDDEN, &LoginPage { kept: Some(kept), ..page })
        }
        None => Err(PageError::SessionEnded(next)),
    }
}

/// `POST /login`.
pub(in crate::panel) async fn attempt(api: &Api, call: Call<()>) -> Result<Answer, PageError> {
    let form = Form::of(&call)?;
    let (email, next) = (form.text("email"), own_address(form.text("next")));
    let address = address_of(&call);
    match api.engine.sign_in(email, &form.secret("password"), client_of(api, &call, &address)).await {
        Ok(begun) => {
            leave_other(api, &call).await?;
            entered_with(api, &call, &begun, next, KeptForm::carried_by(&form))
        }
        Err(stop) => {
            let refused = LoginRefusal::of(stop, "Wrong email or password.")?;
            let page = LoginPage::new(api, &call, (email, next), Some(refused.sentence.clone()));
            refused.answer(&LoginPage { kept: KeptForm::carried_by(&form), ..page })
        }
    }
}

/// Ends the session in the request's cookie, of any user: a token never outlives a sign-in.
pub(super) async fn leave_other(api: &Api, call: &Call<()>) -> Result<(), PageError> {
    if let Some(old) = visitor(api, call)? {
        api.engine.leave_session(old.session.account, old.session.user, old.key).await?;
    }
    Ok(())
}

pub(super) fn entered(api: &Api, begun: &StartedSession, next: &str) -> Answer {
    let to = match begun.stage {
        Stage::SignedIn => next.to_owned(),
        Stage::CodeAwaited => {
            let next: String = url::form_urlencoded::byte_serialize(next.as_bytes()).collect();
            format!("/login/code?next={next}")
        }
    };
    with_cookies(api, begun, html::redirect(&to))
}

/// The same with a form that the page of the sign-in carried.
fn entered_with(
    api: &Api,
    call: &Call<()>,
    begun: &StartedSession,
    next: &str,
    kept: Option<KeptForm>,
) -> Result<Answer, PageError> {
    let Some(kept) = kept else { return Ok(entered(api, begun, next)) };
    let answer = match begun.stage {
        Stage::SignedIn => kept.answer(Theme::of(&call.headers), "Signed in", next)?,
        Stage::CodeAwaited => html::page(StatusCode::OK, &CodePage::new(call, next, None, Some(kept)))?,
    };
    Ok(with_cookies(api, begun, answer))
}

fn with_cookies(api: &Api, begun: &StartedSession, answer: Answer) -> Answer {
    let answer = answer.with_header(SET_COOKIE, &cookie::with_session(api, &begun.token));
    match &begun.browser {
        Some(browser) => answer.and_header(SET_COOKIE, &cookie::with_device(api, browser)),
        None => answer,
    }
}

/// Returns the session that waits for its second factor.
fn awaiting(api: &Api, call: &Call<()>) -> Result<Visitor, PageError> {
    let found = visitor(api, call)?.filter(|visitor| visitor.session.stage == Stage::CodeAwaited);
    found.ok_or_else(|| PageError::SignInFirst("/".to_owned()))
}

/// `GET /login/code`.
pub(in crate::panel) async fn ask_code(api: &Api, call: Call<()>) -> Result<Answer, PageError> {
    awaiting(api, &call)?;
    let query = Form::of_query(&call);
    html::page(StatusCode::OK, &CodePage::new(&call, own_address(query.text("next")), None, None))
}

/// `POST /login/code`.
pub(in crate::panel) async fn attempt_code(api: &Api, call: Call<()>) -> Result<Answer, PageError> {
    let visitor = awaiting(api, &call)?;
    let form = Form::of(&call)?;
    let (next, address, kept) = (own_address(form.text("next")), address_of(&call), KeptForm::carried_by(&form));
    let real_now = SystemClock::new().now();
    match api.engine.show_code(&visitor, form.text("code"), client_of(api, &call, &address), real_now).await {
        Ok(begun) => entered_with(api, &call, &begun, next, kept),
        Err(stop) => {
            let refused = LoginRefusal::of(stop, "Wrong or used code.")?;
            refused.answer(&CodePage::new(&call, next, Some(refused.sentence.clone()), kept))
        }
    }
}

/// `POST /logout`.
pub(in crate::panel) async fn leave(visit: Visit<'_>) -> Result<Answer, PageError> {
    visit.api.engine.leave_session(visit.own_account_id(), visit.user().id, visit.visitor.key).await?;
    Ok(html::redirect("/login").with_header(SET_COOKIE, &cookie::without_session(visit.api)))
}
