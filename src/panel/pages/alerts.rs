//! Alerts: open ones first, then those of the last 90 days, with the notices that were sent.

use std::sync::Arc;
use std::time::Duration;

use askama::Template;
use hyper::StatusCode;

use crate::base::id::AlertId;
use crate::domain::alert::{Condition, Scope, Severity, Subject, SubjectKind};
use crate::engine::alerts::listing::{AlertFilter, AlertState};
use crate::engine::alerts::record::Alert;
use crate::engine::listing::{Page, PageRequest};
use crate::http::answer::Answer;
use crate::panel::form::Form;
use crate::panel::html;
use crate::panel::layout::PageFrame;
use crate::panel::page_error::PageError;
use crate::panel::page_guard::Visit;
use crate::panel::paging::{self, Paging};
use crate::panel::prose::Prose;
use crate::panel::timestamp::{Days, Moment, lasted};
use crate::panel::wording::{self, capitalized};
use crate::store::error::StoreError;
use crate::store::row::alert::{AlertNotice, NoticeStatus};

/// Maximum number of open alerts shown.
const OPEN_MAX: usize = 100;
/// Resolved alerts of a page.
const ROWS: usize = 30;

#[derive(Template)]
#[template(path = "alerts.html")]
struct AlertsPage {
    frame: PageFrame,
    /// Name of the condition whose alerts are shown; `None` for all.
    condition: Option<String>,
    /// The checks and their intervals, if the account sees the service's alerts.
    checks: Option<Prose>,
    open: Vec<AlertLine>,
    resolved: Vec<AlertLine>,
    paging: Paging,
}

/// An alert as the page shows it.
struct AlertLine {
    id: AlertId,
    /// Name of the condition, which is its section in the documentation.
    condition: &'static str,
    /// The condition in words.
    words: &'static str,
    severity: String,
    /// CSS class of the badge.
    badge: &'static str,
    is_of_service: bool,
    summary: String,
    seen: Prose,
    subject: Option<(String, Option<String>)>,
    remedy: Prose,
    /// Day heading, if this line is the first of its day.
    day: Option<String>,
    opened_at: Moment,
    resolved_at: Option<Moment>,
    /// Time from the opening to the end.
    lasted: String,
    notices: Vec<String>,
}

impl AlertLine {
    fn new(visit: &Visit<'_>, alert: Alert) -> Self {
        let Alert { id, row, .. } = alert;
        let subject =
            row.subject.map(|subject| (path_of(&subject), subject)).map(|(path, subject)| (name_of(subject), path));
        Self {
            id,
            condition: row.condition.as_str(),
            words: wording::condition(row.condition),
            severity: capitalized(row.severity.as_str()),
            badge: match row.severity {
                Severity::Critical => "bad",
                Severity::Warning => "wait",
                Severity::Info => "quiet",
            },
            is_of_service: row.condition.scope() == Scope::System,
            summary: row.summary,
            seen: visit.prose(&row.seen),
            subject,
            remedy: visit.prose(row.condition.remedy()),
            day: None,
            opened_at: visit.moment(row.opened_at),
            lasted: row.resolved_at.map(|at| duration(at.since(row.opened_at))).unwrap_or_default(),
            resolved_at: row.resolved_at.map(|at| visit.moment(at)),
            notices: row.notices.iter().map(|notice| shown(visit, notice)).collect(),
        }
    }
}

/// Describes how long an alert was open. The alert of a single occurrence ends at once.
fn duration(time: Duration) -> String {
    if time.is_zero() { "a moment".to_owned() } else { lasted(time) }
}

/// Describes a notice, without its recipient.
fn shown(visit: &Visit<'_>, notice: &AlertNotice) -> String {
    let at = visit.moment(notice.at).text();
    let (kind, channel) = (notice.kind.as_str(), notice.channel.as_str());
    let status = match (notice.status, &notice.relay) {
        (NoticeStatus::Sent, Some(relay)) => format!("sent by {relay}"),
        (status, _) => status.as_str().to_owned(),
    };
    format!("{kind} by {channel} at {at}: {status}")
}

/// Returns the name of a subject for people.
fn name_of(subject: Subject) -> String {
    match subject.kind {
        SubjectKind::Provider => wording::provider(&subject.name).to_owned(),
        _ => subject.name,
    }
}

/// Returns the page of a subject, if it has one.
fn path_of(Subject { kind, id, .. }: &Subject) -> Option<String> {
    match kind {
        SubjectKind::Domain => Some(format!("/domains/{id}")),
        SubjectKind::Webhook => Some(format!("/webhooks/{id}")),
        SubjectKind::User => Some(format!("/users/{id}")),
        SubjectKind::Stream => Some(format!("/?range=7d&stream={id}")),
        SubjectKind::Provider => Some("/providers?days=1".to_owned()),
        SubjectKind::Address | SubjectKind::Relay => None,
    }
}

/// Describes the checks, so that an empty list of alerts shows that all is well.
const fn checks(runs_checks: bool) -> &'static str {
    match runs_checks {
        true => {
            "Backups, replication, disk, certificates and the queue are checked every 5 minutes, reverse DNS, block \
             lists and port 25 every hour."
        }
        false => "Development mode checks backups, replication, disk and DNS only on command: `postrider alert check`.",
    }
}

/// `GET /alerts`.
pub(in crate::panel) async fn list(visit: Visit<'_>) -> Result<Answer, PageError> {
    let query = Form::of_query(&visit.call);
    let older = paging::request::<AlertId>(&query, ROWS);
    let condition = Condition::ALL.iter().copied().find(|condition| condition.as_str() == query.text("condition"));
    let (account, of_visitor, engine) = (visit.account_id(), visit.alerts(), Arc::clone(&visit.api.engine));
    let read = move || {
        let of = |state, page| {
            let filter = AlertFilter { state: Some(state), condition, user: None };
            engine.alerts_of(of_visitor, filter, page)
        };
        let first = PageRequest { before: None, limit: OPEN_MAX };
        let sees_service = engine.has_service_alerts(of_visitor)?;
        Ok::<_, StoreError>((of(AlertState::Open, first)?, of(AlertState::Resolved, older)?, sees_service))
    };
    let (open, Page { rows, next }, sees_service) = visit.api.engine.blocking(account, read).await??;
    let mut days = Days::new(visit.now);
    let resolved = rows.into_iter().map(|alert| {
        let line = AlertLine::new(&visit, alert);
        AlertLine { day: days.begin(&line.opened_at), ..line }
    });
    let page = AlertsPage {
        frame: PageFrame::new(&visit, "Alerts", "/alerts")?,
        condition: condition.map(|condition| capitalized(wording::condition(condition))),
        checks: sees_service.then(|| visit.prose(checks(visit.api.engine.settings.alerts.runs_checks))),
        open: open.rows.into_iter().map(|alert| AlertLine::new(&visit, alert)).collect(),
        resolved: resolved.collect(),
        paging: Paging::new::<AlertId>("/alerts", &[("condition", query.text("condition"))], &query, next),
    };
    html::page(StatusCode::OK, &page)
}
