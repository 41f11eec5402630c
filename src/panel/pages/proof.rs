//! Password confirmation, with the second factor if the user has one, before secrets are shown or access is granted. It
//! is valid for 15 minutes, as after a sign-in. A form that needs it is kept in the page meanwhile, and is sent
//! afterwards. A new sign-in at the identity provider leaves the page, so the service keeps the form for it.

use askama::Template;
use hyper::StatusCode;
use url::form_urlencoded;

use super::login::LoginRefusal;
use super::oidc::ProviderLink;
use crate::base::secret::Secret;
use crate::engine::oidc;
use crate::engine::ports::Clock as _;
use crate::engine::sign_in::IdentityProof;
use crate::http::answer::Answer;
use crate::net::clock::SystemClock;
use crate::panel::cookie::Theme;
use crate::panel::form::{Form, own_address};
use crate::panel::html;
use crate::panel::kept_form::KeptForm;
use crate::panel::layout::BasePage;
use crate::panel::page_error::PageError;
use crate::panel::page_guard::Visit;

const TITLE: &str = "Confirm password";
/// Path that continues with a form that the service kept.
const RESUME: &str = "/login/confirm/form";

#[derive(Template)]
#[template(path = "proof.html")]
struct ProofPage<'a> {
    base: BasePage,
    email: &'a str,
    has_totp: bool,
    next: &'a str,
    /// Page that needs no confirmation, for those who don't continue.
    cancel: String,
    refused: Option<String>,
    provider: Option<ProviderLink>,
    kept: Option<KeptForm>,
}

impl<'a> ProofPage<'a> {
    fn new(visit: &'a Visit<'_>, next: &'a str, refused: Option<String>, kept: Option<KeptForm>) -> Self {
        let user = visit.user();
        let base = BasePage::new(TITLE, Theme::of(&visit.call.headers));
        let form = kept.as_ref().and_then(|kept| keep(kept, visit, next));
        let provider = ProviderLink::new(visit.api, form.as_deref().unwrap_or(next), true);
        let (email, has_totp) = (user.email.as_given(), user.totp.is_some());
        Self { base, email, has_totp, next, cancel: without_proof(next), refused, provider, kept }
    }
}

/// Keeps a form while its user signs in again at the identity provider. Returns the path that continues with it, or
/// `None` without a provider.
fn keep(kept: &KeptForm, visit: &Visit<'_>, next: &str) -> Option<String> {
    let forms = &visit.api.engine.oidc.get()?.forms;
    let form = oidc::KeptForm { path: kept.path.clone(), body: Secret::new(kept.body.as_str()) };
    let name = forms.keep(visit.user().id, form, SystemClock::new().now(), &*visit.api.engine.entropy);
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.append_pair("name", &name).append_pair("next", next);
    Some(format!("{RESUME}?{}", query.finish()))
}

/// Returns the page to leave to instead of `next`, which may itself ask for the confirmation.
fn without_proof(next: &str) -> String {
    let (path, query) = next.split_once('?').unwrap_or((next, ""));
    match path {
        RESUME => without_proof(own_address(Form::read(query.as_bytes()).text("next"))),
        "/login/confirm" => "/".to_owned(),
        "/settings/totp" => "/settings".to_owned(),
        _ => next.to_owned(),
    }
}

/// `GET /login/confirm`.
pub(in crate::panel) async fn show(visit: Visit<'_>) -> Result<Answer, PageError> {
    let query = Form::of_query(&visit.call);
    html::page(StatusCode::OK, &ProofPage::new(&visit, own_address(query.text("next")), None, None))
}

/// Asks for the password before a page that needs it. A form is kept in the page; without one the visitor is redirected
/// to the confirmation, and then to `next`.
pub(in crate::panel) fn ask_first(visit: &Visit<'_>, next: String) -> Result<Answer, PageError> {
    match KeptForm::of_request(&visit.call) {
        Some(kept) => html::page(StatusCode::FORBIDDEN, &ProofPage::new(visit, &next, None, Some(kept))),
        None => Err(PageError::ProveFirst(next)),
    }
}

/// `POST /login/confirm`.
pub(in crate::panel) async fn attempt(visit: Visit<'_>) -> Result<Answer, PageError> {
    let form = Form::of(&visit.call)?;
    let (next, password) = (own_address(form.text("next")), form.secret("password"));
    let shown = IdentityProof { password: &password, code: form.text("code") };
    match visit.api.engine.prove(&visit.visitor, shown, SystemClock::new().now()).await {
        Ok(()) => match KeptForm::carried_by(&form) {
            Some(kept) => kept.answer(Theme::of(&visit.call.headers), "Password confirmed", next),
            None => Ok(html::redirect(next)),
        },
        Err(stop) => {
            let wrong = match &visit.user().totp {
                Some(_) => "Wrong password or code. Each code works once.",
                None => "Wrong password.",
            };
            let refused = LoginRefusal::of(stop, wrong)?;
            refused.answer(&ProofPage::new(&visit, next, Some(refused.sentence.clone()), KeptForm::carried_by(&form)))
        }
    }
}

/// `GET /login/confirm/form`: continues with a kept form after a new sign-in at the identity provider.
pub(in crate::panel) async fn resume(visit: Visit<'_>) -> Result<Answer, PageError> {
    if !visit.is_proved() {
        return Err(PageError::ProveFirst(visit.call.path_and_query().to_owned()));
    }
    let query = Form::of_query(&visit.call);
    let (next, now) = (own_address(query.text("next")), SystemClock::new().now());
    let provider = visit.api.engine.oidc.get();
    match provider.and_then(|oidc| oidc.forms.take(visit.user().id, query.text("name"), now)) {
        Some(form) => {
            let kept = KeptForm { path: form.path, body: form.body.expose_text().to_owned() };
            kept.answer(Theme::of(&visit.call.headers), "Signed in again", next)
        }
        None => Ok(html::redirect(next)),
    }
}
