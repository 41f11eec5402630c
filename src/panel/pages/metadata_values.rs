//! Searches for a lone word as a value of metadata, so that an order number leads to its messages although the visitor
//! does not know the key. The keys of the newest messages are looked up in the index.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use jiff::tz::TimeZone;

use super::messages::address;
use crate::domain::violation::Violations;
use crate::engine::listing::PageRequest;
use crate::engine::messages::MessageFilter;
use crate::panel::page_error::PageError;
use crate::panel::page_guard::Visit;
use crate::panel::search::{Search, of_metadata};

/// Number of the newest messages whose keys are looked up.
const NEWEST: usize = 40;
/// Maximum number of keys that are looked up, those of the most messages.
const KEYS_MAX: usize = 10;

/// Returns the searches that find the lone word of `search` as the value of a key, each with its path. Status and
/// stream stay as they are.
pub(super) async fn searches(
    visit: &Visit<'_>,
    search: &Search,
    zone: &TimeZone,
) -> Result<Vec<(String, String)>, PageError> {
    // The hint for a pair is better.
    let Some(word) = search.lone_word().filter(|word| !word.contains([':', '='])) else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for key in known_keys(visit).await? {
        let text = of_metadata(&key, &word);
        let meant = Search::read(&text, &search.status, &search.stream, zone);
        let mut violations = Violations::new();
        let filter = meant.filter(&mut violations);
        let one = PageRequest { before: None, limit: 1 };
        // A word that is too long for a value is the value of no message.
        if violations.is_empty()
            && meant.faults.is_empty()
            && !visit.api.engine.messages(visit.account_id(), filter, one).await?.rows.is_empty()
        {
            found.push((text, address("/messages", &meant.params(), None)));
        }
    }
    Ok(found)
}

/// Returns the keys of the newest messages, the most frequent first.
async fn known_keys(visit: &Visit<'_>) -> Result<Vec<String>, PageError> {
    let newest = PageRequest { before: None, limit: NEWEST };
    let newest = visit.api.engine.messages(visit.account_id(), MessageFilter::default(), newest).await?;
    let mut counts = BTreeMap::<&String, usize>::new();
    for (key, _) in newest.rows.iter().flat_map(|record| &record.row.metadata) {
        *counts.entry(key).or_default() += 1;
    }
    let mut keys: Vec<_> = counts.into_iter().collect();
    keys.sort_by_key(|(_, count)| Reverse(*count));
    Ok(keys.into_iter().take(KEYS_MAX).map(|(key, _)| key.clone()).collect())
}
