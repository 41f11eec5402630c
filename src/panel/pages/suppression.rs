//! One suppressed address: reason, date, and removal.

use askama::Template;
use hyper::StatusCode;

use super::suppressions::badge_of;
use crate::base::id::SuppressionId;
use crate::http::answer::Answer;
use crate::http::error::ApiError;
use crate::http::handlers::not_found;
use crate::http::handlers::suppressions::shown;
use crate::panel::components::Badge;
use crate::panel::html;
use crate::panel::layout::PageFrame;
use crate::panel::page_error::PageError;
use crate::panel::page_guard::Visit;
use crate::panel::paging;
use crate::panel::record_card::Record;
use crate::panel::timestamp::Moment;
use crate::store::op::suppression::Name;
use crate::store::row::suppression::{SuppressionReason, SuppressionRow};

#[derive(Template)]
#[template(path = "suppression.html")]
struct SuppressionPage {
    frame: PageFrame,
    id: SuppressionId,
    email: String,
    badge: Badge,
    created_at: Moment,
    why: &'static str,
    note: Option<String>,
    message: Option<String>,
    code: Option<u16>,
    answer: Option<String>,
    record: Record,
}

/// Returns the meaning of a reason, and its consequence for removing the suppression.
const fn words(reason: SuppressionReason) -> &'static str {
    match reason {
        SuppressionReason::Bounce => "Permanent bounce; may bounce again.",
        SuppressionReason::Complaint => "Spam complaint; remove only on request.",
        SuppressionReason::Unsubscribe => "Unsubscribed; needs consent.",
        SuppressionReason::Manual => "Added manually.",
        SuppressionReason::Import => "Imported.",
    }
}

fn find(visit: &Visit<'_>) -> Result<SuppressionRow, PageError> {
    let name = Name::Id(visit.id()?);
    visit.api.engine.suppression(visit.account_id(), &name)?.ok_or_else(|| ApiError::NotFound.into())
}

/// `GET /suppressions/{id}`.
pub(in crate::panel) async fn show(visit: Visit<'_>) -> Result<Answer, PageError> {
    let row = find(&visit)?;
    let why = words(row.reason);
    let id = row.id;
    let page = SuppressionPage {
        frame: PageFrame::new(&visit, row.email.as_str(), "/suppressions")?,
        id,
        email: row.email,
        badge: badge_of(row.reason),
        created_at: visit.detail(row.created_at),
        why,
        note: row.note,
        message: row.message.map(|id| id.to_string()),
        code: row.smtp_code,
        answer: row.smtp_response,
        record: Record::new(&visit, id, &format!("/suppressions/{id}"), &format!("/v1/suppressions/{id}")),
    };
    html::page(StatusCode::OK, &page)
}

/// `GET /suppressions/{id}/json`: the record as the API returns it.
pub(in crate::panel) async fn json(visit: Visit<'_>) -> Result<Answer, PageError> {
    Ok(shown(&find(&visit)?))
}

/// `POST /suppressions/{id}/remove`.
pub(in crate::panel) async fn remove(visit: Visit<'_>) -> Result<Answer, PageError> {
    let name = Name::Id(visit.id()?);
    let email = visit.api.engine.suppression(visit.account_id(), &name)?.map(|row| row.email).unwrap_or_default();
    visit.api.engine.unsuppress(visit.on(), name).await.map_err(not_found)?;
    Ok(html::redirect(&paging::address("/suppressions", &[("done", "lifted"), ("lifted", &email)])))
}
