//! Webhook endpoints of the account with their status, and a form that creates another.

use askama::Template;
use hyper::StatusCode;

use super::webhook::{NewSecret, written as write_endpoint};
use crate::engine::listing::PageRequest;
use crate::http::answer::Answer;
use crate::http::error::ApiError;
use crate::http::handlers::endpoints::{new_of, refused};
use crate::panel::attempts::of_endpoint;
use crate::panel::components::Badge;
use crate::panel::endpoint_form::{EndpointForm, as_body};
use crate::panel::endpoint_name::{below_title, title};
use crate::panel::form::Form;
use crate::panel::html;
use crate::panel::layout::PageFrame;
use crate::panel::page_error::PageError;
use crate::panel::page_guard::Visit;
use crate::panel::record_card::curl;
use crate::panel::timestamp::ShortTime;
use crate::store::op::event::ENDPOINTS_MAX;

#[derive(Template)]
#[template(path = "webhooks.html")]
struct WebhooksPage {
    frame: PageFrame,
    lines: Vec<EndpointLine>,
    form: EndpointForm,
    endpoints_max: usize,
    is_proved: bool,
    prove_next: &'static str,
    curl: String,
}

/// An endpoint in the list.
struct EndpointLine {
    path: String,
    title: String,
    /// Part of the URL that the title lacks, shortened.
    below: Option<String>,
    /// The whole URL. `None` in an operator's view.
    url: Option<String>,
    badge: Badge,
    failures: u8,
    events: String,
    last_success_at: Option<ShortTime>,
    last_failure_at: Option<ShortTime>,
}

/// `GET /webhooks`.
pub(in crate::panel) async fn list(visit: Visit<'_>) -> Result<Answer, PageError> {
    let done = match Form::of_query(&visit.call).text("done") {
        "deleted" => Some("Webhook deleted. Its pending deliveries are marked as failed."),
        _ => None,
    };
    written(&visit, StatusCode::OK, EndpointForm::empty(), done)
}

fn written(
    visit: &Visit<'_>,
    status: StatusCode,
    form: EndpointForm,
    done: Option<&'static str>,
) -> Result<Answer, PageError> {
    let page = PageRequest { before: None, limit: ENDPOINTS_MAX };
    let endpoints = visit.api.engine.endpoints(visit.account_id(), page)?.rows;
    let lines = endpoints.into_iter().map(|(id, row)| EndpointLine {
        path: format!("/webhooks/{id}"),
        badge: of_endpoint(&row.state),
        failures: row.state.consecutive_failures(),
        events: events_in_words(row.events.as_deref()),
        last_success_at: row.last_success_at.map(|at| visit.moment(at).short(visit.now)),
        last_failure_at: row.last_failure_at.map(|at| visit.moment(at).short(visit.now)),
        title: title(&row),
        below: below_title(visit, &row),
        url: visit.view().is_none().then(|| row.url.clone()),
    });
    let page = WebhooksPage {
        frame: PageFrame::new(visit, "Webhooks", "/webhooks")?.with_done(done),
        lines: lines.collect(),
        form,
        endpoints_max: ENDPOINTS_MAX,
        is_proved: visit.is_proved(),
        prove_next: "/webhooks",
        curl: curl(visit, "/v1/webhooks"),
    };
    html::page(status, &page)
}

/// Describes the event types that an endpoint receives.
pub(super) fn events_in_words(events: Option<&[crate::domain::event::EventType]>) -> String {
    match events {
        Some(events) => events.iter().map(|kind| kind.as_str()).collect::<Vec<_>>().join(", "),
        None => "All".to_owned(),
    }
}

/// `POST /webhooks`: creates an endpoint and shows its secret once.
pub(in crate::panel) async fn create(visit: Visit<'_>) -> Result<Answer, PageError> {
    let form = Form::of(&visit.call)?;
    let new = match new_of(as_body(&form), &visit.api.guard) {
        Ok(new) => new,
        Err(ApiError::Invalid(faults)) => {
            let form = EndpointForm::refused(&form, faults.into());
            return written(&visit, StatusCode::UNPROCESSABLE_ENTITY, form, None);
        }
        Err(error) => return Err(error.into()),
    };
    let (id, row, secret) = visit.api.engine.create_endpoint(visit.on(), new).await.map_err(refused)?;
    let new_secret = NewSecret { secret: secret.expose_text().to_owned(), is_new: true };
    write_endpoint(&visit, StatusCode::OK, id, &row, None, Some(new_secret))
}
