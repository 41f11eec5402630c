//! Checklist of a domain: requirements of large receivers, and whether the domain meets them.

use askama::Template;
use hyper::StatusCode;

use crate::base::id::DomainId;
use crate::http::answer::Answer;
use crate::http::error::ApiError;
use crate::machine::checklist::{ItemId, Judgement, Receiver, Status};
use crate::panel::components::Badge;
use crate::panel::html;
use crate::panel::layout::PageFrame;
use crate::panel::page_error::PageError;
use crate::panel::page_guard::Visit;
use crate::panel::record_card::curl;
use crate::panel::timestamp::Moment;

#[derive(Template)]
#[template(path = "checklist.html")]
struct ChecklistPage {
    frame: PageFrame,
    id: DomainId,
    name: String,
    checked_at: Option<Moment>,
    can_verify: bool,
    /// Number of items that are open because the DNS was never checked.
    unchecked: usize,
    verdict: String,
    items: Vec<ItemLine>,
    curl: String,
}

/// One checklist item.
struct ItemLine {
    badge: Badge,
    title: &'static str,
    required_by: String,
    seen: String,
    remedy: Option<String>,
}

/// `GET /domains/{id}/checklist`.
pub(in crate::panel) async fn show(visit: Visit<'_>) -> Result<Answer, PageError> {
    let id: DomainId = visit.id()?;
    let engine = &visit.api.engine;
    let row = engine.domain(visit.account_id(), id)?.ok_or(ApiError::NotFound)?;
    let mut items = engine.checklist(visit.account_id(), id, &row).await?;
    items.sort_by_key(|(_, judgement)| urgency(judgement.status));
    let verdict = verdict(&items);
    let is_unchecked =
        |(_, judgement): &&(ItemId, Judgement)| row.last_checked_at.is_none() && judgement.is_not_looked_up();
    let unchecked = items.iter().filter(is_unchecked).count();
    let items = items.into_iter().map(|item| match is_unchecked(&&item) {
        true => ItemLine { badge: Badge::new("not checked", "calm", "clock"), seen: String::new(), ..line(item) },
        false => line(item),
    });
    let page = ChecklistPage {
        frame: PageFrame::new(&visit, format!("Checklist of {}", row.name), "/domains")?,
        id,
        name: row.name.to_string(),
        checked_at: row.last_checked_at.map(|at| visit.detail(at)),
        can_verify: row.next_check_at.is_some(),
        verdict,
        unchecked,
        items: items.collect(),
        curl: curl(&visit, &format!("/v1/domains/{id}/checklist")),
    };
    html::page(StatusCode::OK, &page)
}

/// Returns the place of an item in the list: failed items are first.
const fn urgency(status: Status) -> u8 {
    match status {
        Status::Fail => 0,
        Status::Warn => 1,
        Status::Pass | Status::Unknown | Status::Na => 2,
    }
}

fn verdict(items: &[(ItemId, Judgement)]) -> String {
    let count = |status| items.iter().filter(|(_, judgement)| judgement.status == status).count();
    let things = |count: usize| if count == 1 { "1 item".to_owned() } else { format!("{count} items") };
    let have = |count: usize| format!("{} {}", things(count), if count == 1 { "has" } else { "have" });
    match (count(Status::Fail), count(Status::Warn)) {
        (0, 0) => "No item failed.".to_owned(),
        (0, warnings) => format!("No item failed. {} a warning.", have(warnings)),
        (failures, 0) => format!("{} failed.", things(failures)),
        (failures, warnings) => {
            format!("{} failed, {} a warning.", things(failures), have(warnings))
        }
    }
}

fn line((id, judgement): (ItemId, Judgement)) -> ItemLine {
    let names: Vec<_> = id.required_by().iter().map(|receiver| name(*receiver)).collect();
    ItemLine {
        badge: badge(judgement.status),
        title: id.title(),
        required_by: names.join(", "),
        seen: judgement.seen,
        remedy: judgement.remedy,
    }
}

const fn name(receiver: Receiver) -> &'static str {
    match receiver {
        Receiver::Google => "Google",
        Receiver::Yahoo => "Yahoo",
        Receiver::Microsoft => "Microsoft",
    }
}

const fn badge(status: Status) -> Badge {
    match status {
        Status::Pass => Badge::new("pass", "good", "check"),
        Status::Warn => Badge::new("warning", "wait", "warn"),
        Status::Fail => Badge::new("fails", "bad", "cross"),
        Status::Unknown => Badge::new("unknown", "calm", "help"),
        Status::Na => Badge::new("not applicable", "calm", "leave"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_items_are_first_and_those_with_a_warning_next() {
        let mut all = [Status::Pass, Status::Na, Status::Warn, Status::Unknown, Status::Fail];
        all.sort_by_key(|status| urgency(*status));
        assert_eq!(all, [Status::Fail, Status::Warn, Status::Pass, Status::Na, Status::Unknown]);
    }
}
