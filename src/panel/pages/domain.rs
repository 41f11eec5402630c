//! One sending domain: its expected and published DNS records, its DKIM keys, and its stream.

use askama::Template;
use hyper::StatusCode;

use super::delete::{self, Deletion};
use super::domains::badge_of;
use crate::base::id::DomainId;
use crate::domain::sending_domain::{DkimState, DomainStatus};
use crate::domain::stream::Stream;
use crate::http::answer::Answer;
use crate::http::error::ApiError;
use crate::http::handlers::domains::{change_of, refused, shown};
use crate::machine::verification::GRACE;
use crate::panel::components::{Badge, FormErrors};
use crate::panel::dns::{self, RecordLine};
use crate::panel::form::Form;
use crate::panel::html;
use crate::panel::layout::PageFrame;
use crate::panel::page_error::PageError;
use crate::panel::page_guard::Visit;
use crate::panel::record_card::Record;
use crate::panel::timestamp::Moment;
use crate::store::row::domain::{DkimKeyRow, DomainRow};

#[derive(Template)]
#[template(path = "domain.html")]
struct DomainPage {
    frame: PageFrame,
    id: DomainId,
    name: String,
    badge: Badge,
    standing: StatusMeaning,
    stream: Stream,
    streams: [Stream; 2],
    verified_at: Option<Moment>,
    last_checked_at: Option<Moment>,
    next_check_at: Option<Moment>,
    /// Days between rotations of the keys.
    rotation_days: u16,
    /// Days as typed, if the input was refused.
    typed_days: Option<String>,
    /// Reasons for the refusal.
    days_fault: String,
    next_rotation_at: Option<Moment>,
    lines: Vec<RecordLine>,
    found: String,
    zone_file: String,
    /// The registrant's domain, to which the short names of the records are relative.
    zone: String,
    keys: Vec<KeyLine>,
    record: Record,
}

/// Meaning of a domain's status for sending.
enum StatusMeaning {
    /// The domain is not verified yet, so mail is rejected.
    Pending,
    /// Verified.
    Verified,
    /// Pre-verified by `dev`; DNS is never checked.
    PreVerified,
    /// The DKIM record is missing. The domain stays verified until then.
    Failing { seen_at: Moment, until: Moment },
}

/// A DKIM key.
struct KeyLine {
    selector: String,
    algorithm: String,
    badge: Badge,
    created_at: Moment,
    retired_at: Option<Moment>,
}

fn find(visit: &Visit<'_>) -> Result<(DomainId, DomainRow), PageError> {
    let id: DomainId = visit.id()?;
    let row = visit.api.engine.domain(visit.account_id(), id)?.ok_or(ApiError::NotFound)?;
    Ok((id, row))
}

/// `GET /domains/{id}`.
pub(in crate::panel) async fn show(visit: Visit<'_>) -> Result<Answer, PageError> {
    let found = find(&visit)?;
    written(&visit, StatusCode::OK, found, None, FormErrors::none())
}

/// Renders the page, with days that were refused as typed.
fn written(
    visit: &Visit<'_>,
    status: StatusCode,
    (id, row): (DomainId, DomainRow),
    typed_days: Option<String>,
    faults: FormErrors,
) -> Result<Answer, PageError> {
    let lines = dns::lines(&row, &visit.api.engine.settings);
    let found = dns::found(&row, &lines);
    let (done, needs_attention) = result(visit, &lines, found.as_deref());
    let own = format!("/domains/{id}");
    let page = DomainPage {
        frame: PageFrame::new(visit, row.name.as_str(), "/domains")?.with_done(done).with_attention(needs_attention),
        id,
        name: row.name.to_string(),
        badge: badge_of(row.status),
        standing: standing(visit, &row),
        stream: row.stream,
        streams: Stream::ALL,
        verified_at: row.verified_at.map(|at| visit.detail(at)),
        last_checked_at: row.last_checked_at.map(|at| visit.detail(at)),
        next_check_at: row.next_check_at.map(|at| visit.detail(at)),
        rotation_days: row.rotation.days,
        typed_days,
        days_fault: faults.of("dkim_rotation_days"),
        next_rotation_at: row.rotation.next_at.map(|at| visit.detail(at)),
        zone_file: dns::zone_file(&lines),
        zone: row.name.registrant_domain().to_owned(),
        found: found.map_or_else(|| "Not checked".to_owned(), |number| format!("{number} records found")),
        lines,
        keys: row.dkim.iter().rev().map(|key| key_line(visit, key)).collect(),
        record: Record::new(visit, id, &own, &format!("/v1/domains/{id}")),
    };
    html::page(status, &page)
}

/// Returns the result of the last action in a sentence, and whether it needs attention.
fn result(visit: &Visit<'_>, lines: &[RecordLine], found: Option<&str>) -> (Option<String>, bool) {
    let done = match Form::of_query(&visit.call).text("done") {
        "added" => "Domain added. Publish its records, then check.",
        "checked" => {
            let found = found.map(|number| format!("Checked: {number} records found."));
            return (found, lines.iter().any(|line| !line.is_ok));
        }
        "rotated" => "New keys created. They sign once published.",
        "scheduled" => "Rotation changed.",
        "rotated-standby" => "The standby keys sign from now on. Publish the records of the next ones.",
        "waiting" => {
            return (Some("Not rotated: the records of the next keys are not published yet.".to_owned()), true);
        }
        "saved" => "Stream changed for new mail.",
        _ => return (None, false),
    };
    (Some(done.to_owned()), false)
}

fn standing(visit: &Visit<'_>, row: &DomainRow) -> StatusMeaning {
    match (row.status, row.next_check_at) {
        (DomainStatus::Pending, _) => StatusMeaning::Pending,
        (DomainStatus::Verified, None) => StatusMeaning::PreVerified,
        (DomainStatus::Verified, Some(_)) => StatusMeaning::Verified,
        (DomainStatus::Failing, _) => {
            let seen_at = row.last_seen_at.unwrap_or(row.created_at);
            StatusMeaning::Failing { seen_at: visit.detail(seen_at), until: visit.detail(seen_at + GRACE) }
        }
    }
}

fn key_line(visit: &Visit<'_>, key: &DkimKeyRow) -> KeyLine {
    KeyLine {
        selector: key.selector.clone(),
        algorithm: key.algorithm.to_string(),
        badge: match key.state {
            DkimState::Pending => Badge::new("pending", "wait", "clock"),
            DkimState::Active => Badge::new("active", "good", "check"),
            DkimState::Standby => Badge::new("standby", "good", "clock"),
            DkimState::Retiring => Badge::new("retiring", "calm", "leave"),
        },
        created_at: visit.moment(key.created_at),
        retired_at: key.retired_at.map(|at| visit.moment(at)),
    }
}

/// `GET /domains/{id}/json`: the record as the API returns it.
pub(in crate::panel) async fn json(visit: Visit<'_>) -> Result<Answer, PageError> {
    let (id, row) = find(&visit)?;
    Ok(shown(visit.api, id, &row))
}

/// `POST /domains/{id}/verify`: checks the records now, bypassing every cache.
pub(in crate::panel) async fn verify(visit: Visit<'_>) -> Result<Answer, PageError> {
    let id: DomainId = visit.id()?;
    visit.api.engine.verify_domain(visit.on(), id).await.map_err(refused)?;
    Ok(html::redirect(&format!("/domains/{id}?done=checked")))
}

/// `POST /domains/{id}/rotate-dkim`.
pub(in crate::panel) async fn rotate_dkim(visit: Visit<'_>) -> Result<Answer, PageError> {
    let id: DomainId = visit.id()?;
    let (_, before) = find(&visit)?;
    let signs = |row: &DomainRow| row.dkim.iter().find(|key| key.state == DkimState::Active).map(DkimKeyRow::number);
    let row = visit.api.engine.rotate_dkim(visit.on(), id).await.map_err(refused)?;
    let done = match row.rotation.days {
        0 => "rotated",
        _ if signs(&before) == signs(&row) => "waiting",
        _ => "rotated-standby",
    };
    Ok(html::redirect(&format!("/domains/{id}?done={done}")))
}

/// `POST /domains/{id}`: changes the stream or the key rotation.
pub(in crate::panel) async fn change(visit: Visit<'_>) -> Result<Answer, PageError> {
    let (id, row) = find(&visit)?;
    let form = Form::of(&visit.call)?;
    let mut body = form.as_body(&["stream", "dkim_rotation_days"]);
    let days = form.text("dkim_rotation_days").trim();
    if let Ok(days) = days.parse::<u64>() {
        body.insert("dkim_rotation_days".to_owned(), days.into());
    }
    let change = match change_of(body) {
        Ok(change) => change,
        Err(ApiError::Invalid(faults)) if faults.by_field().contains_key("dkim_rotation_days") => {
            let typed = Some(days.to_owned());
            return written(&visit, StatusCode::UNPROCESSABLE_ENTITY, (id, row), typed, faults.into());
        }
        Err(error) => return Err(error.into()),
    };
    let done = if change.rotation_days.is_some() { "scheduled" } else { "saved" };
    visit.api.engine.update_domain(visit.on(), id, change).await.map_err(refused)?;
    Ok(html::redirect(&format!("/domains/{id}?done={done}")))
}

fn deletion(id: DomainId, row: &DomainRow) -> Deletion {
    Deletion {
        title: format!("Delete domain {}", row.name),
        consequences: "New mail is rejected, accepted mail is still sent. Re-adding makes new keys.",
        name: row.name.to_string(),
        action: format!("/domains/{id}/delete"),
        button: "Delete domain",
        back: format!("/domains/{id}"),
    }
}

/// `GET /domains/{id}/delete`.
pub(in crate::panel) async fn ask_to_delete(visit: Visit<'_>) -> Result<Answer, PageError> {
    let (id, row) = find(&visit)?;
    delete::show(&visit, "/domains", deletion(id, &row))
}

/// `POST /domains/{id}/delete`.
pub(in crate::panel) async fn delete(visit: Visit<'_>) -> Result<Answer, PageError> {
    let (id, row) = find(&visit)?;
    if let Some(refused) = delete::refused(&visit, "/domains", deletion(id, &row))? {
        return Ok(refused);
    }
    visit.api.engine.delete_domain(visit.on(), id).await.map_err(refused)?;
    Ok(html::redirect("/domains?done=deleted"))
}
