//! Part of every record's page for programs and their authors: its identifier, its JSON, and the command that gets it.

use super::page_guard::Visit;

/// The foot of a record's page.
#[derive(Debug)]
pub(super) struct Record {
    /// Its identifier.
    pub(super) id: String,
    /// Where the panel shows it as the API does.
    pub(super) json: String,
    /// The command.
    pub(super) curl: String,
}

impl Record {
    /// The foot of the record `id`, whose page is at `page` and which the API has at `path`.
    pub(super) fn new(visit: &Visit<'_>, id: impl ToString, page: &str, path: &str) -> Self {
        Self { id: id.to_string(), json: format!("{page}/json"), curl: curl(visit, path) }
    }
}

/// The command that gets what the API has at `path`.
pub(super) fn curl(visit: &Visit<'_>, path: &str) -> String {
    let public_url = visit.api.engine.settings.public_url.get().map_or("", |url| url.trim_end_matches('/'));
    format!("curl {public_url}{path} -H \"Authorization: Bearer $POSTRIDER_API_KEY\"")
}
