//! The audit log: who changed what of the account, newest first.

use askama::Template;
use hyper::StatusCode;

use crate::base::id::ChangeId;
use crate::domain::audit::Actor;
use crate::engine::listing::Page;
use crate::http::answer::Answer;
use crate::panel::door::Visit;
use crate::panel::fault::Fault;
use crate::panel::form::Form;
use crate::panel::frame::Frame;
use crate::panel::html;
use crate::panel::moment::Moment;
use crate::panel::paging::{self, Paging};
use crate::store::row::audit::AuditRow;

/// Lines of a page.
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
    at: Moment,
    who: String,
    /// The page of the API key that it was.
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

/// The page of an object. What was removed since has none, and says so there.
fn path_of(object: &str) -> Option<String> {
    let section = match object.split_once('_')?.0 {
        "acc" => return Some("/settings".to_owned()),
        "usr" => return Some("/users".to_owned()),
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
    let page = AuditPage {
        frame: Frame::new(&visit, "Audit log", "/audit")?,
        lines: rows.into_iter().map(|(_, row)| AuditLine::new(&visit, row)).collect(),
        paging: Paging::new::<ChangeId>("/audit", &[], &query, next),
    };
    html::page(StatusCode::OK, &page)
}
