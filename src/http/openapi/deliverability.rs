//! The routes about deliverability.

use hyper::StatusCode;
use serde_json::json;

use super::operation::Operation;
use super::schema::Schema;
use super::shape::Shape as _;
use crate::base::id::{AlertId, DomainId};
use crate::domain::alert::Condition;
use crate::engine::alerts::record::AlertRecord;
use crate::http::handlers::providers::{DAYS_DEFAULT, DAYS_MAX};
use crate::http::view::checklist::ChecklistView;
use crate::http::view::explain::ExplanationView;
use crate::http::view::providers::ProvidersView;
use crate::mail::explain::HEADERS_BYTES_MAX;

const DELIVERABILITY: &str = "Deliverability";

/// Returns the description of a deliverability route.
pub(super) fn deliverability(name: &str) -> Option<Operation> {
    Some(match name {
        "explain" => Operation::new(DELIVERABILITY, "Explain a test message")
            .says("Reads a receiver's results from the headers of a message. Nothing is stored.")
            .takes(headers(), &[("test_mail", json!({ "headers": "Authentication-Results: ..." }))])
            .gives(StatusCode::OK, "The receiver's findings.", ExplanationView::schema()),
        "domains.checklist" => Operation::new(DELIVERABILITY, "Check a domain against receivers' requirements")
            .at("id", DomainId::schema(), "The domain's identifier.")
            .says("Based on the last DNS check and on recent mail.")
            .gives(StatusCode::OK, "Every item.", ChecklistView::schema()),
        "providers.show" => Operation::new(DELIVERABILITY, "Get figures by provider")
            .says("Counts cover messages accepted in this number of UTC days, up to today.")
            .query("days", Schema::count().within(1, DAYS_MAX.into()).with("default", DAYS_DEFAULT), "Number of days.")
            .gives(StatusCode::OK, "The figures of each provider.", ProvidersView::schema()),
        "alerts.list" => Operation::new(DELIVERABILITY, "List alerts")
            .says(
                "Alerts of the account, open and resolved, kept for 90 days. If the service has only one account, it \
                 also sees the service's alerts.",
            )
            .query(
                "state",
                Schema::words(["open", "resolved"].map(|word| json!(word))),
                "Only open or resolved alerts.",
            )
            .query("condition", Condition::schema(), "Only alerts of this condition.")
            .gives_page("AlertPage", AlertRecord::schema()),
        "alerts.show" => Operation::new(DELIVERABILITY, "Get an alert")
            .at("id", AlertId::schema(), "The alert's identifier.")
            .gives(StatusCode::OK, "The alert.", AlertRecord::schema()),
        _ => return None,
    })
}

fn headers() -> Schema {
    let headers = Schema::string().length(0, HEADERS_BYTES_MAX).says("The headers, as the mailbox shows them.");
    Schema::object().member("headers", headers).closed().named("ExplainRequest", "The headers of a test message.")
}
