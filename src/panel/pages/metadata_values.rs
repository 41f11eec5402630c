//! Searches for a lone word as a value of metadata, so that an order number leads to its messages although the visitor
//! does not know the key.

use std::collections::BTreeSet;

use jiff::tz::TimeZone;

use super::messages::address;
use crate::domain::violation::Violations;
use crate::engine::listing::PageRequest;
use crate::engine::messages::MessageFilter;
use crate::panel::page_error::PageError;
use crate::panel::page_guard::Visit;
use crate::panel::search::{Search, of_metadata};

/// Number of the newest messages with the value that are read. Their keys are offered.
const NEWEST: usize = 20;

/// Returns the searches that find the lone word of `search` as the value of a key, each with its path. Status and
/// stream stay as they are.
pub(super) async fn searches(
    visit: &Visit<'_>,
    search: &Search,
    zone: &TimeZone,
) -> Result<Vec<(String, String)>, PageError> {
    // The hint for a pair is better.
    let Some(word) = search.lone_word().filter(|word| !word.contains([':', '='])) else { return Ok(Vec::new()) };
    let others = Search::read("", &search.status, &search.stream, zone);
    let filter = MessageFilter { metadata_value: Some(word.clone()), ..others.filter(&mut Violations::new()) };
    let newest = PageRequest { before: None, limit: NEWEST };
    let found = visit.api.engine.messages(visit.account_id(), filter, newest).await?;
    let metadata = found.rows.iter().flat_map(|record| &record.row.metadata);
    let keys: BTreeSet<_> = metadata.filter(|(_, value)| **value == word).map(|(key, _)| key).collect();
    let pairs = keys.into_iter().map(|key| {
        let text = of_metadata(key, &word);
        let meant = Search::read(&text, &search.status, &search.stream, zone);
        (text, address("/messages", &meant.params(), None))
    });
    Ok(pairs.collect())
}
