//! The audit log of the account's changes and their actors, newest first.

use askama::Template;
use hyper::StatusCode;

use crate::base::id::ChangeId;
use crate::domain::audit::Actor;
use crate::engine::listing::Page;
use crate::http::answer::Answer;
use crate::panel::form::Form;
use crate::panel::html;
use crate::panel::layout::Frame;
use crate::panel::page_error::Fault;
use crate::panel::page_guard::Visit;
use crate::panel::paging::{self, Paging};
use crate::panel::timestamp::{Days, Moment};
use crate::store::row::audit::AuditRow;

/// Rows of a page.
const ROWS: usize = 50;

#[derive(Template)]
#[template(path = "audit.html")]
struct AuditPage {
    frame: Frame,
    lines: Vec<AuditLine>,
    paging: Paging,
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
    object: String,
    path: Option<String>,
}

impl AuditLine {
    fn new(visit: &Visit<'_>, row: AuditRow) -> Self {
        let AuditRow { at, actor, change } = row;
        Self {
            day: None,
            at: visit.moment(at),
            who: actor.to_string(),
            who_path: match &actor {
                Actor::Key(key) => Some(format!("/keys/{key}")),
                Actor::Person(_) | Actor::Operator | Actor::Service | Actor::SetupLink { .. } => None,
            },
            action: change.action.as_str(),
            path: path_of(&change.object),
            object: change.object,
            name: change.name,
        }
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
        _ => return None,
    };
    Some(format!("/{section}/{object}"))
}

/// `GET /audit`.
pub(in crate::panel) async fn list(visit: Visit<'_>) -> Result<Answer, Fault> {
    let query = Form::of_query(&visit.call);
    let page = paging::request::<ChangeId>(&query, ROWS);
    let Page { rows, next } = visit.api.engine.audit_log(visit.account_id(), page)?;
    let mut days = Days::new(visit.now);
    let line = |(_, row)| {
        let line = AuditLine::new(&visit, row);
        AuditLine { day: days.begin(&line.at), ..line }
    };
    let page = AuditPage {
        frame: Frame::new(&visit, "Audit log", "/audit")?,
        lines: rows.into_iter().map(line).collect(),
        paging: Paging::new::<ChangeId>("/audit", &[], &query, next),
    };
    html::page(StatusCode::OK, &page)
}
