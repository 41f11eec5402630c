//! The routes of DMARC reports.

use hyper::StatusCode;
use serde_json::json;

use super::operation::Operation;
use super::schema::Schema;
use super::shape::Shape as _;
use crate::base::id::DomainId;
use crate::domain::stream::Stream;
use crate::http::error::ApiError;
use crate::http::handlers::dmarc::{DAYS_DEFAULT, DAYS_MAX};
use crate::http::view::dmarc::{DmarcReportView, DmarcView, SourceView};
use crate::http::view::dmarc_reporters::IgnoredReporterView;

const DELIVERABILITY: &str = "Deliverability";
const DOMAIN_ID: &str = "The domain's identifier.";

/// Returns the description of a route of DMARC reports.
pub(super) fn operation(name: &str) -> Option<Operation> {
    let at = |summary| Operation::new(DELIVERABILITY, summary).at("id", DomainId::schema(), DOMAIN_ID);
    let limited = || ApiError::StreamForbidden(Stream::Marketing.to_string());
    Some(match name {
        "dmarc.show" => at("Get a summary of a domain's DMARC reports")
            .says(
                "Receivers' reports about mail with the domain in From, and the next step towards a policy of \
                 `reject`. The recommendation is always based on the last 30 days.",
            )
            .query(
                "days",
                Schema::count().within(1, DAYS_MAX.into()).with("default", DAYS_DEFAULT),
                "Number of UTC days, including today.",
            )
            .gives(StatusCode::OK, "The figures.", DmarcView::schema()),
        "dmarc.sources" => at("Mark a source")
            .says("Marks whether a source is the account's own. Only sources named in a report can be marked.")
            .takes(mark(), &[("mine", json!({ "network": "192.0.2.0/24", "mine": true }))])
            .gives(StatusCode::OK, "The source, with figures of the last 30 days.", SourceView::schema())
            .fails([limited()]),
        "dmarc.reporters" => at("Ignore a reporter")
            .says("Excludes a reporter from counts, recommendation and alerts, or includes it again.")
            .takes(reporter(), &[("ignored", json!({ "name": "reporter.example", "ignored": true }))])
            .gives(StatusCode::OK, "The reporter, with figures of the last 30 days.", IgnoredReporterView::schema())
            .fails([limited()]),
        "dmarc.reports" => at("List a domain's DMARC reports")
            .says("Latest first. Reports that are not authentic are listed but not counted.")
            .gives_page("DmarcReportPage", DmarcReportView::schema()),
        _ => return None,
    })
}

fn mark() -> Schema {
    let network = Schema::string().says("The source's network, as the figures show it.");
    let mine = Schema::boolean().or_null().says("Whether it is yours; null removes the mark.");
    let object = Schema::object().member("network", network).member("mine", mine);
    object.closed().named("DmarcSourceMark", "A source, and whether it is the account's own.")
}

fn reporter() -> Schema {
    let name = Schema::string().says("The reporter's name, as the figures show it.");
    let ignored = Schema::boolean().says("Whether its reports are ignored.");
    let signed_by = Schema::string().or_null().says(
        "The domain that signs its reports; without it, all reporters of this \
        name are meant.",
    );
    let object = Schema::object().member("name", name).optional("signed_by", signed_by).member("ignored", ignored);
    object.closed().named("DmarcReporterChange", "A reporter, and whether its reports are ignored.")
}
