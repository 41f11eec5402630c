//! Delivery problems: rejections and deferrals of a period, grouped by receiver and response. Only the newest events of
//! two types are read, so the cost is bounded.

use std::collections::BTreeMap;

use super::components::{Badge, excerpt};
use super::event::Event;
use super::page_guard::Visit;
use crate::base::time::Timestamp;
use crate::domain::event::EventType;
use crate::domain::stream::Stream;
use crate::engine::events::EventFilter;
use crate::engine::listing::{Page, PageRequest};
use crate::store::error::StoreError;

/// Maximum number of events read for each type.
pub(super) const LOOKED_AT: usize = 100;
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

/// The most frequent problems of a period.
#[derive(Debug)]
pub(super) struct DeliveryProblems {
    /// Groups of problems, the most frequent first.
    pub(super) answers: Vec<RepeatedAnswer>,
    /// Whether the period has more events than were read.
    pub(super) is_cut: bool,
}

/// Returns the most frequent problems since `from`, of one stream or all.
///
/// # Errors
/// Store errors.
pub(super) fn problems(
    visit: &Visit<'_>,
    from: Timestamp,
    stream: Option<Stream>,
) -> Result<DeliveryProblems, StoreError> {
    let (mut found, mut is_cut) = (BTreeMap::<_, RepeatedAnswer>::new(), false);
    for kind in [EventType::Bounced, EventType::Deferred] {
        let filter = EventFilter { kind: Some(kind), after: Some(from), ..EventFilter::default() };
        let page = PageRequest { before: None, limit: LOOKED_AT };
        let Page { rows, next } = visit.api.engine.events(visit.account_id(), filter, page)?;
        is_cut |= next.is_some();
        let of_stream = |event: &Event| stream.is_none_or(|stream| event.stream == stream.as_str());
        for event in rows.iter().filter_map(|bytes| Event::read(bytes)).filter(of_stream) {
            let key = (event.receiver(), kind, event.smtp_code, event.smtp_enhanced_code.clone());
            found.entry(key).or_insert_with(|| first(&event)).count += 1;
        }
    }
    let mut answers: Vec<_> = found.into_values().collect();
    answers.sort_by_key(|problem| std::cmp::Reverse(problem.count));
    answers.truncate(SHOWN);
    Ok(DeliveryProblems { answers, is_cut })
}

fn first(event: &Event) -> RepeatedAnswer {
    RepeatedAnswer {
        receiver: event.receiver(),
        badge: Badge::of_event(event.kind),
        answer: excerpt(event.smtp_response.as_deref().unwrap_or("no answer"), &event.to),
        advice: event.bounce.as_ref().map(|bounce| bounce.advice.clone()).unwrap_or_default(),
        path: format!("/messages/{}", event.message_id),
        count: 0,
    }
}
