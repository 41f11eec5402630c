//! Suppressed addresses with search, and a form that adds another.

use askama::Template;
use hyper::StatusCode;

use crate::base::id::SuppressionId;
use crate::domain::address::Address;
use crate::domain::hostname::DomainName;
use crate::domain::violation::Violations;
use crate::engine::listing::Page;
use crate::engine::suppressions::SuppressionFilter;
use crate::http::answer::Answer;
use crate::http::error::ApiError;
use crate::http::handlers::suppressions::{filter_of, new_of, not_suppressed};
use crate::panel::components::{Badge, FormErrors};
use crate::panel::form::Form;
use crate::panel::html;
use crate::panel::layout::{PageFrame, Undo};
use crate::panel::page_error::PageError;
use crate::panel::page_guard::{Need, Visit};
use crate::panel::paging::{self, Paging};
use crate::panel::record_card::curl;
use crate::panel::timestamp::ShortTime;
use crate::store::row::suppression::{SuppressionReason, SuppressionRow};

/// Rows of a page.
const ROWS: usize = 50;
const PATH: &str = "/suppressions";

#[derive(Template)]
#[template(path = "suppressions.html")]
struct SuppressionsPage {
    frame: PageFrame,
    lines: Vec<SuppressionLine>,
    paging: Paging,
    reasons: [SuppressionReason; 5],
    email: String,
    reason: String,
    search_faults: FormErrors,
    new_email: String,
    /// The domain, if one was typed instead of an address.
    new_domain: Option<DomainName>,
    note: String,
    faults: FormErrors,
    curl: String,
}

/// A suppression in the list.
struct SuppressionLine {
    path: String,
    email: String,
    badge: Badge,
    note: Option<String>,
    created_at: ShortTime,
}

impl SuppressionsPage {
    fn is_filtered(&self) -> bool {
        !self.email.is_empty() || !self.reason.is_empty()
    }

    /// Whether the filter is not valid, so that nothing was looked up.
    fn is_refused(&self) -> bool {
        !self.search_faults.all().is_empty()
    }
}

/// Returns the badge of a reason.
pub(super) const fn badge_of(reason: SuppressionReason) -> Badge {
    let word = reason.as_str();
    match reason {
        SuppressionReason::Bounce => Badge::new(word, "bad", "cross"),
        SuppressionReason::Complaint => Badge::new(word, "bad", "flag"),
        SuppressionReason::Unsubscribe => Badge::new(word, "wait", "leave"),
        SuppressionReason::Manual => Badge::new(word, "calm", "shield"),
        SuppressionReason::Import => Badge::new(word, "calm", "list"),
    }
}

/// `GET /suppressions`.
pub(in crate::panel) async fn list(visit: Visit<'_>) -> Result<Answer, PageError> {
    written(&visit, StatusCode::OK, &Form::read(b""), FormErrors::none()).await
}

/// Renders the list, and the form with rejected input if there is any.
async fn written(visit: &Visit<'_>, status: StatusCode, form: &Form, faults: FormErrors) -> Result<Answer, PageError> {
    let query = Form::of_query(&visit.call);
    let mut violations = Violations::new();
    let filter = panel_filter(&query, &mut violations);
    // A malformed filter matches nothing, and the page shows the error.
    let Page { rows, next } = match violations.is_empty() {
        true => found(visit, filter, &query).await?,
        false => Page { rows: Vec::new(), next: None },
    };
    let done = match query.text("done") {
        "added" => Some(format!("{} is suppressed. Queued messages are canceled.", query.text("email"))),
        "already" => Some("The address was already suppressed; its first reason is kept.".to_owned()),
        "lifted" => Some(format!("{} is no longer suppressed.", query.text("lifted"))),
        "imported" => Some("List imported.".to_owned()),
        _ => None,
    };
    let undo = undo(visit, &query, &rows);
    let (email, reason) = (query.text("email"), query.text("reason"));
    let page = SuppressionsPage {
        frame: PageFrame::new(visit, "Suppressions", PATH)?.with_done(done).with_undo(undo),
        lines: rows.into_iter().map(|row| line(visit, row)).collect(),
        paging: Paging::new::<SuppressionId>(PATH, &[("email", email), ("reason", reason)], &query, next),
        reasons: SuppressionReason::ALL,
        email: email.to_owned(),
        reason: reason.to_owned(),
        search_faults: violations.into(),
        new_domain: form.text("email").parse().ok(),
        new_email: form.text("email").to_owned(),
        note: form.text("note").to_owned(),
        faults,
        curl: curl(visit, "/v1/suppressions"),
    };
    html::page(status, &page)
}

/// Parses the filter. Text that is not a whole address is a part of one.
fn panel_filter(query: &Form, violations: &mut Violations) -> SuppressionFilter {
    let part = query.given("email").map(str::trim).filter(|text| text.parse::<Address>().is_err());
    match part {
        Some(part) => {
            let filter = filter_of(|name| query.given(name).filter(|_| name != "email"), violations);
            SuppressionFilter { part: Some(part.to_lowercase()), ..filter }
        }
        None => filter_of(|name| query.given(name), violations),
    }
}

/// Returns the form that undoes the last action, while that is possible.
fn undo(visit: &Visit<'_>, query: &Form, rows: &[SuppressionRow]) -> Option<Undo> {
    let undo = match (query.text("done"), rows) {
        ("added", [row]) => Undo { action: format!("{PATH}/{}/remove", row.id), field: None },
        ("lifted", _) => {
            let address: Address = query.text("lifted").parse().ok()?;
            Undo { action: PATH.to_owned(), field: Some(("email", address.as_given().to_owned())) }
        }
        _ => return None,
    };
    visit.may_send(Need::Handle).then_some(undo)
}

async fn found(visit: &Visit<'_>, filter: SuppressionFilter, query: &Form) -> Result<Page<SuppressionRow>, PageError> {
    let page = paging::request::<SuppressionId>(query, ROWS);
    Ok(visit.api.engine.suppressions(visit.account_id(), filter, page).await?)
}

fn line(visit: &Visit<'_>, row: SuppressionRow) -> SuppressionLine {
    SuppressionLine {
        path: format!("{PATH}/{}", row.id),
        badge: badge_of(row.reason),
        created_at: visit.moment(row.created_at).short(visit.now),
        email: row.email,
        note: row.note,
    }
}

/// `POST /suppressions`.
pub(in crate::panel) async fn add(visit: Visit<'_>) -> Result<Answer, PageError> {
    let form = Form::of(&visit.call)?;
    match new_of(form.as_body(&["email", "note"])) {
        Ok(suppression) => {
            let added = visit.api.engine.suppress(visit.on(), suppression).await.map_err(not_suppressed)?;
            let done = if added.is_new { "added" } else { "already" };
            Ok(html::redirect(&paging::address(PATH, &[("email", &added.row.email), ("done", done)])))
        }
        Err(ApiError::Invalid(faults)) => written(&visit, StatusCode::UNPROCESSABLE_ENTITY, &form, faults.into()).await,
        Err(error) => Err(error.into()),
    }
}
