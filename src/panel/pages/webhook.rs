//! One webhook endpoint: status, failures, deliveries, and the forms that change it.

use std::time::Duration;

use askama::Template;
use hyper::StatusCode;

use super::delete::{self, Deletion};
use super::webhooks::events_in_words;
use crate::base::id::{DeliveryId, EndpointId};
use crate::engine::deliveries::DeliveryRecord;
use crate::http::answer::Answer;
use crate::http::error::ApiError;
use crate::http::handlers::endpoints::shown as endpoint_shown;
use crate::machine::delivery::Status;
use crate::panel::attempts::{AttemptLine, of_delivery, of_endpoint};
use crate::panel::components::{Badge, Choice};
use crate::panel::endpoint_form::EndpointForm;
use crate::panel::endpoint_name::title;
use crate::panel::form::Form;
use crate::panel::html;
use crate::panel::layout::PageFrame;
use crate::panel::page_error::PageError;
use crate::panel::page_guard::Visit;
use crate::panel::paging::{self, Paging};
use crate::panel::record_card::Record;
use crate::panel::timestamp::{Moment, ShortTime};
use crate::panel::webhook_figures::{FailureGroup, figures, grouped_failures};
use crate::store::op::audit::host;
use crate::store::row::endpoint::EndpointRow;

/// Rows of a page.
const ROWS: usize = 8;
/// Periods for a replay, in hours and in words.
const REPLAYS: [(u64, &str); 4] = [(1, "1 hour"), (24, "1 day"), (7 * 24, "1 week"), (30 * 24, "30 days")];

#[derive(Template)]
#[template(path = "webhook.html")]
struct WebhookPage {
    frame: PageFrame,
    id: EndpointId,
    title: String,
    /// URL of the endpoint. `None` in an operator's view, because the URL may contain a secret of the receiver.
    url: Option<String>,
    badge: Badge,
    is_enabled: bool,
    failures: u8,
    disabled_at: Option<Moment>,
    /// Whether the tab with the settings is shown.
    shows_settings: bool,
    /// Consecutive failures, grouped by result.
    causes: Vec<FailureGroup>,
    facts: Vec<(&'static str, String)>,
    last_success_at: Option<Moment>,
    last_failure_at: Option<Moment>,
    created_at: Moment,
    updated_at: Moment,
    deliveries: Vec<DeliveryLine>,
    /// Delivery states to choose from.
    states: Vec<Choice>,
    /// The selected state, or an empty string for all.
    state: &'static str,
    /// Time at which the search stopped, if it stopped before the end.
    looked_back_to: Option<Moment>,
    paging: Paging,
    replays: Vec<ReplayFrom>,
    form: EndpointForm,
    is_proved: bool,
    prove_next: String,
    new_secret: Option<NewSecret>,
    record: Record,
}

/// A delivery in the list.
struct DeliveryLine {
    path: String,
    created_at: ShortTime,
    event: &'static str,
    message: Option<String>,
    badge: Badge,
    attempts: u8,
    last: Option<AttemptLine>,
    next_attempt_at: Option<ShortTime>,
}

/// A start time for a replay.
struct ReplayFrom {
    value: String,
    words: String,
}

/// A signing secret that is shown once.
pub(super) struct NewSecret {
    /// The secret.
    pub(super) secret: String,
    /// Whether the endpoint is new.
    pub(super) is_new: bool,
}

/// Returns the endpoint in the path, which must belong to the account.
pub(super) fn find(visit: &Visit<'_>) -> Result<(EndpointId, EndpointRow), PageError> {
    let id: EndpointId = visit.id()?;
    let row = visit.api.engine.endpoint(visit.account_id(), id)?.ok_or(ApiError::NotFound)?;
    Ok((id, row))
}

/// Returns the confirmation page of a deletion.
pub(super) fn deletion(id: EndpointId, row: &EndpointRow) -> Deletion {
    Deletion {
        title: format!("Delete webhook {}", title(row)),
        consequences: "Pending events and the attempt log are lost. Pausing keeps both.",
        name: host(row).to_owned(),
        action: format!("/webhooks/{id}/delete"),
        button: "Delete webhook",
        back: format!("/webhooks/{id}"),
    }
}

/// `GET /webhooks/{id}/delete`.
pub(in crate::panel) async fn ask_to_delete(visit: Visit<'_>) -> Result<Answer, PageError> {
    let (id, row) = find(&visit)?;
    delete::show(&visit, "/webhooks", deletion(id, &row))
}

/// `GET /webhooks/{id}`.
pub(in crate::panel) async fn show(visit: Visit<'_>) -> Result<Answer, PageError> {
    let (id, row) = find(&visit)?;
    written(&visit, StatusCode::OK, id, &row, None, None)
}

/// Returns the text for the last change, from the address.
fn done(visit: &Visit<'_>) -> Option<&'static str> {
    match Form::of_query(&visit.call).text("done") {
        "saved" => Some("Webhook saved."),
        "reactivated" => Some("Enabled."),
        "paused" => Some("Paused; events are held."),
        "test" => Some("Test event sent."),
        "again" => Some("Queued again."),
        "replayed" => Some("Replaying."),
        "replayed-none" => Some("No matching events."),
        _ => None,
    }
}

/// Renders the page, with a rejected form or a new secret if there is one.
pub(super) fn written(
    visit: &Visit<'_>,
    status: StatusCode,
    id: EndpointId,
    row: &EndpointRow,
    form: Option<EndpointForm>,
    new_secret: Option<NewSecret>,
) -> Result<Answer, PageError> {
    let (account, engine) = (visit.account_id(), &visit.api.engine);
    let query = Form::of_query(&visit.call);
    let own = format!("/webhooks/{id}");
    let state = Status::ALL.into_iter().find(|known| known.as_str() == query.text("state"));
    let page = engine.deliveries(account, id, state, paging::request::<DeliveryId>(&query, ROWS))?;
    let page = page.ok_or(ApiError::NotFound)?;
    let cut_at = page.next.filter(|_| page.rows.len() < ROWS);
    let shown = state.map_or("", Status::as_str);
    let settings = format!("{own}?tab=settings");
    let is_changed = form.is_some() || new_secret.as_ref().is_some_and(|secret| !secret.is_new);
    let causes = grouped_failures(visit, id, engine.failures(account, row)?);
    let lines = page.rows.iter().map(|record| delivery_line(visit, record));
    let mut facts = vec![("Events", events_in_words(row.events.as_deref()))];
    facts.extend(figures(visit, id)?);
    let frame = PageFrame::new(visit, title(row), "/webhooks")?.with_done(done(visit));
    let page = WebhookPage {
        shows_settings: frame.may_change && (is_changed || query.text("tab") == "settings"),
        frame,
        id,
        title: title(row),
        url: visit.view().is_none().then(|| row.url.clone()),
        badge: of_endpoint(&row.state),
        is_enabled: row.state.is_enabled(),
        failures: row.state.consecutive_failures(),
        disabled_at: row.state.disabled_at().map(|at| visit.detail(at)),
        causes,
        facts,
        last_success_at: row.last_success_at.map(|at| visit.detail(at)),
        last_failure_at: row.last_failure_at.map(|at| visit.detail(at)),
        created_at: visit.detail(row.created_at),
        updated_at: visit.detail(row.updated_at),
        deliveries: lines.collect::<Result<_, PageError>>()?,
        states: states(&own, state),
        state: shown,
        looked_back_to: cut_at.map(|id| visit.moment(id.timestamp())),
        paging: Paging::new::<DeliveryId>(&own, &[("state", shown)], &query, page.next),
        replays: replays(visit, row),
        form: form.unwrap_or_else(|| EndpointForm::of(row)),
        is_proved: visit.is_proved(),
        prove_next: settings,
        new_secret,
        record: Record::new(visit, id, &own, &format!("/v1/webhooks/{id}")),
    };
    html::page(status, &page)
}

fn delivery_line(visit: &Visit<'_>, record: &DeliveryRecord) -> Result<DeliveryLine, PageError> {
    let attempts = match record.row.state.attempts {
        0 => None,
        _ => visit.api.engine.delivery(visit.account_id(), record.id)?,
    };
    let last = attempts.and_then(|(_, mut attempts)| attempts.pop());
    Ok(DeliveryLine {
        path: format!("/webhooks/{}/deliveries/{}", record.row.endpoint, record.id),
        created_at: visit.moment(record.row.state.created_at).short(visit.now),
        event: record.row.owed.event_type(),
        message: record.row.owed.message().map(|id| id.to_string()),
        badge: of_delivery(record),
        attempts: record.row.state.attempts,
        last: last.map(|(_, row)| AttemptLine::new(visit, row)),
        next_attempt_at: record.next_attempt_at().map(|at| visit.moment(at).short(visit.now)),
    })
}

/// Returns the delivery states to choose from.
fn states(own: &str, chosen: Option<Status>) -> Vec<Choice> {
    let choice = |state: Option<Status>| Choice {
        words: state.map_or("all", Status::as_str).to_owned(),
        path: format!("{}#deliveries", paging::address(own, &[("state", state.map_or("", Status::as_str))])),
        is_here: state == chosen,
    };
    std::iter::once(None).chain(Status::ALL.map(Some)).map(choice).collect()
}

/// Returns the start times for a replay. The first one is useful after an outage.
fn replays(visit: &Visit<'_>, row: &EndpointRow) -> Vec<ReplayFrom> {
    let since_success = row.last_success_at.map(|at| ReplayFrom {
        value: at.to_string(),
        words: format!("last success, {}", visit.moment(at).short(visit.now).text()),
    });
    let others = REPLAYS.iter().map(|(hours, words)| ReplayFrom {
        value: (visit.now - Duration::from_secs(hours * 3600)).to_string(),
        words: format!("{words} ago"),
    });
    since_success.into_iter().chain(others).collect()
}

/// `GET /webhooks/{id}/json`: the record as the API returns it.
pub(in crate::panel) async fn json(visit: Visit<'_>) -> Result<Answer, PageError> {
    let (id, row) = find(&visit)?;
    Ok(endpoint_shown(id, &row))
}
