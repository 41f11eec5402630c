//! Password confirmation, with the second factor if the user has one, before secrets are shown or access is granted. It
//! is valid for 15 minutes, as after a sign-in.

use askama::Template;
use hyper::StatusCode;

use super::login::LoginRefusal;
use super::oidc::ProviderLink;
use crate::engine::ports::Clock as _;
use crate::engine::sign_in::IdentityProof;
use crate::http::answer::Answer;
use crate::net::clock::SystemClock;
use crate::panel::cookie::Theme;
use crate::panel::form::{Form, own_address};
use crate::panel::html;
use crate::panel::layout::BasePage;
use crate::panel::page_error::PageError;
use crate::panel::page_guard::Visit;

const TITLE: &str = "Your password, please";

#[derive(Template)]
#[template(path = "proof.html")]
struct ProofPage<'a> {
    base: BasePage,
    email: &'a str,
    has_totp: bool,
    next: &'a str,
    refused: Option<String>,
    provider: Option<ProviderLink>,
}

impl<'a> ProofPage<'a> {
    fn new(visit: &'a Visit<'_>, next: &'a str, refused: Option<String>) -> Self {
        let user = visit.user();
        let base = BasePage::new(TITLE, Theme::of(&visit.call.headers));
        let provider = ProviderLink::new(visit.api, next, true);
        Self { base, email: user.email.as_given(), has_totp: user.totp.is_some(), next, refused, provider }
    }
}

/// `GET /login/confirm`.
pub(in crate::panel) async fn show(visit: Visit<'_>) -> Result<Answer, PageError> {
    let query = Form::of_query(&visit.call);
    html::page(StatusCode::OK, &ProofPage::new(&visit, own_address(query.text("next")), None))
}

/// `POST /login/confirm`.
pub(in crate::panel) async fn attempt(visit: Visit<'_>) -> Result<Answer, PageError> {
    let form = Form::of(&visit.call)?;
    let (next, password) = (own_address(form.text("next")), form.secret("password"));
    let shown = IdentityProof { password: &password, code: form.text("code") };
    match visit.api.engine.prove(&visit.visitor, shown, SystemClock::new().now()).await {
        Ok(()) => Ok(html::redirect(next)),
        Err(stop) => {
            let wrong = match &visit.user().totp {
                Some(_) => "Wrong password or code. Each code works once.",
                None => "Wrong password.",
            };
            let refused = LoginRefusal::of(stop, wrong)?;
            refused.answer(&ProofPage::new(&visit, next, Some(refused.sentence.clone())))
        }
    }
}
