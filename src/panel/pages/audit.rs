//! The audit log of the account's changes and their actors, newest first.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use askama::Template;
use hyper::StatusCode;

use super::user::SignInLine;
use crate::base::id::{ChangeId, KeyId};
use crate::domain::audit::{Action, Actor};
use crate::domain::user::User;
use crate::engine::deliveries::DeliveryRecord;
use crate::engine::listing::{Page, PageRequest};
use crate::http::answer::Answer;
use crate::panel::form::Form;
use crate::panel::html;
use crate::panel::layout::PageFrame;
use crate::panel::page_error::PageError;
use crate::panel::page_guard::{Need, Visit};
use crate::panel::paging::{self, Paging};
use crate::panel::timestamp::{Days, Moment};
use crate::panel::wording::{capitalized, provider};
use crate::store::error::StoreError;
use crate::store::row::audit::AuditRow;

/// Rows of a page.
const ROWS: usize = 50;
/// Number of sign-ins above the changes.
const SIGN_INS: usize = 5;
/// Number of users that are read at a time for their sign-ins.
const USERS: usize = 200;

#[derive(Template)]
#[template(path = "audit.html")]
struct AuditPage {
    frame: PageFrame,
    /// The latest sign-ins of all users, on the first page of the whole log, if the visitor may see them.
    sign_ins: Vec<(Arc<User>, SignInLine)>,
    lines: Vec<AuditLine>,
    paging: Paging,
    /// Whether only the changes of one object are shown.
    is_filtered: bool,
}

/// A line of the log.
struct AuditLine {
    /// Day heading, if this line is the first of its day.
    day: Option<String>,
    at: Moment,
    who: String,
    /// Page of the API key that made the change.
    who_path: Option<String>,
    action: &'static str,
    name: String,
    /// Rest of the sentence after the name.
    rest: String,
    object: String,
    path: Option<String>,
}

impl AuditLine {
    /// Converts a line. `keys` has the names of the keys that were read before.
    fn new(visit: &Visit<'_>, row: AuditRow, keys: &mut HashMap<KeyId, Option<String>>) -> Result<Self, StoreError> {
        let AuditRow { at, actor, change } = row;
        let resent = match change.action {
            Action::DeliverySentAgain => resent(visit, &change.name)?,
            _ => None,
        };
        let (name, rest) = match change.action {
            Action::UserAdded | Action::UserInvited => split_role(change.name),
            _ => (change.name, None),
        };
        let who = match &actor {
            Actor::Key(key) => name_of(visit, *key, keys)?.unwrap_or_else(|| actor.to_string()),
            Actor::Person(_) | Actor::Operator | Actor::Service | Actor::SetupLink { .. } => actor.to_string(),
        };
        Ok(Self {
            day: None,
            at: visit.moment(at),
            who,
            who_path: match &actor {
                Actor::Key(key) => Some(format!("/keys/{key}")),
                Actor::Person(_) | Actor::Operator | Actor::Service | Actor::SetupLink { .. } => None,
            },
            action: change.action.as_str(),
            rest: rest.map(|rest| format!(" as {rest}")).unwrap_or_default(),
            path: resent.as_ref().map(|(_, path)| path.clone()).or_else(|| path_of(&change.object)),
            object: change.object,
            name: match change.action {
                Action::DeliverySentAgain => resent.map_or_else(|| "no longer stored".to_owned(), |(name, _)| name),
                Action::SitePaused | Action::SiteResumed => provider(&name).to_owned(),
                _ => name,
            },
        })
    }
}

/// Returns the name of an API key for the log. `None` if the key no longer exists.
fn name_of(
    visit: &Visit<'_>,
    key: KeyId,
    keys: &mut HashMap<KeyId, Option<String>>,
) -> Result<Option<String>, StoreError> {
    if let Some(known) = keys.get(&key) {
        return Ok(known.clone());
    }
    let name = visit.api.engine.key(visit.account_id(), key)?.map(|row| format!("API key {}", row.name));
    keys.insert(key, name.clone());
    Ok(name)
}

/// Returns name and page of a delivery that was sent again. `None` if it is no longer stored.
fn resent(visit: &Visit<'_>, delivery: &str) -> Result<Option<(String, String)>, StoreError> {
    let Ok(id) = delivery.parse() else { return Ok(None) };
    let found = visit.api.engine.delivery(visit.account_id(), id)?;
    Ok(found.map(|(DeliveryRecord { row, .. }, _)| {
        let name = format!("{} event", capitalized(row.owed.event_type()));
        (name, format!("/webhooks/{}/deliveries/{id}", row.endpoint))
    }))
}

/// Splits the name of an added user, such as `ann@example.com as viewer`, into the address and the role.
fn split_role(name: String) -> (String, Option<String>) {
    match name.split_once(" as ") {
        Some((address, role)) => (address.to_owned(), Some(role.to_owned())),
        None => (name, None),
    }
}

/// Returns the page of an object. The page of a deleted object answers 404.
fn path_of(object: &str) -> Option<String> {
    let section = match object.split_once('_')?.0 {
        "acc" => return Some("/settings".to_owned()),
        "usr" => "users",
        "key" => "keys",
        "dom" => "domains",
        "whk" => "webhooks",
        "sup" => "suppressions",
        "msg" => "messages",
        "alr" => return Some(format!("/alerts#{object}")),
        _ => return None,
    };
    Some(format!("/{section}/{object}"))
}

/// Returns the latest sign-ins of the account's users, newest first.
fn latest_sign_ins(visit: &Visit<'_>) -> Result<Vec<(Arc<User>, SignInLine)>, StoreError> {
    let (mut latest, mut before) = (Vec::new(), None);
    loop {
        let page = visit.api.engine.users(visit.account_id(), PageRequest { before, limit: USERS })?;
        for user in page.rows.into_iter().map(Arc::new) {
            let own = user.sign_ins.newest_first().iter().take(SIGN_INS).cloned();
            latest.extend(own.map(|one| (Arc::clone(&user), one)));
        }
        latest.sort_by_key(|(_, one)| Reverse(one.at));
        latest.truncate(SIGN_INS);
        before = page.next;
        if before.is_none() {
            return Ok(latest.into_iter().map(|(user, one)| (user, SignInLine::new(visit, &one))).collect());
        }
    }
}

/// `GET /audit`.
pub(in crate::panel) async fn list(visit: Visit<'_>) -> Result<Answer, PageError> {
    let query = Form::of_query(&visit.call);
    let page = paging::request::<ChangeId>(&query, ROWS);
    let is_first = page.before.is_none();
    let (engine, account, object) = (&visit.api.engine, visit.account_id(), query.text("object"));
    let Page { rows, next } = match object {
        "" => engine.audit_log(account, page)?,
        object => engine.audit_log_of(account, object, page)?,
    };
    let mut days = Days::new(visit.now);
    let mut keys = HashMap::new();
    let line = |(_, row)| {
        let line = AuditLine::new(&visit, row, &mut keys)?;
        Ok(AuditLine { day: days.begin(&line.at), ..line })
    };
    let shows_sign_ins = is_first && object.is_empty() && visit.may_send(Need::Change);
    let page = AuditPage {
        sign_ins: if shows_sign_ins { latest_sign_ins(&visit)? } else { Vec::new() },
        frame: PageFrame::new(&visit, "Audit log", "/audit")?,
        lines: rows.into_iter().map(line).collect::<Result<_, StoreError>>()?,
        paging: Paging::new::<ChangeId>("/audit", &[("object", object)], &query, next),
        is_filtered: !object.is_empty(),
    };
    html::page(StatusCode::OK, &page)
}
