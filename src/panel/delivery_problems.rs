//! Delivery problems: recent rejections and deferrals, grouped by receiver and response. Only the newest events of two
//! types are read, so the cost is bounded.

use std::collections::BTreeMap;
use std::time::Duration;

use super::components::{Badge, shortened};
use super::event::Event;
use super::page_guard::Visit;
use crate::domain::event::EventType;
use crate::engine::events::EventFilter;
use crate::engine::listing::PageRequest;
use crate::store::error::StoreError;

/// Period of recent events.
const LATELY: Duration = Duration::from_secs(24 * 3600);
/// Maximum number of events read for each type.
const LOOKED_AT: usize = 100;
/// Maximum number of problems shown.
const SHOWN: usize = 5;

/// A repeated response of one receiver.
#[derive(Debug)]
pub(super) struct RepeatedAnswer {
    /// Domain of the recipients.
    pub(super) receiver: String,
    /// Whether mail was deferred or rejected.
    pub(super) badge: Badge,
    /// Beginning of the newest response.
    pub(super) answer: String,
    /// Remedy, or an empty string if none is known.
    pub(super) advice: String,
    /// Page of the newest affected message.
    pub(super) path: String,
    /// Number of occurrences among the events that were read.
    pub(super) count: usize,
}

/// Returns the most frequent problems of the last day.
///
/// # Errors
/// Store errors.
pub(super) fn problems(visit: &Visit<'_>) -> Result<Vec<RepeatedAnswer>, StoreError> {
    let mut found: BTreeMap<_, RepeatedAnswer> = BTreeMap::new();
    for kind in [EventType::Bounced, EventType::Deferred] {
        let filter = EventFilter { kind: Some(kind), ..EventFilter::default() };
        let page = PageRequest { before: None, limit: LOOKED_AT };
        let events = visit.api.engine.events(visit.account_id(), filter, page)?.rows;
        let events = events.iter().filter_map(|bytes| Event::read(bytes));
        for event in events.take_while(|event| event.at() + LATELY > visit.now) {
            let key = (event.receiver(), kind, event.smtp_code, event.smtp_enhanced_code.clone());
            found.entry(key).or_insert_with(|| first(&event)).count += 1;
        }
    }
    let mut problems: Vec<_> = found.into_values().collect();
    problems.sort_by_key(|problem| std::cmp::Reverse(problem.count));
    problems.truncate(SHOWN);
    Ok(problems)
}

fn first(event: &Event) -> RepeatedAnswer {
    RepeatedAnswer {
        receiver: event.receiver(),
        badge: Badge::of_event(event.kind),
        answer: shortened(event.smtp_response.as_deref().unwrap_or("no answer")),
        advice: event.bounce.as_ref().map(|bounce| bounce.advice.clone()).unwrap_or_default(),
        path: format!("/messages/{}", event.message_id),
        count: 0,
    }
}
