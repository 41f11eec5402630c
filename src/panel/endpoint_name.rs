//! Names by which people tell webhook endpoints apart: the description, or the host and the path of the URL. An
//! operator's view has no paths, because they may be secrets of the receivers.

use super::components::cut_in_middle;
use super::page_guard::Visit;
use crate::store::op::audit::host;
use crate::store::row::endpoint::EndpointRow;

/// Maximum number of characters of a URL in a list.
const URL_CHARACTERS: usize = 44;

/// Returns the title of an endpoint: its description or its host.
pub(super) fn title(row: &EndpointRow) -> String {
    description(row).unwrap_or_else(|| host(row)).to_owned()
}

/// Returns the name of an endpoint in one line: its description or its shortened URL.
pub(super) fn in_one_line(visit: &Visit<'_>, row: &EndpointRow) -> String {
    match description(row) {
        Some(words) => words.to_owned(),
        None if visit.view().is_some() => host(row).to_owned(),
        None => cut_in_middle(without_scheme(row).trim_end_matches('/'), URL_CHARACTERS),
    }
}

/// Returns the part of the URL that the title lacks, shortened. `None` if it lacks nothing.
pub(super) fn below_title(visit: &Visit<'_>, row: &EndpointRow) -> Option<String> {
    let url = without_scheme(row);
    match (description(row).is_some(), visit.view().is_some()) {
        (true, true) => Some(host(row).to_owned()),
        (true, false) => Some(cut_in_middle(url, URL_CHARACTERS)),
        (false, true) => None,
        (false, false) => {
            let path = url.strip_prefix(host(row)).filter(|path| !matches!(*path, "" | "/"))?;
            Some(cut_in_middle(path, URL_CHARACTERS))
        }
    }
}

fn description(row: &EndpointRow) -> Option<&str> {
    row.description.as_deref().filter(|words| !words.is_empty())
}

fn without_scheme(row: &EndpointRow) -> &str {
    row.url.split_once("://").map_or(row.url.as_str(), |(_, rest)| rest)
}
