//! API keys of the account with their permissions and last use, and a form that creates another.

use askama::Template;
use hyper::StatusCode;
use jiff::civil::Date;
use serde_json::{Map, Value};

use crate::base::id::KeyId;
use crate::base::time::Timestamp;
use crate::domain::api_key::{ApiKey, Scope};
use crate::domain::stream::Stream;
use crate::engine::listing::Page;
use crate::http::answer::Answer;
use crate::http::error::ApiError;
use crate::http::handlers::keys::{new_of, refused};
use crate::panel::components::{Badge, FormErrors};
use crate::panel::form::Form;
use crate::panel::html;
use crate::panel::layout::PageFrame;
use crate::panel::page_error::PageError;
use crate::panel::page_guard::Visit;
use crate::panel::paging::{self, Paging};
use crate::panel::record_card::curl;
use crate::panel::timestamp::ShortTime;
use crate::panel::wording::capitalized;

/// Rows of a page.
const ROWS: usize = 50;

#[derive(Template)]
#[template(path = "keys.html")]
struct KeysPage {
    frame: PageFrame,
    lines: Vec<KeyLine>,
    paging: Paging,
    form: KeyForm,
    is_proved: bool,
    prove_next: &'static str,
    new_key: Option<NewKey>,
    curl: String,
}

/// A key in the list.
struct KeyLine {
    path: String,
    name: String,
    prefix: String,
    badge: Badge,
    stream: &'static str,
    scopes: String,
    last_used_at: Option<ShortTime>,
    expires_at: Option<ShortTime>,
}

/// Form of a new key.
struct KeyForm {
    name: String,
    stream: String,
    streams: [Stream; 2],
    scopes: Vec<(Scope, &'static str, bool)>,
    expires_on: String,
    faults: FormErrors,
}

/// A new key whose secret is shown once.
struct NewKey {
    name: String,
    secret: String,
}

/// Returns the meaning of a scope.
const fn meaning(scope: Scope) -> &'static str {
    match scope {
        Scope::Send => "send messages",
        Scope::Read => "read everything",
        Scope::Manage => "change everything else",
    }
}

impl KeyForm {
    fn empty() -> Self {
        Self::new(&Form::read(b""), |scope| scope == Scope::Send, FormErrors::none())
    }

    fn refused(form: &Form, faults: FormErrors) -> Self {
        let ticked = form.all("scopes");
        Self::new(form, |scope| ticked.contains(&scope.as_str()), faults)
    }

    fn new(form: &Form, is_ticked: impl Fn(Scope) -> bool, faults: FormErrors) -> Self {
        Self {
            name: form.text("name").to_owned(),
            stream: form.text("stream").to_owned(),
            streams: Stream::ALL,
            scopes: Scope::ALL.map(|scope| (scope, meaning(scope), is_ticked(scope))).into(),
            expires_on: form.text("expires_on").to_owned(),
            faults,
        }
    }
}

/// Returns the badge of a key's status at `now`.
pub(super) fn badge_of(key: &ApiKey, now: Timestamp) -> Badge {
    match key.revoked_at {
        Some(_) => Badge::new("revoked", "calm", "stop"),
        None if !key.is_live(now) => Badge::new("expired", "wait", "clock"),
        None => Badge::new("active", "good", "check"),
    }
}

/// Returns the permissions of a key in a word or two, for lists.
fn permissions(key: &ApiKey) -> String {
    if key.scopes.as_list().len() == Scope::ALL.len() { "All".to_owned() } else { scopes_of(key) }
}

/// Returns the permissions of a key in words.
pub(super) fn scopes_of(key: &ApiKey) -> String {
    capitalized(&key.scopes.as_list().iter().map(|scope| scope.as_str()).collect::<Vec<_>>().join(", "))
}

/// `GET /keys`.
pub(in crate::panel) async fn list(visit: Visit<'_>) -> Result<Answer, PageError> {
    written(&visit, StatusCode::OK, KeyForm::empty(), None)
}

fn written(visit: &Visit<'_>, status: StatusCode, form: KeyForm, new_key: Option<NewKey>) -> Result<Answer, PageError> {
    let query = Form::of_query(&visit.call);
    let Page { rows, next } = visit.api.engine.keys(visit.account_id(), paging::request::<KeyId>(&query, ROWS))?;
    let (mut live, revoked): (Vec<_>, Vec<_>) = rows.into_iter().partition(|key| key.revoked_at.is_none());
    live.extend(revoked);
    let lines = live.into_iter().map(|key| KeyLine {
        path: format!("/keys/{}", key.id),
        badge: badge_of(&key, visit.now),
        stream: key.stream.map_or("Both", Stream::as_str),
        scopes: permissions(&key),
        last_used_at: key.last_used_at.map(|at| visit.moment(at).short(visit.now)),
        expires_at: key.expires_at.map(|at| visit.moment(at).short(visit.now)),
        name: key.name,
        prefix: key.prefix,
    });
    let page = KeysPage {
        frame: PageFrame::new(visit, "API keys", "/keys")?,
        lines: lines.collect(),
        paging: Paging::new::<KeyId>("/keys", &[], &query, next),
        form,
        is_proved: visit.is_proved(),
        prove_next: "/keys",
        new_key,
        curl: curl(visit, "/v1/keys"),
    };
    html::page(status, &page)
}

/// Converts the form to the equivalent API body.
fn as_body(visit: &Visit<'_>, form: &Form) -> Map<String, Value> {
    let mut body = Map::new();
    body.insert("name".to_owned(), form.text("name").into());
    body.extend(form.given("stream").map(|stream| ("stream".to_owned(), stream.into())));
    body.insert("scopes".to_owned(), form.all("scopes").into());
    body.extend(form.given("expires_on").map(|day| ("expires_at".to_owned(), first_moment(visit, day).into())));
    body
}

/// Converts a day to its first moment in the account's zone. Other text stays as it is, for the API's own check.
fn first_moment(visit: &Visit<'_>, text: &str) -> String {
    let day = text.parse::<Date>().ok().and_then(|day| day.to_zoned(visit.account.time_zone.zone()).ok());
    day.map_or_else(|| text.to_owned(), |start| start.timestamp().to_string())
}

/// `POST /keys`: creates a key and shows its secret once.
pub(in crate::panel) async fn create(visit: Visit<'_>) -> Result<Answer, PageError> {
    let form = Form::of(&visit.call)?;
    let new = match new_of(as_body(&visit, &form), visit.now) {
        Ok(new) => new,
        Err(ApiError::Invalid(faults)) => {
            let form = KeyForm::refused(&form, faults.into());
            return written(&visit, StatusCode::UNPROCESSABLE_ENTITY, form, None);
        }
        Err(error) => return Err(error.into()),
    };
    let (key, secret) = visit.api.engine.make_key(visit.on(), new).await.map_err(refused)?;
    let new_key = NewKey { name: key.name, secret: secret.expose().to_owned() };
    written(&visit, StatusCode::OK, KeyForm::empty(), Some(new_key))
}
