//! Wall time as stored, compared and shown: milliseconds since the Unix epoch.
//!
//! This module reads no clock. Below the edges time is always an argument, so that one virtual clock can move the whole
//! program.

use std::fmt;
use std::ops::{Add, Sub};
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A moment in wall time, in milliseconds since 1970-01-01T00:00:00Z. Never negative.
///
/// Displayed and parsed as ISO 8601 with an offset; always written in UTC (contract 1):
/// `2026-11-20T15:04:05.123+00:00`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Timestamp(u64);

/// Error: the text is not a valid moment in time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("must be an ISO 8601 time with an offset, such as 2026-11-20T15:04:05+00:00")]
pub struct InvalidTimestamp;

impl Timestamp {
    /// The epoch, before every stored moment.
    pub const ZERO: Self = Self(0);
    /// A moment after every moment that can be stored; the end of an open range.
    pub const MAX: Self = Self(253_402_300_799_999);

    /// Returns the moment `millis` milliseconds after the epoch, limited to the years that ISO 8601 can express.
    pub const fn from_millis(millis: u64) -> Self {
        if millis > Self::MAX.0 { Self::MAX } else { Self(millis) }
    }

    /// Returns the milliseconds since the epoch.
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// Returns the whole seconds since the epoch, rounded down.
    pub const fn as_secs(self) -> u64 {
        self.0 / 1000
    }

    /// Returns the time from `earlier` to `self`, or zero if `self` is not later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }

    /// Returns the moment `millis` later, or earlier if it is negative.
    pub const fn moved_by(self, millis: i64) -> Self {
        Self::from_millis(self.0.saturating_add_signed(millis))
    }

    /// Returns the UTC date, such as `2026-11-24`.
    pub fn to_date(self) -> String {
        self.civil().to_string().chars().take("2026-11-24".len()).collect()
    }

    fn civil(self) -> jiff::Timestamp {
        let millis = i64::try_from(self.0).unwrap_or(i64::MAX);
        jiff::Timestamp::from_millisecond(millis).unwrap_or(jiff::Timestamp::UNIX_EPOCH)
    }

    /// Returns the form for the `Date` header (RFC 5322 3.3), in UTC: `Fri, 20 Nov 2026 15:04:05 +0000`.
    pub fn to_rfc5322(self) -> String {
        self.civil().strftime("%a, %d %b %Y %H:%M:%S +0000").to_string()
    }
}

impl Add<Duration> for Timestamp {
    type Output = Self;
    fn add(self, later: Duration) -> Self {
        let millis = u64::try_from(later.as_millis()).unwrap_or(u64::MAX);
        Self::from_millis(self.0.saturating_add(millis))
    }
}

impl Sub<Duration> for Timestamp {
    type Output = Self;
    fn sub(self, earlier: Duration) -> Self {
        let millis = u64::try_from(earlier.as_millis()).unwrap_or(u64::MAX);
        Self(self.0.saturating_sub(millis))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.civil().strftime("%Y-%m-%dT%H:%M:%S%.3f+00:00"))
    }
}

impl FromStr for Timestamp {
    type Err = InvalidTimestamp;
    fn from_str(text: &str) -> Result<Self, InvalidTimestamp> {
        let moment: jiff::Timestamp = text.parse().map_err(|_| InvalidTimestamp)?;
        let millis = u64::try_from(moment.as_millisecond()).map_err(|_| InvalidTimestamp)?;
        Ok(Self::from_millis(millis))
    }
}

/// Serialises a [`Timestamp`] as the text of contract 1, for JSON that leaves the program. Rows contain the number.
pub mod iso {
    use super::Timestamp;
    use serde::Serializer;

    /// Serialises a moment, for `#[serde(serialize_with)]`.
    ///
    /// # Errors
    /// Errors of the serializer.
    pub fn serialize<S: Serializer>(at: &Timestamp, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(at)
    }

    /// Functions for `#[serde(serialize_with)]` on an optional moment; `None` is null.
    pub mod option {
        use super::super::Timestamp;
        use serde::Serializer;

        /// Serialises an optional moment, for `#[serde(serialize_with)]`.
        ///
        /// # Errors
        /// Errors of the serializer.
        pub fn serialize<S: Serializer>(at: &Option<Timestamp>, to: S) -> Result<S::Ok, S::Error> {
            match at {
                Some(at) => to.collect_str(at),
                None => to.serialize_none(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_written_in_utc_with_milliseconds_and_an_offset() {
        let at = Timestamp::from_millis(1_700_000_000_005);
        assert_eq!(at.to_string(), "2023-11-14T22:13:20.005+00:00");
        assert_eq!(at.to_rfc5322(), "Tue, 14 Nov 2023 22:13:20 +0000");
    }

    #[test]
    fn parses_any_offset_and_rejects_a_missing_one() {
        let at: Timestamp = "2023-11-15T00:13:20.005+02:00".parse().unwrap();
        assert_eq!(at.as_millis(), 1_700_000_000_005);
        assert!("2023-11-15T00:13:20".parse::<Timestamp>().is_err());
        assert!("yesterday".parse::<Timestamp>().is_err());
    }
}
