//! Settings of the account, and of the visitor: password, second factor, sessions.

use askama::Template;
use hyper::StatusCode;
use serde_json::{Map, Value};

use crate::base::id::UserId;
use crate::domain::account::Account;
use crate::domain::session::{Session, SessionKey};
use crate::domain::user_agent::browser_name;
use crate::engine::users::UserChange;
use crate::http::answer::Answer;
use crate::http::error::ApiError;
use crate::http::handlers::settings::change_of;
use crate::panel::components::FormErrors;
use crate::panel::form::Form;
use crate::panel::html;
use crate::panel::layout::PageFrame;
use crate::panel::page_error::PageError;
use crate::panel::page_guard::Visit;
use crate::panel::timestamp::{Moment, ShortTime};
use crate::store::error::OpError;
use crate::store::op::NotFound;

/// Suggested time zones. The field accepts every zone of the IANA database.
const ZONES: [&str; 32] = [
    "UTC",
    "Europe/London",
    "Europe/Lisbon",
    "Europe/Paris",
    "Europe/Berlin",
    "Europe/Vienna",
    "Europe/Zurich",
    "Europe/Madrid",
    "Europe/Rome",
    "Europe/Warsaw",
    "Europe/Stockholm",
    "Europe/Helsinki",
    "Europe/Athens",
    "Europe/Kyiv",
    "Europe/Istanbul",
    "Africa/Cairo",
    "Africa/Lagos",
    "Africa/Johannesburg",
    "America/New_York",
    "America/Chicago",
    "America/Denver",
    "America/Los_Angeles",
    "America/Sao_Paulo",
    "America/Mexico_City",
    "Asia/Dubai",
    "Asia/Kolkata",
    "Asia/Singapore",
    "Asia/Shanghai",
    "Asia/Tokyo",
    "Australia/Sydney",
    "Pacific/Auckland",
    "America/Toronto",
];

#[derive(Template)]
#[template(path = "settings.html")]
struct SettingsPage {
    frame: PageFrame,
    account_id: String,
    values: Values,
    faults: FormErrors,
    password_fault: Option<String>,
    local_now: Moment,
    zones: &'static [&'static str],
    has_totp: bool,
    sessions: Vec<SessionLine>,
}

/// Values of the form fields: current settings or rejected input.
struct Values {
    name: String,
    time_zone: String,
    content_retention_days: String,
    hosted_unsubscribe: bool,
    keep_message_id: bool,
}

/// A session in the list.
pub(super) struct SessionLine {
    key: String,
    /// Time of the sign-in.
    pub(super) began: ShortTime,
    /// Time of the last request.
    pub(super) seen: ShortTime,
    /// The client's address.
    pub(super) address: String,
    /// Browser and system, such as `Firefox on Linux`.
    pub(super) browser: String,
    /// The `User-Agent` field.
    pub(super) agent: String,
    /// Whether it is the visitor's current session.
    pub(super) is_this: bool,
}

impl SessionLine {
    /// Returns the sessions of a user, newest first.
    pub(super) fn list(visit: &Visit<'_>, user: UserId) -> Result<Vec<Self>, PageError> {
        let sessions = visit.api.engine.sessions(visit.account_id(), user)?.into_iter();
        let line = |(key, session): (SessionKey, Session)| Self {
            key: hex::encode(key),
            began: visit.moment(session.created_at).short(visit.now),
            seen: visit.moment(session.seen_at).short(visit.now),
            address: session.address,
            browser: browser_name(&session.agent).unwrap_or_else(|| session.agent.clone()),
            agent: session.agent,
            is_this: key == visit.visitor.key,
        };
        Ok(sessions.map(line).collect())
    }
}

impl Values {
    fn of(account: &Account) -> Self {
        Self {
            name: account.name.as_str().to_owned(),
            time_zone: account.time_zone.as_str().to_owned(),
            content_retention_days: account.content_retention_days.to_string(),
            hosted_unsubscribe: account.hosted_unsubscribe,
            keep_message_id: account.keep_message_id,
        }
    }

    fn typed(form: &Form) -> Self {
        Self {
            name: form.text("name").to_owned(),
            time_zone: form.text("time_zone").to_owned(),
            content_retention_days: form.text("content_retention_days").to_owned(),
            hosted_unsubscribe: form.is_ticked("hosted_unsubscribe"),
            keep_message_id: form.is_ticked("keep_message_id"),
        }
    }

    /// Converts the form to the equivalent API body. Fields that the form lacks stay unchanged.
    fn as_body(form: &Form) -> Map<String, Value> {
        let mut body = Map::new();
        for name in ["name", "time_zone"] {
            body.extend(form.field(name).map(|text| (name.to_owned(), Value::from(text))));
        }
        if let Some(text) = form.field("content_retention_days") {
            let days = text.parse::<i64>().map_or_else(|_| Value::from(text), Value::from);
            body.insert("content_retention_days".to_owned(), days);
        }
        // Browsers don't send unticked boxes, so a hidden field says that the form has some.
        if form.is_ticked("has_boxes") {
            for name in ["hosted_unsubscribe", "keep_message_id"] {
                body.insert(name.to_owned(), Value::from(form.is_ticked(name)));
            }
        }
        body
    }
}

/// `GET /settings`.
pub(in crate::panel) async fn show(visit: Visit<'_>) -> Result<Answer, PageError> {
    let done = match Form::of_query(&visit.call).text("done") {
        "saved" => Some("Settings saved."),
        "password" => Some("Password changed. Every other session is signed out."),
        "sessions" => Some("Signed out."),
        "totp" => Some("Two-factor authentication is on."),
        "totp-removed" => Some("Two-factor authentication is off."),
        _ => None,
    };
    written(&visit, StatusCode::OK, Values::of(&visit.account), FormErrors::none(), None, done)
}

/// Renders the page, and the form with rejected input if there is any.
fn written(
    visit: &Visit<'_>,
    status: StatusCode,
    values: Values,
    faults: FormErrors,
    password_fault: Option<String>,
    done: Option<&'static str>,
) -> Result<Answer, PageError> {
    let page = SettingsPage {
        frame: PageFrame::new(visit, "Settings", "/settings")?.with_done(done),
        account_id: visit.account_id().to_string(),
        values,
        faults,
        password_fault,
        local_now: visit.moment(visit.now),
        zones: &ZONES,
        has_totp: visit.user().totp.is_some(),
        sessions: SessionLine::list(visit, visit.user().id)?,
    };
    html::page(status, &page)
}

/// Renders the page with the reason why the password was not changed.
pub(in crate::panel) fn with_password_fault(visit: &Visit<'_>, sentence: String) -> Result<Answer, PageError> {
    let values = Values::of(&visit.account);
    written(visit, StatusCode::UNPROCESSABLE_ENTITY, values, FormErrors::none(), Some(sentence), None)
}

/// `POST /settings`: changes the settings, with the API's checks.
pub(in crate::panel) async fn change(visit: Visit<'_>) -> Result<Answer, PageError> {
    let form = Form::of(&visit.call)?;
    let change = match change_of(Values::as_body(&form)) {
        Ok(change) => change,
        Err(ApiError::Invalid(violations)) => {
            let (values, faults) = (Values::typed(&form), violations.into());
            return written(&visit, StatusCode::UNPROCESSABLE_ENTITY, values, faults, None, None);
        }
        Err(error) => return Err(error.into()),
    };
    visit.api.engine.change_account(visit.on(), change).await.map_err(|stop| match stop {
        OpError::Refused(NotFound) => ApiError::NotFound,
        OpError::Failed(error) => error.into(),
    })?;
    Ok(html::redirect("/settings?done=saved"))
}

/// Changes the visitor's own user.
pub(in crate::panel) async fn change_own_user(visit: &Visit<'_>, change: UserChange) -> Result<(), PageError> {
    let changed = visit.api.engine.change_user(visit.on(), visit.user().id, change).await;
    changed.map(drop).map_err(super::users::refused)
}
