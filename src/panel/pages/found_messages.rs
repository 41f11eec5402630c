//! Messages that a search finds, or another reading of the same text if it finds nothing.

use jiff::tz::TimeZone;

use super::messages::ROWS;
use crate::base::id::MessageId;
use crate::base::time::Timestamp;
use crate::domain::violation::Violations;
use crate::engine::listing::{Page, PageRequest};
use crate::engine::messages::{MessageFilter, MessageRecord};
use crate::http::handlers::exports::of_messages;
use crate::panel::components::FormErrors;
use crate::panel::page_error::PageError;
use crate::panel::page_guard::Visit;
use crate::panel::search::{Search, Term};

/// Result of a search: errors in it, and a page of messages.
pub(super) struct FoundMessages {
    pub(super) faults: Vec<String>,
    pub(super) indexed_since: Option<Timestamp>,
    pub(super) is_exportable: bool,
    pub(super) page: Page<MessageRecord>,
}

impl FoundMessages {
    /// Whether the search has read all messages and none matches, or the search is not valid.
    pub(super) const fn has_nothing(&self) -> bool {
        self.page.rows.is_empty() && self.page.next.is_none()
    }
}

/// Returns the searches to try if `search` finds nothing: the only offered search of metadata, another reading of the
/// text, and the only offered recipient.
pub(super) fn others(
    search: &Search,
    [metadata, recipients]: [&[(String, String)]; 2],
    zone: &TimeZone,
) -> Vec<Search> {
    let only = |offers: &[(String, String)]| match offers {
        [(text, _)] => Some(Search::read(text, &search.status, &search.stream, zone)),
        _ => None,
    };
    [only(metadata), search.alternative(zone), only(recipients)].into_iter().flatten().collect()
}

/// Shows the first of `others` that finds something instead of a search that found nothing: the search that is shown,
/// the text as typed with the words
/// that say what it did not match if that is another one, and the result. Faults of the first search stay visible.
pub(super) async fn instead(
    visit: &Visit<'_>,
    (search, first): (Search, FoundMessages),
    others: Vec<Search>,
) -> Result<(Search, Option<(&'static str, String)>, FoundMessages), PageError> {
    for other in others {
        let found = look(visit, &other, None, None).await?;
        if !found.page.rows.is_empty() {
            return Ok((
                other,
                Some((nothing_found(&search), search.text)),
                FoundMessages { faults: first.faults, ..found },
            ));
        }
    }
    Ok((search, None, first))
}

/// Returns the words before the text of a search that found nothing.
fn nothing_found(search: &Search) -> &'static str {
    match search.terms.as_slice() {
        [Term::Filter("to", ..)] => "No message was sent to",
        terms if terms.iter().all(|term| matches!(term, Term::Word(_))) => "No subject contains",
        _ => "Nothing matches",
    }
}

/// Reads a page of messages.
pub(super) async fn look(
    visit: &Visit<'_>,
    search: &Search,
    newer: Option<MessageId>,
    older: Option<MessageId>,
) -> Result<FoundMessages, PageError> {
    let (engine, account) = (&visit.api.engine, visit.account_id());
    let mut violations = Violations::new();
    let filter = search.filter(&mut violations);
    let mut faults = search.faults.clone();
    faults.extend(FormErrors::from(violations).all());
    let indexed_since = match filter.metadata.is_empty() {
        true => None,
        false => engine.metadata_indexed_since(account).await?,
    };
    let mut of_export = Violations::new();
    let (after, before) = (filter.after, filter.before);
    of_messages(engine, MessageFilter { after, before, ..MessageFilter::default() }, &mut of_export);
    let page = match newer {
        // A malformed filter, or one with another account's message, matches nothing.
        _ if !faults.is_empty() => Page { rows: Vec::new(), next: None },
        Some(after) => engine.newer_messages(account, filter, after, ROWS).await?,
        None => {
            let page = PageRequest { before: older.map(|id| id.0), limit: ROWS };
            engine.messages(account, filter, page).await?
        }
    };
    Ok(FoundMessages { faults, indexed_since, is_exportable: of_export.is_empty(), page })
}
