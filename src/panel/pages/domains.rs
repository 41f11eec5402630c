//! Sending domains of the account with their status, and a form that adds another.

use askama::Template;
use hyper::StatusCode;

use crate::base::id::DomainId;
use crate::domain::sending_domain::DomainStatus;
use crate::domain::stream::Stream;
use crate::engine::listing::Page;
use crate::http::answer::Answer;
use crate::http::error::ApiError;
use crate::http::handlers::domains::{new_of, refused};
use crate::panel::components::{Badge, FormErrors};
use crate::panel::dns;
use crate::panel::form::Form;
use crate::panel::html;
use crate::panel::layout::PageFrame;
use crate::panel::page_error::PageError;
use crate::panel::page_guard::Visit;
use crate::panel::paging::{self, Paging};
use crate::panel::record_card::curl;
use crate::panel::timestamp::ShortTime;

/// Rows of a page.
const ROWS: usize = 50;

#[derive(Template)]
#[template(path = "domains.html")]
struct DomainsPage {
    frame: PageFrame,
    lines: Vec<DomainLine>,
    paging: Paging,
    streams: [Stream; 2],
    name: String,
    stream: String,
    faults: FormErrors,
    curl: String,
}

/// A domain in the list.
struct DomainLine {
    path: String,
    name: String,
    stream: Stream,
    badge: Badge,
    last_checked_at: Option<ShortTime>,
    /// Number of its records that are published: `3 of 5`. `None` before the first check.
    found: Option<String>,
}

/// Returns the badge of a domain status.
pub(super) const fn badge_of(status: DomainStatus) -> Badge {
    match status {
        DomainStatus::Pending => Badge::new("not verified", "wait", "clock"),
        DomainStatus::Verified => Badge::new("verified", "good", "check"),
        DomainStatus::Failing => Badge::new("failing", "bad", "warn"),
    }
}

/// `GET /domains`.
pub(in crate::panel) async fn list(visit: Visit<'_>) -> Result<Answer, PageError> {
    written(&visit, StatusCode::OK, &Form::of_query(&visit.call), FormErrors::none())
}

/// Renders the list, and the form with rejected input if there is any.
fn written(visit: &Visit<'_>, status: StatusCode, form: &Form, faults: FormErrors) -> Result<Answer, PageError> {
    let query = Form::of_query(&visit.call);
    let done = match query.text("done") {
        "deleted" => Some("Domain deleted. Mail that was accepted from it is still sent."),
        _ => None,
    };
    let page = paging::request::<DomainId>(&query, ROWS);
    let Page { rows, next } = visit.api.engine.domains(visit.account_id(), page)?;
    let lines = rows.into_iter().map(|(id, row)| DomainLine {
        path: format!("/domains/{id}"),
        name: row.name.to_string(),
        stream: row.stream,
        badge: badge_of(row.status),
        last_checked_at: row.last_checked_at.map(|at| visit.moment(at).short(visit.now)),
        found: dns::found(&row, &dns::lines(&row, &visit.api.engine.settings)),
    });
    let page = DomainsPage {
        frame: PageFrame::new(visit, "Domains", "/domains")?.with_done(done),
        lines: lines.collect(),
        paging: Paging::new::<DomainId>("/domains", &[], &query, next),
        streams: Stream::ALL,
        name: form.text("name").to_owned(),
        stream: form.text("stream").to_owned(),
        faults,
        curl: curl(visit, "/v1/domains"),
    };
    html::page(status, &page)
}

/// `POST /domains`.
pub(in crate::panel) async fn add(visit: Visit<'_>) -> Result<Answer, PageError> {
    let form = Form::of(&visit.call)?;
    let added = match new_of(form.as_body(&["name", "stream"])) {
        Ok((name, stream)) => visit.api.engine.create_domain(visit.on(), name, stream).await.map_err(refused),
        Err(error) => Err(error),
    };
    match added {
        Ok((id, _)) => Ok(html::redirect(&format!("/domains/{id}?done=added"))),
        Err(ApiError::Invalid(faults)) => written(&visit, StatusCode::UNPROCESSABLE_ENTITY, &form, faults.into()),
        Err(error) => Err(error.into()),
    }
}
