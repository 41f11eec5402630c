//! Error pages: the error, the remedy, and the request ID to quote.

use askama::Template;
use hyper::StatusCode;
use hyper::header::{ALLOW, HeaderMap, RETRY_AFTER};

use crate::domain::session::Stage;
use crate::domain::user::Role;
use crate::http::answer::Answer;
use crate::http::error::ApiError;
use crate::http::state::Api;
use crate::panel::cookie::{self, Theme};
use crate::panel::html;
use crate::panel::layout::BasePage;
use crate::panel::page_error::{ErrorText, PageError, words};
use crate::panel::sent_once::{self, NotSent};

#[derive(Template)]
#[template(path = "error.html")]
struct ErrorPage<'a> {
    base: BasePage,
    words: &'a ErrorText,
    status: u16,
    /// Code of the API's error. Empty for an error of the panel alone.
    code: &'static str,
    request_id: &'a str,
    is_signed_in: bool,
    /// Name of the account that an operator views.
    viewed: Option<String>,
    /// Page on which the action can be repeated, and the label of the link to it.
    again: Option<(String, &'static str)>,
}

/// Renders the page of an API error. The service calls it for requests from browsers.
pub fn page(api: &Api, error: &ApiError, headers: &HeaderMap, request_id: &str) -> Answer {
    let mut answer = written(api, (&words(error), error.code()), headers, request_id);
    if let Some(seconds) = error.retry_after() {
        answer = answer.with_header(RETRY_AFTER, &seconds.to_string());
    }
    if let ApiError::MethodNotAllowed(allow) = error {
        answer = answer.with_header(ALLOW, allow);
    }
    html::guarded(answer, false)
}

/// Renders the 403 of a cross-site form, or of a role without the right.
pub(in crate::panel) fn forbidden(api: &Api, fault: &PageError, headers: &HeaderMap, request_id: &str) -> Answer {
    let (title, sentence) = match fault {
        PageError::RoleForbids(Role::Member) => {
            ("Owners only", "Your role can only handle mail and suppressions. Ask an owner of the account.")
        }
        PageError::RoleForbids(_) => ("Owners only", "Your role is read-only. Ask an owner of the account."),
        PageError::OperatorsOnly => (
            "Operators only",
            "This page is for operators of the service. Operators are appointed on the server's command line.",
        ),
        PageError::ReadOnlyView => (
            "Not available in a view",
            "You are viewing this account as operator: read-only, without message content, secrets and exports. End \
             the view to continue.",
        ),
        PageError::ForeignForm
        | PageError::Api(_)
        | PageError::SignInFirst(_)
        | PageError::SessionEnded(_)
        | PageError::NotSent(..)
        | PageError::ProveFirst(_) => (
            "Form blocked",
            "The form did not come from this panel, so nothing was changed. Reload the page and send it again.",
        ),
    };
    let words = ErrorText { status: StatusCode::FORBIDDEN, title, sentence: sentence.into() };
    written(api, (&words, ""), headers, request_id)
}

/// Renders the 409 of a form that was not executed.
pub(in crate::panel) fn not_sent(
    api: &Api,
    (why, path): (NotSent, &str),
    headers: &HeaderMap,
    request_id: &str,
) -> Answer {
    let words = sent_once::words(why, path);
    let page =
        ErrorPage { again: Some(sent_once::page_of(path)), ..ErrorPage::new(api, (&words, ""), headers, request_id) };
    page.answer()
}

fn written(api: &Api, words: (&ErrorText, &'static str), headers: &HeaderMap, request_id: &str) -> Answer {
    ErrorPage::new(api, words, headers, request_id).answer()
}

impl<'a> ErrorPage<'a> {
    fn new(api: &Api, (words, code): (&'a ErrorText, &'static str), headers: &HeaderMap, request_id: &'a str) -> Self {
        let visitor = cookie::session(api, headers).and_then(|token| api.engine.visitor(&token).ok().flatten());
        let now = api.engine.clock.now();
        let viewed = visitor.as_ref().filter(|visitor| visitor.view(now).is_some()).and_then(|visitor| {
            let account = api.engine.account(visitor.sees(now)).ok().flatten()?;
            Some(account.name.as_str().to_owned())
        });
        Self {
            base: BasePage::new(words.title, Theme::of(headers)),
            words,
            status: words.status.as_u16(),
            code,
            request_id,
            viewed,
            again: None,
            is_signed_in: visitor.is_some_and(|visitor| visitor.session.stage == Stage::SignedIn),
        }
    }

    fn answer(&self) -> Answer {
        let words = self.words;
        html::page(words.status, self)
            .unwrap_or_else(|_| Answer::bytes(words.status, "text/plain; charset=utf-8", words.sentence.to_string()))
    }
}
