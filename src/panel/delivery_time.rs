//! Time to delivery: the time from the 202 answer to `delivered`, of the messages that were accepted in a period.
//! Identifiers and events contain both times, so no message is read. Only a bounded number of the newest deliveries is
//! read; the figures of a longer list come from the hourly counts, which round up to powers of two of seconds.

use std::time::Duration;

use super::event::Event;
use super::page_guard::Visit;
use super::timestamp::lasted;
use crate::base::id::MessageId;
use crate::base::time::Timestamp;
use crate::domain::event::EventType;
use crate::domain::stream::Stream;
use crate::engine::events::EventFilter;
use crate::engine::listing::PageRequest;
use crate::store::error::StoreError;
use crate::store::row::outcomes::OutcomeCounts;

/// Maximum number of deliveries read.
const LOOKED_AT: usize = 200;

/// Time to delivery in a period.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct DeliveryTime {
    /// Median.
    pub(super) median: String,
    /// 95th percentile.
    pub(super) most: String,
}

/// Returns the figures of a stream's messages that were accepted since `from`, and whose counts are `total`. `None`
/// without a delivery.
///
/// # Errors
/// Store errors.
pub(super) fn of_period(
    visit: &Visit<'_>,
    from: Timestamp,
    stream: Option<Stream>,
    total: &OutcomeCounts,
) -> Result<Option<DeliveryTime>, StoreError> {
    let filter = EventFilter { kind: Some(EventType::Delivered), after: Some(from), ..EventFilter::default() };
    let page = PageRequest { before: None, limit: LOOKED_AT };
    let found = visit.api.engine.events(visit.account_id(), filter, page)?;
    if found.next.is_some() {
        return Ok(of_counts(total));
    }
    let mut times = Vec::with_capacity(found.rows.len());
    for event in found.rows.iter().filter_map(|bytes| Event::read(bytes)) {
        let accepted_at = event.message_id.parse::<MessageId>().map(|id| id.0.timestamp());
        let is_of_stream = stream.is_none_or(|stream| event.stream == stream.as_str());
        times.extend(accepted_at.ok().filter(|at| *at >= from && is_of_stream).map(|at| event.at().since(at)));
    }
    Ok(of_times(times))
}

fn of_counts(total: &OutcomeCounts) -> Option<DeliveryTime> {
    let within = |percent| total.delivery_seconds(percent).map(Duration::from_secs).map(lasted);
    Some(DeliveryTime { median: within(50)?, most: within(95)? })
}

fn of_times(mut times: Vec<Duration>) -> Option<DeliveryTime> {
    times.sort_unstable();
    let within = |percent: usize| {
        let place = (times.len() * percent).div_ceil(100).saturating_sub(1);
        times.get(place).copied().map(lasted)
    };
    Some(DeliveryTime { median: within(50)?, most: within(95)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_and_95th_percentile_are_reported() {
        let of = |millis: &[u64]| {
            let times = of_times(millis.iter().map(|millis| Duration::from_millis(*millis)).collect())?;
            Some((times.median, times.most))
        };
        assert_eq!(of(&[30, 10, 20]), Some(("20 ms".to_owned(), "30 ms".to_owned())));
        let hundred: Vec<u64> = (1..=100).collect();
        assert_eq!(of(&hundred), Some(("50 ms".to_owned(), "95 ms".to_owned())));
        assert_eq!((of(&[7]), of(&[])), (Some(("7 ms".to_owned(), "7 ms".to_owned())), None));
    }

    #[test]
    fn the_figures_of_many_deliveries_come_from_the_counts() {
        let mut counts = OutcomeCounts::default();
        assert_eq!(of_counts(&counts), None);
        [1, 2, 90].into_iter().for_each(|seconds| counts.count_delivery(Duration::from_secs(seconds), true));
        let times = of_counts(&counts).unwrap();
        assert_eq!((times.median.as_str(), times.most.as_str()), ("2 s", "2 min 8 s"));
    }
}
