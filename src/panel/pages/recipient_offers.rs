//! Searches for the recipients whose addresses contain a lone word that found nothing, because a part of an address is
//! not searched. Only the newest messages are read.

use super::messages::address;
use crate::engine::listing::PageRequest;
use crate::engine::messages::MessageFilter;
use crate::panel::page_error::PageError;
use crate::panel::page_guard::Visit;
use crate::panel::search::Search;

/// Number of the newest messages whose recipients are read.
const NEWEST: usize = 100;
/// Maximum number of addresses offered.
const OFFERS_MAX: usize = 5;

/// Returns addresses that contain the lone word of `search`, the latest first, each with the path of its search. Status
/// and stream stay as they are.
pub(super) async fn searches(visit: &Visit<'_>, search: &Search) -> Result<Vec<(String, String)>, PageError> {
    let Some(word) = search.lone_word().map(|word| word.to_lowercase()) else { return Ok(Vec::new()) };
    let newest = PageRequest { before: None, limit: NEWEST };
    let newest = visit.api.engine.messages(visit.account_id(), MessageFilter::default(), newest).await?;
    let mut found: Vec<String> = Vec::new();
    for record in &newest.rows {
        let to = record.row.to.as_given();
        if to.to_lowercase().contains(&word) && !found.iter().any(|known| known.eq_ignore_ascii_case(to)) {
            found.push(to.to_owned());
        }
    }
    let offer = |to: String| {
        let params = [("q", to.clone()), ("status", search.status.clone()), ("stream", search.stream.clone())];
        let path = address("/messages", &params, None);
        (to, path)
    };
    Ok(found.into_iter().take(OFFERS_MAX).map(offer).collect())
}
