//! Forms whose answer shows a secret. If the browser reloads the answer, the form is not executed again: the page says
//! that it was done already, and how to get another secret.

use hyper::{Method, StatusCode};
use sha2::{Digest as _, Sha256};

use super::form::Form;
use super::page_error::{ErrorText, PageError};
use super::page_guard::{PageHandler, Visit, page_above};
use crate::http::answer::Answer;
use crate::http::sent_forms::{FormDigest, FormLookup};

/// Name of the field that has the number of the form's page. `once.html` writes it.
const FIELD: &str = "once";

/// The reason why a form was not executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NotSent {
    /// It was executed before.
    Repeated,
    /// The service was restarted after the page was opened, or the page is too old.
    Outdated,
}

/// Executes a form, unless it was executed before and has shown a secret. An answer with another status repeats
/// nothing: a redirect is not sent again, and a refused form has changed nothing.
pub(super) async fn run(visit: Visit<'_>, page: PageHandler) -> Result<Answer, PageError> {
    let form = Form::of(&visit.call)?;
    let Some(number) = form.given(FIELD).map(str::to_owned).filter(|_| visit.call.method == Method::POST) else {
        return page(visit).await;
    };
    let path = visit.call.path().to_owned();
    let not_sent = |why| Err(PageError::NotSent(why, path.clone()));
    let api = visit.api;
    match api.sent_forms.look_up(&number, digest(&visit, form)) {
        FormLookup::Repeated => not_sent(NotSent::Repeated),
        FormLookup::Outdated => not_sent(NotSent::Outdated),
        FormLookup::New(sent) => {
            let outcome = page(visit).await;
            if matches!(&outcome, Ok(answer) if answer.status() == StatusCode::OK) {
                sent.keep();
            }
            outcome
        }
    }
}

fn digest(visit: &Visit<'_>, form: Form) -> FormDigest {
    let mut hash = Sha256::new();
    let mut add = |text: &str| {
        hash.update(text.len().to_be_bytes());
        hash.update(text);
    };
    add(&visit.user().id.to_string());
    add(visit.call.path());
    for (name, value) in form.into_fields() {
        add(&name);
        add(&value);
    }
    hash.finalize().into()
}

/// Returns the page that says why the form at `path` was not executed.
pub(super) fn words(why: NotSent, path: &str) -> ErrorText {
    let (title, sentence) = match why {
        NotSent::Outdated => (
            "Page too old",
            "The service was restarted after this page was opened, or the page is too old. The form was not sent. Open \
             the page again and repeat the action.",
        ),
        NotSent::Repeated => ("Already done", done_already(path)),
    };
    ErrorText { status: StatusCode::CONFLICT, title, sentence: sentence.into() }
}

fn done_already(path: &str) -> &'static str {
    match path.trim_start_matches('/').split('/').collect::<Vec<_>>().as_slice() {
        ["keys"] => {
            "This API key was already created. Its secret can't be shown again. If you did not save it, revoke the key \
             and create another."
        }
        ["webhooks"] => {
            "This webhook was already created. Its signing secret can't be shown again. If you did not save it, open \
             the webhook and rotate the secret."
        }
        ["webhooks", _, "rotate-secret"] => {
            "The signing secret was already rotated. The new one can't be shown again. If you did not save it, rotate \
             the secret again."
        }
        ["users"] => {
            "This user was already added. The setup link can't be shown again. If you did not save it, open the user \
             and create another link."
        }
        ["users", _] => {
            "This action was already performed. The password or link can't be shown again. If you did not save it, \
             create another."
        }
        _ => "This form was already sent. Its result can't be shown again.",
    }
}

/// Returns the page on which the action can be repeated, and the label of the link to it.
pub(super) fn page_of(path: &str) -> (String, &'static str) {
    match path.trim_start_matches('/').split('/').collect::<Vec<_>>().as_slice() {
        ["keys"] => (path.to_owned(), "Open API keys"),
        ["webhooks"] => (path.to_owned(), "Open webhooks"),
        ["users"] => (path.to_owned(), "Open users"),
        ["users", _] => (path.to_owned(), "Open the user"),
        ["webhooks", _, "rotate-secret"] => (format!("{}?tab=settings", page_above(path)), "Open the webhook"),
        _ => (path.to_owned(), "Open the page"),
    }
}
