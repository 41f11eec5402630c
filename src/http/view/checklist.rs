//! The checklist of a domain, as `GET /v1/domains/{id}/checklist` returns it (contract 14.2).

use serde::Serialize;

use crate::base::time::{Timestamp, iso};
use crate::http::openapi::shape::describe;
use crate::machine::checklist::{ItemId, Judgement, Receiver, Status};
use crate::store::row::domain::DomainRow;

/// The list.
#[derive(Serialize)]
pub(in crate::http) struct ChecklistView<'a> {
    domain: &'a str,
    #[serde(serialize_with = "iso::option::serialize")]
    checked_at: Option<Timestamp>,
    items: Vec<ItemView<'a>>,
}

/// One item.
#[derive(Serialize)]
struct ItemView<'a> {
    id: ItemId,
    title: &'static str,
    status: Status,
    required_by: &'static [Receiver],
    seen: &'a str,
    remedy: Option<&'a str>,
}

impl<'a> ChecklistView<'a> {
    pub(in crate::http) fn new(row: &'a DomainRow, items: &'a [(ItemId, Judgement)]) -> Self {
        let item = |(id, judgement): &'a (ItemId, Judgement)| ItemView {
            id: *id,
            title: id.title(),
            status: judgement.status,
            required_by: id.required_by(),
            seen: &judgement.seen,
            remedy: judgement.remedy.as_deref(),
        };
        Self { domain: row.name.as_str(), checked_at: row.last_checked_at, items: items.iter().map(item).collect() }
    }
}

describe! {
    ChecklistView<'_> as "Checklist", "The requirements of large receivers, and a domain's state for each."
    {
        domain: "The domain's name." => |schema| schema.example("example.com"),
        checked_at: "Time of the last DNS check.",
        items: "All items, in this order.",
    }
}

describe! {
    ItemView<'_> as "ChecklistItem", "One item of the checklist."
    {
        id: "The subject.",
        title: "The item in words." => |schema| schema.example("SPF lets this server pass"),
        status: "The outcome.",
        required_by: "Receivers that require it from bulk senders.",
        seen: "The facts.",
        remedy: "The remedy; null if there is nothing to do.",
    }
}
