//! The reporters of a domain's DMARC reports as JSON.

use serde::Serialize;

use crate::engine::dmarc::{Overview, Reporter};
use crate::http::openapi::shape::describe;

/// Maximum number of reporters shown, the largest ones.
pub(crate) const REPORTERS_MAX: usize = 200;

/// A reporter.
#[derive(Serialize)]
pub(in crate::http) struct ReporterView<'a> {
    name: &'a str,
    reports: u64,
    messages: u64,
}

/// A reporter with the domain that signs its reports.
#[derive(Serialize)]
pub(in crate::http) struct SignedReporterView<'a> {
    name: &'a str,
    signed_by: Option<&'a str>,
    reports: u64,
    messages: u64,
    ignored: bool,
}

/// A reporter, and whether it is ignored.
#[derive(Serialize)]
pub(in crate::http) struct IgnoredReporterView<'a> {
    name: &'a str,
    reports: u64,
    messages: u64,
    ignored: bool,
}

impl<'a> ReporterView<'a> {
    pub(in crate::http) fn new(reporter: &'a Reporter) -> Self {
        Self { name: &reporter.name, reports: reporter.reports, messages: reporter.messages }
    }
}

impl<'a> SignedReporterView<'a> {
    pub(in crate::http) fn new(reporter: &'a Reporter) -> Self {
        let Reporter { name, signed_by, reports, messages, is_ignored } = reporter;
        let signed_by = signed_by.as_deref();
        Self { name, signed_by, reports: *reports, messages: *messages, ignored: *is_ignored }
    }
}

/// Returns the largest reporters that are ignored, or those that are not.
pub(in crate::http) fn largest(overview: &Overview, are_ignored: bool) -> impl Iterator<Item = &Reporter> {
    let wanted = overview.reporters.iter().filter(move |reporter| reporter.is_ignored == are_ignored);
    wanted.take(REPORTERS_MAX)
}

impl<'a> IgnoredReporterView<'a> {
    pub(in crate::http) fn new(reporter: &'a Reporter) -> Self {
        let Reporter { name, reports, messages, is_ignored, .. } = reporter;
        Self { name, reports: *reports, messages: *messages, ignored: *is_ignored }
    }
}

describe! {
    ReporterView<'_> as "DmarcReporter", "An organisation that sends reports."
    {
        name: "The reporter's name, as reported." => |schema| schema.example("google.com"),
        reports: "The reporter's reports in the range.",
        messages: "Messages in the reporter's reports.",
    }
}

describe! {
    SignedReporterView<'_> as "DmarcSignedReporter", "A reporter: a name, and the domain that signs its reports. \
        Others may use the same name."
    {
        name: "The reporter's name, as reported. Reports of a domain that signs under many names are counted \
            under the name of this domain."
            => |schema| schema.example("google.com"),
        signed_by: "The domain that signs its reports, without subdomains; null for reporters that are counted \
            together."
            => |schema| schema.example("google.com"),
        reports: "The reporter's reports in the range.",
        messages: "Messages in the reporter's reports.",
        ignored: "Whether it is excluded from counts, recommendation and alerts.",
    }
}

describe! {
    IgnoredReporterView<'_> as "DmarcReporterMark", "A reporter of a domain, and whether its reports count."
    {
        name: "The reporter's name, as reported." => |schema| schema.example("google.com"),
        reports: "The reporter's reports in the last 30 days.",
        messages: "Messages in the reporter's reports.",
        ignored: "Whether it is excluded from counts, recommendation and alerts.",
    }
}
