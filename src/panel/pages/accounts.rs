//! List of all accounts, for service operators: usage of each account, and a form that creates another.

use askama::Template;
use hyper::StatusCode;
use serde_json::{Map, Value};

use crate::base::id::AccountId;
use crate::domain::account::Account;
use crate::engine::listing::Page;
use crate::http::answer::Answer;
use crate::http::error::ApiError;
use crate::http::handlers::accounts::{NewAccount, new_of};
use crate::panel::components::{Badge, FormErrors, byte_size, grouped};
use crate::panel::form::Form;
use crate::panel::html;
use crate::panel::layout::PageFrame;
use crate::panel::page_error::PageError;
use crate::panel::page_guard::Visit;
use crate::panel::paging::{self, Paging};
use crate::panel::timestamp::ShortTime;

/// Rows of a page.
const ROWS: usize = 50;

#[derive(Template)]
#[template(path = "accounts.html")]
struct AccountsPage {
    frame: PageFrame,
    lines: Vec<AccountLine>,
    paging: Paging,
    form: AccountForm,
    may_send: bool,
}

/// An account in the list.
struct AccountLine {
    path: String,
    name: String,
    badge: Badge,
    today: String,
    quota: String,
    storage: String,
    created_at: ShortTime,
    is_own: bool,
}

/// Form of a new or existing account.
pub(super) struct AccountForm {
    /// Name of the account.
    pub(super) name: String,
    /// Quota of messages per hour.
    pub(super) per_hour: String,
    /// Quota of messages per day.
    pub(super) per_day: String,
    /// Errors of the fields.
    pub(super) faults: FormErrors,
}

impl AccountForm {
    /// Returns the form with the typed values.
    pub(super) fn typed(form: &Form, faults: FormErrors) -> Self {
        Self {
            name: form.text("name").to_owned(),
            per_hour: form.text("quota_per_hour").to_owned(),
            per_day: form.text("quota_per_day").to_owned(),
            faults,
        }
    }

    /// Returns the form with the account's current values.
    pub(super) fn of(account: &Account) -> Self {
        Self {
            name: account.name.as_str().to_owned(),
            per_hour: grouped(account.quota.per_hour),
            per_day: grouped(account.quota.per_day),
            faults: FormErrors::none(),
        }
    }
}

/// Converts the form to the equivalent API body. Numbers may be grouped by commas, as the form shows them. Invalid
/// numbers stay text, for the API's own check.
pub(super) fn as_body(form: &Form) -> Map<String, Value> {
    let mut body = Map::new();
    body.extend(form.field("name").map(|name| ("name".to_owned(), Value::from(name))));
    for name in ["quota_per_hour", "quota_per_day"] {
        if let Some(text) = form.given(name) {
            body.insert(
                name.to_owned(),
                text.replace(',', "").parse::<u64>().map_or_else(|_| Value::from(text), Value::from),
            );
        }
    }
    body
}

/// Returns the badge that shows whether an account may send.
pub(super) const fn badge_of(is_suspended: bool) -> Badge {
    if is_suspended { Badge::new("Suspended", "bad", "stop") } else { Badge::new("Active", "good", "check") }
}

/// `GET /accounts`.
pub(in crate::panel) async fn list(visit: Visit<'_>) -> Result<Answer, PageError> {
    let quota = visit.api.engine.settings.quota;
    let form = AccountForm {
        name: String::new(),
        per_hour: grouped(quota.per_hour),
        per_day: grouped(quota.per_day),
        faults: FormErrors::none(),
    };
    written(&visit, StatusCode::OK, form)
}

fn written(visit: &Visit<'_>, status: StatusCode, form: AccountForm) -> Result<Answer, PageError> {
    let query = Form::of_query(&visit.call);
    let done = match query.text("done") {
        "view-ended" => Some("View ended."),
        _ => None,
    };
    let Page { rows, next } = visit.api.engine.accounts(paging::request::<AccountId>(&query, ROWS))?;
    let page = AccountsPage {
        frame: PageFrame::new(visit, "Accounts", "/accounts")?.with_done(done),
        lines: rows.iter().map(|account| line(visit, account)).collect::<Result<_, PageError>>()?,
        paging: Paging::new::<AccountId>("/accounts", &[], &query, next),
        form,
        may_send: visit.may_operate(),
    };
    html::page(status, &page)
}

fn line(visit: &Visit<'_>, account: &Account) -> Result<AccountLine, PageError> {
    let engine = &visit.api.engine;
    let quota = engine.quota(account)?;
    Ok(AccountLine {
        path: format!("/accounts/{}", account.id),
        name: account.name.as_str().to_owned(),
        badge: badge_of(engine.suspension(account.id)?.is_some()),
        today: grouped(quota.day.used),
        quota: grouped(quota.day.limit),
        storage: byte_size(engine.stored_bytes(account.id)?),
        created_at: visit.moment(account.created_at).short(visit.now),
        is_own: account.id == visit.own_account_id(),
    })
}

/// `POST /accounts`.
pub(in crate::panel) async fn create(visit: Visit<'_>) -> Result<Answer, PageError> {
    let form = Form::of(&visit.call)?;
    let engine = &visit.api.engine;
    let NewAccount { name, time_zone, quota } = match new_of(as_body(&form), engine.settings.quota) {
        Ok(new) => new,
        Err(ApiError::Invalid(faults)) => {
            let form = AccountForm::typed(&form, faults.into());
            return written(&visit, StatusCode::UNPROCESSABLE_ENTITY, form);
        }
        Err(error) => return Err(error.into()),
    };
    let by = Some(visit.on().actor);
    let account = engine.create_account_by(by, name, time_zone, quota).await?;
    Ok(html::redirect(&format!("/accounts/{}?done=created", account.id)))
}
