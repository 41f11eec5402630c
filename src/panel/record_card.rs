//! API section of a record's page: identifier, JSON, and the curl command.

use super::page_guard::Visit;

/// API section of a record's page.
#[derive(Debug)]
pub(super) struct Record {
    /// Identifier of the record.
    pub(super) id: String,
    /// Path of the record's JSON in the panel.
    pub(super) json: String,
    /// The curl command.
    pub(super) curl: String,
}

impl Record {
    /// Creates the section of the record `id`. Its page is at `page`, and its API resource at `path`.
    pub(super) fn new(visit: &Visit<'_>, id: impl ToString, page: &str, path: &str) -> Self {
        Self { id: id.to_string(), json: format!("{page}/json"), curl: curl(visit, path) }
    }
}

/// Returns the curl command for an API path.
pub(super) fn curl(visit: &Visit<'_>, path: &str) -> String {
    let public_url = visit.api.engine.settings.public_url.get().map_or("", |url| url.trim_end_matches('/'));
    format!("curl {public_url}{path} -H \"Authorization: Bearer $POSTRIDER_API_KEY\"")
}
