//! The door of the panel: where a form came from, who it is, and what they may do. Every page is behind it, so no page
//! can forget to ask.

use hyper::Method;
use hyper::header::USER_AGENT;
use url::form_urlencoded;

use super::cookie;
use super::fault::Fault;
use super::form::NEXT_MAX;
use super::html;
use super::moment::Moment;
use super::pages::error;
use super::same_origin::is_same_origin;
use crate::base::id::AccountId;
use crate::base::time::Timestamp;
use crate::domain::account::Account;
use crate::domain::audit::{Actor, Person};
use crate::domain::network::Network;
use crate::domain::session::{Client, Stage};
use crate::domain::user::User;
use crate::engine::Engine;
use crate::engine::audit::Behalf;
use crate::engine::ports::BoxFuture;
use crate::engine::sign_in::Visitor;
use crate::http::answer::Answer;
use crate::http::body_budget::Holder;
use crate::http::error::ApiError;
use crate::http::route::Call;
use crate::http::state::Api;

/// What a visitor needs to come in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    /// A session.
    Look,
    /// A session; what is changed is the visitor's own.
    Own,
    /// The same, and a password shown lately: what is changed is how the visitor signs in.
    OwnSecret,
    /// A role that handles mail.
    Handle,
    /// The role that changes things.
    Change,
    /// The same, and a password shown lately: secrets are told, or doors opened to others.
    Secret,
}

/// A request by somebody who is signed in and may make it.
pub(super) struct Visit<'v> {
    /// Everything that pages call.
    pub(super) api: &'v Api,
    /// The request.
    pub(super) call: Call<()>,
    /// Whose session it is.
    pub(super) visitor: Visitor,
    /// Their account.
    pub(super) account: Account,
    /// The moment of the request.
    pub(super) now: Timestamp,
}

impl Visit<'_> {
    /// The account's identifier.
    pub(super) const fn account_id(&self) -> AccountId {
        self.visitor.session.account
    }

    /// Who looks.
    pub(super) const fn user(&self) -> &User {
        &self.visitor.user
    }

    /// For whom things are done here: what the visitor changes stands in the audit log.
    pub(super) fn on(&self) -> Behalf {
        let person = Person { user: self.user().id, email: self.user().email.as_given().to_owned() };
        Behalf::new(self.account_id(), Actor::Person(person))
    }

    /// Whether secrets may be made and told without asking for the password first.
    pub(super) fn is_proved(&self) -> bool {
        self.visitor.session.is_proved(self.now)
    }

    /// A moment as the account tells the time.
    pub(super) fn moment(&self, at: Timestamp) -> Moment {
        Moment::new(at, self.account.time_zone.zone())
    }

    /// The identifier in the path. One that is malformed is as unknown as any other.
    pub(super) fn id<T: std::str::FromStr>(&self) -> Result<T, Fault> {
        self.id_named("id")
    }

    /// The same for a path that has several.
    pub(super) fn id_named<T: std::str::FromStr>(&self, name: &str) -> Result<T, Fault> {
        self.call.param(name).parse().map_err(|_| ApiError::NotFound.into())
    }
}

/// What a page is: a function from a visit to an answer.
pub(super) type PageHandler = for<'a> fn(Visit<'a>) -> BoxFuture<'a, Result<Answer, Fault>>;
/// The same where nobody has to be signed in.
pub(super) type OpenHandler = for<'a> fn(&'a Api, Call<()>) -> BoxFuture<'a, Result<Answer, Fault>>;

/// Lets a visitor in who has what the page needs.
pub(super) async fn enter(api: &Api, call: Call<()>, need: Need, page: PageHandler) -> Result<Answer, ApiError> {
    let asked = Asked::of(&call);
    match admit(api, &call, need).and_then(|admitted| within_rate(api, admitted)) {
        Ok((visitor, account)) => {
            let id = account.id;
            let outcome = page(Visit { api, call, visitor, account, now: api.engine.clock.now() }).await;
            Ok(asked.answer(api, outcome).for_account(id))
        }
        Err(fault) => Ok(asked.answer(api, Err(fault))),
    }
}

/// Checks before a form is read whether the visitor may send it, and says whom its bytes are charged to.
pub(super) fn check(api: &Api, call: &Call<()>, need: Need) -> Result<Holder, Box<Answer>> {
    let admitted = admit(api, call, need);
    let refused = |fault| Box::new(Asked::of(call).answer(api, Err(fault)));
    admitted.map(|(_, account)| Holder::Account(account.id)).map_err(refused)
}

/// The same where nobody has to be signed in.
pub(super) fn check_open(api: &Api, call: &Call<()>) -> Result<Holder, Box<Answer>> {
    if is_unsafe(call) && !is_same_origin(api, call) {
        return Err(Box::new(Asked::of(call).answer(api, Err(Fault::ForeignForm))));
    }
    Ok(Holder::Stranger(call.client().address.map(Network::of_client)))
}

/// Lets anyone in, but no form from elsewhere.
pub(super) async fn welcome(api: &Api, call: Call<()>, page: OpenHandler) -> Result<Answer, ApiError> {
    let asked = Asked::of(&call);
    let outcome =
        if is_unsafe(&call) && !is_same_origin(api, &call) { Err(Fault::ForeignForm) } else { page(api, call).await };
    Ok(asked.answer(api, outcome))
}

fn is_unsafe(call: &Call<()>) -> bool {
    call.method != Method::GET && call.method != Method::HEAD
}

fn admit(api: &Api, call: &Call<()>, need: Need) -> Result<(Visitor, Account), Fault> {
    if is_unsafe(call) && !is_same_origin(api, call) {
        return Err(Fault::ForeignForm);
    }
    // What was typed into a form is typed again, on the page that the form stands on.
    let back = || if is_unsafe(call) { section_of(call.path()) } else { call.path_and_query().to_owned() };
    let visitor = match cookie::session(api, &call.headers) {
        Some(token) => api.engine.visitor(&token)?,
        None => None,
    };
    let Some(visitor) = visitor.filter(|visitor| visitor.session.stage == Stage::SignedIn) else {
        return Err(Fault::SignInFirst(back()));
    };
    let now = api.engine.clock.now();
    let role = visitor.user.role;
    match need {
        Need::Change | Need::Secret if !role.may_change() => return Err(Fault::RoleForbids(role)),
        Need::Handle if !role.may_handle_mail() => return Err(Fault::RoleForbids(role)),
        Need::Secret | Need::OwnSecret if !visitor.session.is_proved(now) => return Err(Fault::ProveFirst(back())),
        Need::Look | Need::Own | Need::OwnSecret | Need::Handle | Need::Change | Need::Secret => {}
    }
    let account = api.engine.account(visitor.session.account)?.ok_or(ApiError::Internal)?;
    if is_unsafe(call)
        && matches!(need, Need::Handle | Need::Change | Need::Secret)
        && let Some(suspension) = api.engine.suspension(account.id)?
    {
        return Err(ApiError::AccountSuspended(suspension.reason.as_str().to_owned()).into());
    }
    Ok((visitor, account))
}

/// Counts a request of a user who was let in.
fn within_rate(api: &Api, admitted: (Visitor, Account)) -> Result<(Visitor, Account), Fault> {
    let Engine { rates, clock, .. } = &*api.engine;
    match rates.admit_user(admitted.0.user.id, clock.monotonic()) {
        Ok(()) => Ok(admitted),
        Err(limited) => Err(ApiError::RateLimited(limited.retry_after_secs).into()),
    }
}

/// The page that the form at a path stands on: that of the record where it has one, else the list.
fn section_of(path: &str) -> String {
    let mut parts = path.trim_start_matches('/').split('/');
    match (parts.next(), parts.next(), parts.next()) {
        (Some(section @ ("webhooks" | "domains" | "keys" | "messages")), Some(id), Some(_)) => {
            format!("/{section}/{id}")
        }
        (section, _, _) => format!("/{}", section.unwrap_or_default()),
    }
}

/// Where a request comes from, for the throttle and the list of sessions.
pub(super) fn client_of<'c>(api: &Api, call: &'c Call<()>, address: &'c str) -> Client<'c> {
    let agent = call.header(&USER_AGENT).unwrap_or_default();
    Client { address, agent, device: cookie::device(api, &call.headers) }
}

/// The client's address as text.
pub(super) fn address_of(call: &Call<()>) -> String {
    call.client().address.map_or_else(String::new, |address| address.to_string())
}

/// What is kept of a request, for an answer that is not its page.
struct Asked {
    headers: hyper::HeaderMap,
    request_id: std::sync::Arc<str>,
    encrypted: bool,
}

impl Asked {
    fn of(call: &Call<()>) -> Self {
        Self {
            headers: call.headers.clone(),
            request_id: std::sync::Arc::clone(&call.request_id),
            encrypted: call.is_encrypted(),
        }
    }

    fn answer(&self, api: &Api, outcome: Result<Answer, Fault>) -> Answer {
        let answer = outcome.unwrap_or_else(|fault| match fault {
            Fault::SignInFirst(back) => html::redirect(&with_next("/login", &back)),
            Fault::ProveFirst(next) => html::redirect(&with_next("/login/confirm", &next)),
            Fault::Api(error) => error::page(api, &error, &self.headers, &self.request_id),
            Fault::ForeignForm | Fault::RoleForbids(_) => {
                error::forbidden(api, &fault, &self.headers, &self.request_id)
            }
        });
        html::guarded(answer, self.encrypted)
    }
}

/// `path`, which leads on to `next` in the end.
fn with_next(path: &str, next: &str) -> String {
    if next == "/" || next.len() > NEXT_MAX {
        return path.to_owned();
    }
    let next: String = form_urlencoded::byte_serialize(next.as_bytes()).collect();
    format!("{path}?next={next}")
}
