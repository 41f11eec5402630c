//! Page guard: checks a form's origin, the session and the visitor's rights. Every page is behind it, so a page can't
//! forget the check.

use hyper::Method;
use hyper::header::USER_AGENT;
use url::form_urlencoded;

use super::cookie;
use super::form::NEXT_MAX;
use super::html;
use super::kept_form::KeptForm;
use super::page_error::PageError;
use super::pages::{error, login, proof};
use super::prose::Prose;
use super::same_origin::is_same_origin;
use super::sent_once;
use super::timestamp::Moment;
use crate::base::id::AccountId;
use crate::base::time::Timestamp;
use crate::domain::account::Account;
use crate::domain::audit::{Actor, Person};
use crate::domain::network::Network;
use crate::domain::session::{Client, Stage, View};
use crate::domain::user::User;
use crate::engine::Engine;
use crate::engine::alerts::listing::AlertsOf;
use crate::engine::audit::Behalf;
use crate::engine::messages::MessageRecord;
use crate::engine::ports::BoxFuture;
use crate::engine::sign_in::Visitor;
use crate::http::answer::Answer;
use crate::http::body_budget::BudgetHolder;
use crate::http::error::ApiError;
use crate::http::route::Call;
use crate::http::state::Api;
use crate::mail::read::{ReadParts, parts_of};

/// The right that a page requires. An operator's view of an account allows only reads of [`Need::Look`] and
/// [`Need::Operate`], and [`Need::Leave`]. A page that shows more must therefore require a stronger right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    /// A session. The page shows no message content, secrets or exports.
    Look,
    /// A session of the account's own users: message content, whole records, files.
    Private,
    /// A session, to end the session or the operator's view.
    Leave,
    /// The right of a service operator.
    Operate,
    /// A session, for changes of the visitor's own user.
    Own,
    /// A session, for changes of the data that the account stores for the visitor. A suspended account changes nothing.
    OwnStored,
    /// A session and a recently confirmed password, for changes of the visitor's sign-in.
    OwnSecret,
    /// A role that handles mail.
    Handle,
    /// A role that changes settings.
    Change,
    /// A role that changes settings, and a recently confirmed password: secrets are shown, or access is granted.
    Secret,
}

impl Need {
    /// Whether the password must have been confirmed recently.
    const fn is_proved_first(self) -> bool {
        matches!(self, Self::Secret | Self::OwnSecret)
    }
}

/// A request by a signed-in visitor with the required right.
pub(super) struct Visit<'v> {
    /// The services that pages call.
    pub(super) api: &'v Api,
    /// The request.
    pub(super) call: Call<()>,
    /// User and session of the visitor.
    pub(super) visitor: Visitor,
    /// The account on display: the visitor's own account, or the one that an operator views.
    pub(super) account: Account,
    /// Time of the request.
    pub(super) now: Timestamp,
}

impl Visit<'_> {
    /// Returns the identifier of the account on display.
    pub(super) const fn account_id(&self) -> AccountId {
        self.account.id
    }

    /// Returns the account that the visitor belongs to.
    pub(super) const fn own_account_id(&self) -> AccountId {
        self.visitor.session.account
    }

    /// Returns the operator's current view.
    pub(super) fn view(&self) -> Option<&View> {
        self.visitor.view(self.now)
    }

    /// Whether the visitor may make a request that needs this right.
    pub(super) fn may(&self, need: Need, method: &Method) -> bool {
        allowed(&self.visitor, need, method, self.now).is_ok()
    }

    /// Returns the alerts that the visitor sees: an operator also sees the service's, except in a view of an account.
    pub(super) fn alerts(&self) -> AlertsOf {
        match self.view().is_none() && self.may(Need::Operate, &Method::GET) {
            true => AlertsOf::Operator(self.account.id),
            false => AlertsOf::Account(self.account.id),
        }
    }

    /// Whether the visitor may send operator forms.
    pub(super) fn may_operate(&self) -> bool {
        self.may_send(Need::Operate)
    }

    /// Whether the visitor may send a form that needs this right.
    pub(super) fn may_send(&self, need: Need) -> bool {
        self.may(need, &Method::POST)
    }

    /// Returns the signed message. `None` after its content has expired, and in an operator's view. Pages read content
    /// only through this function.
    pub(super) async fn signed_message(&self, record: &MessageRecord) -> Result<Option<Vec<u8>>, PageError> {
        match self.view() {
            Some(_) => Ok(None),
            None => Ok(self.api.signed_message(self.account_id(), record).await?),
        }
    }

    /// Returns the message's parts, under the rules of [`Self::signed_message`].
    pub(super) async fn parts(&self, record: &MessageRecord) -> Result<Option<ReadParts>, PageError> {
        let list_fields = record.row.list_fields();
        match self.view() {
            Some(_) => Ok(None),
            None => {
                Ok(self.api.content(self.account_id(), record, move |signed| parts_of(&signed, list_fields)).await?)
            }
        }
    }

    /// Returns the signed-in user.
    pub(super) const fn user(&self) -> &User {
        &self.visitor.user
    }

    /// Returns the actor and account for the audit log.
    pub(super) fn on(&self) -> Behalf {
        let person = Person { user: self.user().id, email: self.user().email.as_given().to_owned() };
        Behalf::new(self.account_id(), Actor::Person(person))
    }

    /// Returns the actor, and another account, for an operator's change.
    pub(super) fn on_account(&self, account: AccountId) -> Behalf {
        Behalf { account, ..self.on() }
    }

    /// Whether the visitor may create and see secrets without confirming the password first.
    pub(super) fn is_proved(&self) -> bool {
        self.visitor.session.is_proved(self.now)
    }

    /// Returns a time in the account's time zone.
    pub(super) fn moment(&self, at: Timestamp) -> Moment {
        Moment::new(at, self.account.time_zone.zone())
    }

    /// Returns a sentence of the service with its code and times marked up.
    pub(super) fn prose(&self, text: &str) -> Prose {
        Prose::new(text, &self.account.time_zone.zone())
    }

    /// A moment on a detail page, with its age.
    pub(super) fn detail(&self, at: Timestamp) -> Moment {
        self.moment(at).aged(self.now)
    }

    /// The identifier in the path. One that is malformed is as unknown as any other.
    pub(super) fn id<T: std::str::FromStr>(&self) -> Result<T, PageError> {
        self.id_named("id")
    }

    /// The identifier `name` in a path with several identifiers.
    pub(super) fn id_named<T: std::str::FromStr>(&self, name: &str) -> Result<T, PageError> {
        self.call.param(name).parse().map_err(|_| ApiError::NotFound.into())
    }
}

/// Handler of a page: a function from a visit to a response.
pub(super) type PageHandler = for<'a> fn(Visit<'a>) -> BoxFuture<'a, Result<Answer, PageError>>;
/// Handler of a page that needs no session.
pub(super) type OpenHandler = for<'a> fn(&'a Api, Call<()>) -> BoxFuture<'a, Result<Answer, PageError>>;

/// Admits a visitor who has the required right, and shows the page.
pub(super) async fn enter(api: &Api, call: Call<()>, need: Need, page: PageHandler) -> Result<Answer, ApiError> {
    let asked = RequestParts::of(&call);
    match admit(api, &call, need).and_then(|admitted| within_rate(api, admitted)) {
        Ok((visitor, account)) => {
            let id = visitor.session.account;
            let visit = Visit { api, call, visitor, account, now: api.engine.clock.now() };
            let outcome = match need.is_proved_first() && !visit.is_proved() {
                true => proof::ask_first(&visit, back(&visit.call)),
                false if need == Need::Secret => sent_once::run(visit, page).await,
                false => page(visit).await,
            };
            Ok(asked.answer(api, outcome).for_account(id))
        }
        Err(PageError::SessionEnded(next)) => Ok(asked.answer(api, login::ask_first(api, &call, next))),
        Err(fault) => Ok(asked.answer(api, Err(fault))),
    }
}

/// Checks before a form is read whether the visitor may send it. Returns the holder of the memory budget for its bytes.
/// Without a session a small form is read like that of the sign-in, whose page then carries it.
pub(super) fn check(api: &Api, call: &Call<()>, need: Need) -> Result<BudgetHolder, Box<Answer>> {
    match admit(api, call, need) {
        Ok((visitor, _)) => Ok(BudgetHolder::Account(visitor.session.account)),
        Err(PageError::SessionEnded(_)) if KeptForm::is_announced_by(call) => Ok(stranger(call)),
        Err(fault) => Err(Box::new(RequestParts::of(call).answer(api, Err(fault)))),
    }
}

fn stranger(call: &Call<()>) -> BudgetHolder {
    BudgetHolder::Unauthenticated(call.client().address.map(Network::of_client))
}

/// Checks the origin of a form that needs no session, before the form is read.
pub(super) fn check_open(api: &Api, call: &Call<()>) -> Result<BudgetHolder, Box<Answer>> {
    if is_unsafe(call) && !is_same_origin(api, call) {
        return Err(Box::new(RequestParts::of(call).answer(api, Err(PageError::ForeignForm))));
    }
    Ok(stranger(call))
}

/// Admits any visitor, but rejects cross-site forms.
pub(super) async fn welcome(api: &Api, call: Call<()>, page: OpenHandler) -> Result<Answer, ApiError> {
    let asked = RequestParts::of(&call);
    let outcome = if is_unsafe(&call) && !is_same_origin(api, &call) {
        Err(PageError::ForeignForm)
    } else {
        page(api, call).await
    };
    Ok(asked.answer(api, outcome))
}

fn is_unsafe(call: &Call<()>) -> bool {
    call.method != Method::GET && call.method != Method::HEAD
}

fn admit(api: &Api, call: &Call<()>, need: Need) -> Result<(Visitor, Account), PageError> {
    if is_unsafe(call) && !is_same_origin(api, call) {
        return Err(PageError::ForeignForm);
    }
    let visitor = match cookie::session(api, &call.headers) {
        Some(token) => api.engine.visitor(&token)?,
        None => None,
    };
    let Some(visitor) = visitor.filter(|visitor| visitor.session.stage == Stage::SignedIn) else {
        let back = back(call);
        return Err(if is_unsafe(call) { PageError::SessionEnded(back) } else { PageError::SignInFirst(back) });
    };
    let now = api.engine.clock.now();
    allowed(&visitor, need, &call.method, now)?;
    let account = api.engine.account(visitor.sees(now))?.ok_or(ApiError::Internal)?;
    if is_unsafe(call)
        && matches!(need, Need::OwnStored | Need::Handle | Need::Change | Need::Secret)
        && let Some(suspension) = api.engine.suspension(account.id)?
    {
        return Err(ApiError::AccountSuspended(suspension.reason.as_str().to_owned()).into());
    }
    Ok((visitor, account))
}

/// Returns the page to continue at after a sign-in or a confirmation.
fn back(call: &Call<()>) -> String {
    if is_unsafe(call) { section_of(call.path()) } else { call.path_and_query().to_owned() }
}

/// Whether a visitor has the right for a request. This is the only guard of roles, operators and views.
fn allowed(visitor: &Visitor, need: Need, method: &Method, now: Timestamp) -> Result<(), PageError> {
    let role = visitor.user.role;
    let is_read = *method == Method::GET || *method == Method::HEAD;
    let is_viewing = visitor.view(now).is_some();
    match need {
        Need::Leave => Ok(()),
        Need::Operate if !visitor.user.is_operator => Err(PageError::OperatorsOnly),
        Need::Look | Need::Operate if is_viewing && !is_read => Err(PageError::ReadOnlyView),
        Need::Look | Need::Operate => Ok(()),
        _ if is_viewing => Err(PageError::ReadOnlyView),
        Need::Change | Need::Secret if !role.may_change() => Err(PageError::RoleForbids(role)),
        Need::Handle if !role.may_handle_mail() => Err(PageError::RoleForbids(role)),
        Need::Private | Need::Own | Need::OwnStored | Need::OwnSecret | Need::Handle | Need::Change | Need::Secret => {
            Ok(())
        }
    }
}

/// Counts a request of an admitted user against the rate limit.
fn within_rate(api: &Api, admitted: (Visitor, Account)) -> Result<(Visitor, Account), PageError> {
    let Engine { rates, clock, .. } = &*api.engine;
    match rates.admit_user(admitted.0.user.id, clock.monotonic()) {
        Ok(()) => Ok(admitted),
        Err(limited) => Err(ApiError::RateLimited(limited.retry_after_secs).into()),
    }
}

/// Returns the page that contains the form at a path: the record's page if there is one, else the list.
fn section_of(path: &str) -> String {
    let mut parts = path.trim_start_matches('/').split('/');
    match (parts.next(), parts.next().filter(|part| part.contains('_'))) {
        (Some(section @ ("webhooks" | "domains" | "keys" | "messages" | "accounts" | "users")), Some(id)) => {
            format!("/{section}/{id}")
        }
        // Forms without a page of their own.
        (Some("logout" | "view" | "test-message" | "login"), _) => "/".to_owned(),
        (section, _) => format!("/{}", section.unwrap_or_default()),
    }
}

/// Returns the page that contains the form at a path without a page of its own: the nearest page above it.
pub(super) fn page_above(path: &str) -> String {
    let (above, _) = path.rsplit_once('/').unwrap_or_default();
    match above.trim_start_matches('/').split('/').next().unwrap_or_default() {
        "" | "view" => "/".to_owned(),
        section @ "settings" => format!("/{section}"),
        _ => above.to_owned(),
    }
}

/// Returns the request's client, for the throttle and the session list.
pub(super) fn client_of<'c>(api: &Api, call: &'c Call<()>, address: &'c str) -> Client<'c> {
    let agent = call.header(&USER_AGENT).unwrap_or_default();
    Client { address, agent, device: cookie::device(api, &call.headers) }
}

/// Returns the client address as text.
pub(super) fn address_of(call: &Call<()>) -> String {
    call.client().address.map_or_else(String::new, |address| address.to_string())
}

/// Request parts that are kept for error pages.
struct RequestParts {
    headers: hyper::HeaderMap,
    request_id: std::sync::Arc<str>,
    encrypted: bool,
}

impl RequestParts {
    fn of(call: &Call<()>) -> Self {
        Self {
            headers: call.headers.clone(),
            request_id: std::sync::Arc::clone(&call.request_id),
            encrypted: call.is_encrypted(),
        }
    }

    fn answer(&self, api: &Api, outcome: Result<Answer, PageError>) -> Answer {
        let answer = outcome.unwrap_or_else(|fault| match fault {
            PageError::SignInFirst(back) => html::redirect(&with_next("/login", &back)),
            PageError::SessionEnded(back) => html::redirect(&with_next("/login?ended=1", &back)),
            PageError::ProveFirst(next) => html::redirect(&with_next("/login/confirm", &next)),
            PageError::Api(error) => error::page(api, &error, &self.headers, &self.request_id),
            PageError::NotSent(why, path) => error::not_sent(api, (why, &path), &self.headers, &self.request_id),
            PageError::ForeignForm | PageError::RoleForbids(_) | PageError::OperatorsOnly | PageError::ReadOnlyView => {
                error::forbidden(api, &fault, &self.headers, &self.request_id)
            }
        });
        html::guarded(answer, self.encrypted)
    }
}

/// Returns `path` with `next` as its final destination.
fn with_next(path: &str, next: &str) -> String {
    if next == "/" || next.len() > NEXT_MAX {
        return path.to_owned();
    }
    let next: String = form_urlencoded::byte_serialize(next.as_bytes()).collect();
    let separator = if path.contains('?') { '&' } else { '?' };
    format!("{path}{separator}next={next}")
}
