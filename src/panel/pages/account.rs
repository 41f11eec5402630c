//! Page of one account, for service operators: usage, rates, users, quota, suspension, and the operator's view.

use askama::Template;
use hyper::StatusCode;

use super::accounts::{AccountForm, as_body, badge_of};
use crate::base::id::AccountId;
use crate::domain::account::Account;
use crate::domain::limits::USERS_COUNT;
use crate::domain::user::Role;
use crate::engine::listing::PageRequest;
use crate::http::answer::Answer;
use crate::http::error::ApiError;
use crate::http::handlers::accounts::{change_of, reason_of};
use crate::http::handlers::not_found;
use crate::machine::quota::WindowView;
use crate::panel::components::{Badge, FormErrors, byte_size, grouped};
use crate::panel::form::Form;
use crate::panel::html;
use crate::panel::layout::PageFrame;
use crate::panel::page_error::PageError;
use crate::panel::page_guard::Visit;
use crate::panel::sender_reputation::{AccountReputation, StandingLine};
use crate::panel::timestamp::Moment;
use crate::panel::trend::{Links, Span, Trend};
use crate::store::error::OpError;
use crate::store::op::view::BeginViewRefusal;

#[derive(Template)]
#[template(path = "account.html")]
struct AccountPage {
    frame: PageFrame,
    id: AccountId,
    name: String,
    badge: Badge,
    suspension: Option<Suspension>,
    facts: Vec<(&'static str, String)>,
    created_at: Moment,
    usage: Trend,
    rates: Vec<StandingLine>,
    users: Vec<(Role, usize)>,
    has_owner: bool,
    form: AccountForm,
    reason: String,
    reason_faults: FormErrors,
    view_reason: String,
    view_faults: FormErrors,
    may_send: bool,
    is_own: bool,
}

/// The current suspension.
struct Suspension {
    since: Moment,
    reason: String,
}

/// Rejected form input.
struct RejectedInput {
    form: AccountForm,
    reason: (String, FormErrors),
    view: (String, FormErrors),
}

impl RejectedInput {
    fn nothing(account: &Account) -> Self {
        let none = || (String::new(), FormErrors::none());
        Self { form: AccountForm::of(account), reason: none(), view: none() }
    }
}

fn find(visit: &Visit<'_>) -> Result<Account, PageError> {
    visit.api.engine.account(visit.id()?)?.ok_or_else(|| ApiError::NotFound.into())
}

/// `GET /accounts/{id}`.
pub(in crate::panel) async fn show(visit: Visit<'_>) -> Result<Answer, PageError> {
    let account = find(&visit)?;
    let typed = RejectedInput::nothing(&account);
    written(&visit, StatusCode::OK, &account, typed)
}

fn written(
    visit: &Visit<'_>,
    status: StatusCode,
    account: &Account,
    typed: RejectedInput,
) -> Result<Answer, PageError> {
    let engine = &visit.api.engine;
    let done = match Form::of_query(&visit.call).text("done") {
        "created" => Some("Account created. Add its first owner on the server: `postrider user add`."),
        "saved" => Some("Account saved."),
        "suspended" => Some("Account suspended: it is read-only and sends no mail."),
        "resumed" => Some("Account resumed: its queue and webhooks continue."),
        "view-ended" => Some("View ended."),
        _ => None,
    };
    let zone = visit.account.time_zone.zone();
    let outcomes = engine.outcomes(account.id, &Span::Month.question(visit.now, &zone, None))?;
    let before = engine.outcomes(account.id, &Span::Month.question_before(visit.now, &zone, None))?;
    let (suspension, users) = (engine.suspension(account.id)?, users(visit, account.id)?);
    let page = AccountPage {
        frame: PageFrame::new(visit, account.name.as_str(), "/accounts")?.with_done(done),
        id: account.id,
        name: account.name.as_str().to_owned(),
        badge: badge_of(suspension.is_some()),
        suspension: suspension
            .map(|row| Suspension { since: visit.detail(row.since), reason: row.reason.as_str().to_owned() }),
        facts: facts(visit, account)?,
        created_at: visit.detail(account.created_at),
        usage: Trend::new(&before, &outcomes, Span::Month, &zone, Links::None),
        rates: AccountReputation::new(&engine.reputation(account.id)?, visit.now, &zone).lines,
        has_owner: users.iter().any(|(role, count)| *role == Role::Owner && *count > 0),
        users,
        form: typed.form,
        reason: typed.reason.0,
        reason_faults: typed.reason.1,
        view_reason: typed.view.0,
        view_faults: typed.view.1,
        may_send: visit.may_operate(),
        is_own: account.id == visit.own_account_id(),
    };
    html::page(status, &page)
}

fn facts(visit: &Visit<'_>, account: &Account) -> Result<Vec<(&'static str, String)>, PageError> {
    let engine = &visit.api.engine;
    let quota = engine.quota(account)?;
    let window = |view: WindowView| format!("{} of {}", grouped(view.used), grouped(view.limit));
    let stored = byte_size(engine.stored_bytes(account.id)?);
    let storage = match engine.settings.stored_bytes_per_account {
        0 => format!("{stored}, no limit"),
        limit => format!("{stored} of {}", byte_size(limit)),
    };
    Ok(vec![
        ("Messages this hour", window(quota.hour)),
        ("Messages today (UTC)", window(quota.day)),
        ("Storage", storage),
        ("Content retention", format!("{} days", account.content_retention_days)),
        ("Time zone", account.time_zone.as_str().to_owned()),
    ])
}

/// Returns the number of users of each role.
fn users(visit: &Visit<'_>, account: AccountId) -> Result<Vec<(Role, usize)>, PageError> {
    let page = PageRequest { before: None, limit: USERS_COUNT };
    let users = visit.api.engine.users(account, page)?.rows;
    let count = |role: Role| users.iter().filter(|user| user.role == role).count();
    Ok(Role::ALL.into_iter().rev().map(|role| (role, count(role))).collect())
}

fn back(id: AccountId, done: &str) -> Answer {
    html::redirect(&format!("/accounts/{id}?done={done}"))
}

/// `POST /accounts/{id}`: changes name and quota.
pub(in crate::panel) async fn change(visit: Visit<'_>) -> Result<Answer, PageError> {
    let (account, form) = (find(&visit)?, Form::of(&visit.call)?);
    let change = match change_of(as_body(&form)) {
        Ok(change) => change,
        Err(ApiError::Invalid(faults)) => {
            let typed =
                RejectedInput { form: AccountForm::typed(&form, faults.into()), ..RejectedInput::nothing(&account) };
            return written(&visit, StatusCode::UNPROCESSABLE_ENTITY, &account, typed);
        }
        Err(error) => return Err(error.into()),
    };
    visit.api.engine.change_account(visit.on_account(account.id), change).await.map_err(not_found)?;
    Ok(back(account.id, "saved"))
}

/// `POST /accounts/{id}/suspend`.
pub(in crate::panel) async fn suspend(visit: Visit<'_>) -> Result<Answer, PageError> {
    let (account, form) = (find(&visit)?, Form::of(&visit.call)?);
    let reason = match reason_of(form.as_body(&["reason"])) {
        Ok(reason) => reason,
        Err(ApiError::Invalid(faults)) => {
            let reason = (form.text("reason").to_owned(), faults.into());
            let typed = RejectedInput { reason, ..RejectedInput::nothing(&account) };
            return written(&visit, StatusCode::UNPROCESSABLE_ENTITY, &account, typed);
        }
        Err(error) => return Err(error.into()),
    };
    visit.api.engine.suspend_account(visit.on_account(account.id), reason).await.map_err(not_found)?;
    Ok(back(account.id, "suspended"))
}

/// `POST /accounts/{id}/resume`.
pub(in crate::panel) async fn resume(visit: Visit<'_>) -> Result<Answer, PageError> {
    let account = find(&visit)?;
    visit.api.engine.resume_account(visit.on_account(account.id)).await.map_err(not_found)?;
    Ok(back(account.id, "resumed"))
}

/// `POST /accounts/{id}/view`: starts the operator's view of the account.
pub(in crate::panel) async fn begin_view(visit: Visit<'_>) -> Result<Answer, PageError> {
    let (account, form) = (find(&visit)?, Form::of(&visit.call)?);
    let reason = match reason_of(form.as_body(&["reason"])) {
        Ok(reason) => reason,
        Err(ApiError::Invalid(faults)) => {
            let view = (form.text("reason").to_owned(), faults.into());
            let typed = RejectedInput { view, ..RejectedInput::nothing(&account) };
            return written(&visit, StatusCode::UNPROCESSABLE_ENTITY, &account, typed);
        }
        Err(error) => return Err(error.into()),
    };
    match visit.api.engine.begin_view(visit.visitor.key, account.id, reason).await {
        Ok(_) => Ok(html::redirect("/")),
        Err(OpError::Refused(BeginViewRefusal::NoSuchAccount)) => Err(ApiError::NotFound.into()),
        Err(OpError::Refused(BeginViewRefusal::NotOperator)) => Err(PageError::OperatorsOnly),
        Err(OpError::Failed(error)) => Err(error.into()),
    }
}

/// `POST /view/end`: returns to the operator's own account. An expired view is not an error.
pub(in crate::panel) async fn end_view(visit: Visit<'_>) -> Result<Answer, PageError> {
    let viewed = visit.view().map(|view| view.account);
    visit.api.engine.end_view(visit.visitor.key).await?;
    Ok(match viewed {
        Some(id) => back(id, "view-ended"),
        None => html::redirect("/"),
    })
}
