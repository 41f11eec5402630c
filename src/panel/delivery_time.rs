//! Time to delivery: the time from the 202 answer to `delivered`, by recipient domain. Identifiers and events contain
//! both times, so no message is read. Only a bounded number of the newest deliveries is read.

use std::collections::BTreeMap;
use std::time::Duration;

use super::event::Event;
use super::page_guard::Visit;
use super::timestamp::lasted;
use crate::base::id::MessageId;
use crate::domain::event::EventType;
use crate::engine::events::EventFilter;
use crate::engine::listing::PageRequest;
use crate::store::error::StoreError;

/// Period of the deliveries.
const LATELY: Duration = Duration::from_secs(24 * 3600);
/// Maximum number of deliveries read.
const LOOKED_AT: usize = 200;
/// Maximum number of receivers shown.
const SHOWN: usize = 5;

/// Time to delivery for one receiver.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct DeliveryTime {
    /// Domain of the recipients.
    pub(super) receiver: String,
    /// Number of deliveries among those that were read.
    pub(super) count: usize,
    /// Median.
    pub(super) median: String,
    /// 95th percentile.
    pub(super) most: String,
}

/// Returns the figures of all newest deliveries together, and of the receivers with the most deliveries.
///
/// # Errors
/// Store errors.
pub(super) fn patience(visit: &Visit<'_>) -> Result<(DeliveryTime, Vec<DeliveryTime>), StoreError> {
    let filter = EventFilter { kind: Some(EventType::Delivered), ..EventFilter::default() };
    let page = PageRequest { before: None, limit: LOOKED_AT };
    let events = visit.api.engine.events(visit.account_id(), filter, page)?.rows;
    let mut times: BTreeMap<String, Vec<Duration>> = BTreeMap::new();
    for event in events.iter().filter_map(|bytes| Event::read(bytes)) {
        if event.at() + LATELY <= visit.now {
            break;
        }
        if let Ok(message) = event.message_id.parse::<MessageId>() {
            times.entry(event.receiver()).or_default().push(event.at().since(message.0.timestamp()));
        }
    }
    let all = times.values().flatten().copied().collect();
    let mut found: Vec<_> = times.into_iter().map(|(receiver, times)| of(receiver, times)).collect();
    found.sort_by_key(|patience| std::cmp::Reverse(patience.count));
    found.truncate(SHOWN);
    Ok((of(String::new(), all), found))
}

fn of(receiver: String, mut times: Vec<Duration>) -> DeliveryTime {
    times.sort_unstable();
    let at = |percent: usize| times.get((times.len() * percent).div_ceil(100).saturating_sub(1)).copied();
    let told = |percent| lasted(at(percent).unwrap_or_default());
    DeliveryTime { count: times.len(), median: told(50), most: told(95), receiver }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_and_95th_percentile_are_reported() {
        let told = |millis: &[u64]| {
            let patience = of(String::new(), millis.iter().map(|millis| Duration::from_millis(*millis)).collect());
            (patience.count, patience.median, patience.most)
        };
        assert_eq!(told(&[30, 10, 20]), (3, "20 ms".to_owned(), "30 ms".to_owned()));
        let hundred: Vec<u64> = (1..=100).collect();
        assert_eq!(told(&hundred), (100, "50 ms".to_owned(), "95 ms".to_owned()));
        assert_eq!(told(&[7]), (1, "7 ms".to_owned(), "7 ms".to_owned()));
    }
}
