//! Errors as pages: what happened, what to do, and the request to quote. In the frame for whoever is signed in.

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
use crate::panel::layout::PageFrame;
use crate::panel::page_error::{ErrorText, Fault, words};

#[derive(Template)]
#[template(path = "error.html")]
struct ErrorPage<'a> {
    sheet: PageFrame,
    words: &'a ErrorText,
    status: u16,
    request_id: &'a str,
    is_signed_in: bool,
}

/// The page of an error that the API has too; the service asks for it where a person looks.
pub fn page(api: &Api, error: &ApiError, headers: &HeaderMap, request_id: &str) -> Answer {
    let mut answer = written(api, &words(error), headers, request_id);
    if let Some(seconds) = error.retry_after() {
        answer = answer.with_header(RETRY_AFTER, &seconds.to_string());
    }
    if let ApiError::MethodNotAllowed(allow) = error {
        answer = answer.with_header(ALLOW, allow);
    }
    html::guarded(answer, false)
}

/// The 403 of a form from elsewhere, or of a role that only looks.
pub(in crate::panel) fn forbidden(api: &Api, fault: &Fault, headers: &HeaderMap, request_id: &str) -> Answer {
    let (title, sentence) = match fault {
        Fault::RoleForbids(Role::Member) => (
            "Owners only",
            "Your role handles mail and suppressions, and changes nothing else. Ask an owner of the account.",
        ),
        Fault::RoleForbids(_) => {
            ("Owners only", "Your role looks at everything and changes nothing. Ask an owner of the account.")
        }
        Fault::OperatorsOnly => (
            "Operators only",
            "This page is for the operators of the service. The command line names them on the server.",
        ),
        Fault::ReadOnlyView => (
            "Not in a view",
            "You look at this account as operator: read-only, and without message content, secrets and exports. End \
             the view to go on.",
        ),
        Fault::ForeignForm | Fault::Api(_) | Fault::SignInFirst(_) | Fault::ProveFirst(_) => (
            "Form blocked",
            "It was not sent by a page of this panel, so nothing was changed. Reload the page and send it again.",
        ),
    };
    let words = ErrorText { status: StatusCode::FORBIDDEN, title, sentence: sentence.into() };
    written(api, &words, headers, request_id)
}

fn written(api: &Api, words: &ErrorText, headers: &HeaderMap, request_id: &str) -> Answer {
    let visitor = cookie::session(api, headers).and_then(|token| api.engine.visitor(&token).ok().flatten());
    let page = ErrorPage {
        sheet: PageFrame::new(words.title, Theme::of(headers)),
        words,
        status: words.status.as_u16(),
        request_id,
        is_signed_in: visitor.is_some_and(|visitor| visitor.session.stage == Stage::SignedIn),
    };
    html::page(words.status, &page)
        .unwrap_or_else(|_| Answer::bytes(words.status, "text/plain; charset=utf-8", words.sentence.to_string()))
}
