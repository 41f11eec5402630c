//! A relay: a named egress route (contract 6), as configured. The transfer workers keep its state, such as throttling
//! and the used daily cap.

use std::net::IpAddr;
use std::sync::Arc;

use super::ports::Submission;
use crate::base::time::Timestamp;
use crate::domain::stream::Stream;

const DAY_SECS: u64 = 24 * 3600;
/// Upper bound of a growing cap: practically no limit.
const CAP_MAX: f64 = 4e9;

/// One egress route.
#[derive(Debug, Clone)]
pub struct Relay {
    /// Name, in every attempt and event.
    pub name: Arc<str>,
    /// EHLO name.
    pub ehlo: Arc<str>,
    /// Next hop.
    pub way: RelayWay,
    /// Source addresses; the system chooses if there are none.
    pub sources: Vec<IpAddr>,
    /// The streams that the relay sends.
    pub streams: Vec<Stream>,
    /// Daily cap while the relay's addresses are new to receivers.
    pub warm_up: Option<WarmUp>,
}

/// Next hop of a relay.
#[derive(Debug, Clone)]
pub enum RelayWay {
    /// The recipients' own mail servers.
    Mx,
    /// One server that accepts all mail.
    Smarthost(Smarthost),
}

/// A server that accepts all mail.
#[derive(Debug, Clone)]
pub struct Smarthost {
    /// Host name, or address as text.
    pub host: Arc<str>,
    /// Port.
    pub port: u16,
    /// Security of the connection, and the login.
    pub submission: Arc<Submission>,
}

/// Daily cap of a relay for each site, which may grow from a given day on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WarmUp {
    /// Messages on the first day.
    pub per_day: u32,
    /// Growth of each further day over the previous one, in percent.
    pub growth_percent: u32,
    /// The first day, in days since 1970-01-01 UTC.
    pub since: u32,
}

impl Relay {
    /// Returns whether the relay sends only this stream.
    pub(super) fn is_own_of(&self, stream: Stream) -> bool {
        self.streams.iter().all(|carried| *carried == stream)
    }
}

impl WarmUp {
    /// Returns the maximum number of messages for a site on `day`.
    pub fn cap(&self, day: u32) -> u32 {
        let days = i32::try_from(day.saturating_sub(self.since)).unwrap_or(i32::MAX);
        let growth = 1.0 + f64::from(self.growth_percent) / 100.0;
        let cap = f64::from(self.per_day) * growth.powi(days);
        // The cap is at least one message and at most CAP_MAX, so it fits into u32.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "held between 1 and CAP_MAX")]
        let cap = cap.clamp(1.0, CAP_MAX) as u32;
        cap
    }
}

/// Returns the UTC day of a time, in days since 1970-01-01.
pub(super) fn day_of(now: Timestamp) -> u32 {
    u32::try_from(now.as_secs() / DAY_SECS).unwrap_or(u32::MAX)
}

/// Returns the start of the next UTC day.
pub(super) fn next_day(now: Timestamp) -> Timestamp {
    Timestamp::from_millis((u64::from(day_of(now)) + 1) * DAY_SECS * 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cap_grows_by_its_percentage_each_day_after_the_first() {
        let steady = WarmUp { per_day: 200, growth_percent: 0, since: 0 };
        assert_eq!((steady.cap(0), steady.cap(20_000)), (200, 200));
        let growing = WarmUp { per_day: 50, growth_percent: 100, since: 20_000 };
        assert_eq!([19_999, 20_000, 20_001, 20_003].map(|day| growing.cap(day)), [50, 50, 100, 400]);
        assert_eq!(growing.cap(u32::MAX), 4_000_000_000);
    }

    #[test]
    fn the_next_day_begins_at_midnight_utc() {
        let noon = Timestamp::from_millis(1_700_049_600_000);
        assert_eq!((day_of(noon), next_day(noon).as_secs()), (19_676, 1_700_092_800));
        assert_eq!(day_of(next_day(noon)), 19_677);
    }
}
