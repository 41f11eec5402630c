//! The password once more, before secrets are told or doors opened to others.

use askama::Template;
use hyper::StatusCode;

use super::login::Refused;
use crate::http::answer::Answer;
use crate::panel::cookie::Theme;
use crate::panel::door::{Visit, address_of, client_of};
use crate::panel::fault::Fault;
use crate::panel::form::{Form, own_address};
use crate::panel::frame::Sheet;
use crate::panel::html;

#[derive(Template)]
#[template(path = "proof.html")]
struct ProofPage<'a> {
    sheet: Sheet,
    email: &'a str,
    next: &'a str,
    refused: Option<String>,
}

/// `GET /login/confirm`.
pub(in crate::panel) async fn show(visit: Visit<'_>) -> Result<Answer, Fault> {
    let query = Form::of_query(&visit.call);
    let sheet = Sheet::new("Your password, please", Theme::of(&visit.call.headers));
    let (email, next) = (visit.user().email.as_given(), own_address(query.text("next")));
    html::page(StatusCode::OK, &ProofPage { sheet, email, next, refused: None })
}

/// `POST /login/confirm`.
pub(in crate::panel) async fn attempt(visit: Visit<'_>) -> Result<Answer, Fault> {
    let form = Form::of(&visit.call)?;
    let (next, address) = (own_address(form.text("next")), address_of(&visit.call));
    let from = client_of(&visit.call, &address);
    match visit.api.engine.prove(&visit.visitor, &form.secret("password"), from).await {
        Ok(()) => Ok(html::redirect(next)),
        Err(stop) => {
            let refused = Refused::of(stop, "That is not your password.")?;
            let sheet = Sheet::new("Your password, please", Theme::of(&visit.call.headers));
            let (email, sentence) = (visit.user().email.as_given(), refused.sentence.clone());
            refused.answer(&ProofPage { sheet, email, next, refused: Some(sentence) })
        }
    }
}
