//! Outcomes of the messages that were accepted in one hour: counts by stream, sending domain and provider.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Row;
use crate::domain::event::{Bounce, BounceKind, EventType};
use crate::machine::reputation::{Figures, Rate};
use crate::store::schema::Table;

/// Number of buckets in the histogram of delivery times.
pub const TIME_BUCKETS: usize = 16;
/// Number of counts that version 1 of the row lacks.
const SINCE_V1: usize = 2 + TIME_BUCKETS;

/// Number of times that each outcome was recorded. A message may have several, for example delivered and then bounced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutcomeCounts {
    /// Messages accepted. They are counted without a provider, which is not known yet.
    pub accepted: u64,
    /// Attempts with a transient failure, and reported delays.
    pub deferred: u64,
    /// Messages accepted by a server.
    pub delivered: u64,
    /// Bounces: the address or its domain can't receive.
    pub bounced_hard: u64,
    /// Bounces: a later or smaller message may be accepted.
    pub bounced_soft: u64,
    /// Bounces: the sender is refused.
    pub bounced_block: u64,
    /// Bounces without a clear cause.
    pub bounced_undetermined: u64,
    /// Number of bounces after delivery: the message was accepted by a server and returned later.
    pub returned: u64,
    /// Messages given up.
    pub failed: u64,
    /// Messages that were reported as spam.
    pub complained: u64,
    /// Messages through whose link the recipient unsubscribed.
    pub unsubscribed: u64,
    /// Messages that were not sent, because their address became suppressed.
    pub suppressed: u64,
    /// Messages withdrawn.
    pub canceled: u64,
    /// Number of deliveries over TLS.
    pub delivered_tls: u64,
    /// Number of accepted marketing messages without one-click unsubscription.
    pub without_one_click: u64,
    /// Deliveries by the time since acceptance. Bucket *n* counts those of at most 2^*n* seconds that are not in an
    /// earlier bucket. The last bucket also counts all slower ones.
    pub delivery_times: [u64; TIME_BUCKETS],
}

impl Row for OutcomeCounts {
    const TABLE: Table = Table::Outcomes;
    const VERSION: u8 = 2;

    /// Decodes version 1, which lacks the counts from `delivered_tls` on. Each of them is zero, which is a zero byte.
    fn decode_earlier(version: u8, bytes: &[u8]) -> Option<postcard::Result<Self>> {
        (version == 1).then(|| postcard::from_bytes(&[bytes, &[0; SINCE_V1]].concat()))
    }
}

impl OutcomeCounts {
    /// Counts one event.
    pub fn count(&mut self, kind: EventType, bounce: Option<&Bounce>) {
        let counter = match kind {
            EventType::Queued => &mut self.accepted,
            EventType::Deferred => &mut self.deferred,
            EventType::Delivered => &mut self.delivered,
            EventType::Failed => &mut self.failed,
            EventType::Complained => &mut self.complained,
            EventType::Suppressed => &mut self.suppressed,
            EventType::Unsubscribed => &mut self.unsubscribed,
            EventType::Canceled => &mut self.canceled,
            EventType::Bounced => match bounce.map(|bounce| bounce.kind) {
                Some(BounceKind::Hard) => &mut self.bounced_hard,
                Some(BounceKind::Soft) => &mut self.bounced_soft,
                Some(BounceKind::Block) => &mut self.bounced_block,
                Some(BounceKind::Undetermined) | None => &mut self.bounced_undetermined,
            },
        };
        *counter += 1;
    }

    /// Counts the time and the TLS of a delivery that [`Self::count`] has counted.
    pub fn count_delivery(&mut self, took: Duration, is_secured: bool) {
        self.delivered_tls += u64::from(is_secured);
        let seconds = took.as_millis().div_ceil(1000).max(1);
        let bucket = usize::try_from(seconds.next_power_of_two().trailing_zeros()).unwrap_or(TIME_BUCKETS);
        self.delivery_times[bucket.min(TIME_BUCKETS - 1)] += 1;
    }

    /// Returns the number of deliveries whose time and TLS are counted.
    pub fn timed(&self) -> u64 {
        self.delivery_times.iter().sum()
    }

    /// Returns the time within which `hundredths` percent of the deliveries were made, in seconds: the upper bound of a
    /// bucket. `None` without a delivery of known time.
    pub fn delivery_seconds(&self, hundredths: u64) -> Option<u64> {
        let wanted = (self.timed() * hundredths).div_ceil(100);
        let mut reached = 0;
        let bucket = self.delivery_times.iter().position(|count| {
            reached += count;
            *count > 0 && reached >= wanted
        })?;
        Some(1 << bucket)
    }

    /// Adds the counts of another row.
    pub fn add(&mut self, more: &Self) {
        self.accepted += more.accepted;
        self.deferred += more.deferred;
        self.delivered += more.delivered;
        self.bounced_hard += more.bounced_hard;
        self.bounced_soft += more.bounced_soft;
        self.bounced_block += more.bounced_block;
        self.bounced_undetermined += more.bounced_undetermined;
        self.returned += more.returned;
        self.failed += more.failed;
        self.complained += more.complained;
        self.unsubscribed += more.unsubscribed;
        self.suppressed += more.suppressed;
        self.canceled += more.canceled;
        self.delivered_tls += more.delivered_tls;
        self.without_one_click += more.without_one_click;
        self.delivery_times.iter_mut().zip(more.delivery_times).for_each(|(count, more)| *count += more);
    }

    /// Returns the bounces of every kind: for a sender's reputation a block counts as much as a dead address.
    pub const fn bounced(&self) -> u64 {
        self.bounced_hard + self.bounced_soft + self.bounced_block + self.bounced_undetermined
    }

    /// Returns the number of messages that were delivered or bounced, each counted once.
    pub const fn answered(&self) -> u64 {
        (self.delivered + self.bounced()).saturating_sub(self.returned)
    }

    /// Returns the figures for the bounce and complaint rates.
    pub const fn figures(&self) -> Figures {
        Figures {
            bounces: Rate { count: self.bounced(), of: self.answered() },
            complaints: Rate { count: self.complained, of: self.delivered },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_of_version_1_has_no_times() {
        let row = OutcomeCounts { accepted: 300, delivered: 2, canceled: 1, ..OutcomeCounts::default() };
        let bytes = row.encode();
        let earlier = [&[1], &bytes[1..bytes.len() - SINCE_V1]].concat();
        assert_eq!(OutcomeCounts::decode(&earlier).unwrap(), row);
        assert_eq!(OutcomeCounts::decode(&bytes).unwrap(), row);
    }

    #[test]
    fn delivery_times_are_powers_of_two_of_seconds() {
        let mut counts = OutcomeCounts::default();
        assert_eq!(counts.delivery_seconds(50), None);
        for millis in [0, 1_000, 1_001, 2_000, 2_001, 90_000_000] {
            counts.count_delivery(Duration::from_millis(millis), millis == 0);
        }
        assert_eq!(&counts.delivery_times[..3], [2, 2, 1]);
        assert_eq!((counts.delivery_times[TIME_BUCKETS - 1], counts.delivered_tls), (1, 1));
        assert_eq!((counts.delivery_seconds(50), counts.delivery_seconds(95)), (Some(2), Some(32_768)));
        counts.add(&counts.clone());
        assert_eq!((counts.delivery_times[0], counts.delivery_seconds(0)), (4, Some(1)));
    }
}
