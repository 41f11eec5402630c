//! Times of a search: days, and times of the account's zone. The API's own format is accepted too.

use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;

use crate::base::time::Timestamp;
use crate::panel::timestamp::Moment;

const DAY_BYTES: usize = "2026-11-20".len();
const MINUTE_BYTES: usize = "2026-11-20T15:04".len();
const SECOND_BYTES: usize = "2026-11-20T15:04:05".len();

/// Converts a day, such as `2026-11-20`, to its first moment in the zone, and a time without an offset, such as
/// `2026-11-20T15:04`, to that moment. Other text stays as it is, for the API's own check.
pub(in crate::panel) fn moment(text: &str, zone: &TimeZone) -> String {
    let zoned = match day(text) {
        Some(day) => day.to_zoned(zone.clone()).ok(),
        None if is_local(text) => text.parse::<DateTime>().ok().and_then(|time| time.to_zoned(zone.clone()).ok()),
        None => None,
    };
    let millis = zoned.and_then(|zoned| u64::try_from(zoned.timestamp().as_millisecond()).ok());
    millis.map_or_else(|| text.to_owned(), |millis| Timestamp::from_millis(millis).to_string())
}

/// Returns a typed day.
pub(super) fn day(text: &str) -> Option<Date> {
    text.parse().ok().filter(|_| text.len() == DAY_BYTES)
}

/// Whether a text has the length and the separators of a time without an offset.
fn is_local(text: &str) -> bool {
    let colon_at = |place: usize| text.as_bytes().get(place) == Some(&b':');
    colon_at(13) && (text.len() == MINUTE_BYTES || (text.len() == SECOND_BYTES && colon_at(16)))
}

/// Returns a time as it is typed in a search: without an offset, unless the zone's clocks are set back then.
pub(in crate::panel) fn typed(at: Timestamp, zone: &TimeZone) -> String {
    let local = Moment::new(at, zone.clone()).local();
    if moment(&local, zone) == at.to_string() { local } else { at.to_string() }
}

/// A form field for a time.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::panel) struct TimeField {
    /// Type of the field.
    pub(in crate::panel) kind: &'static str,
    /// Content of the field.
    pub(in crate::panel) value: String,
}

impl TimeField {
    /// Returns the field of a typed day or time: the browser's own for a day or a time, and text for anything else.
    pub(in crate::panel) fn new(text: &str, zone: &TimeZone) -> Self {
        if text.is_empty() || day(text).is_some() {
            return Self { kind: "date", value: text.to_owned() };
        }
        let value = parsed(text, zone).map_or_else(|| text.to_owned(), |at| typed(at, zone));
        Self { kind: if is_local(&value) { "datetime-local" } else { "text" }, value }
    }
}

/// Returns the moment of a typed day or time.
pub(super) fn parsed(text: &str, zone: &TimeZone) -> Option<Timestamp> {
    moment(text, zone).parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vienna() -> TimeZone {
        TimeZone::get("Europe/Vienna").unwrap()
    }

    #[test]
    fn times_without_an_offset_are_those_of_the_zone() {
        for (text, at) in [
            ("2026-11-20", "2026-11-19T23:00:00.000+00:00"),
            ("2026-11-20T15:04", "2026-11-20T14:04:00.000+00:00"),
            ("2026-11-20T15:04:05", "2026-11-20T14:04:05.000+00:00"),
            ("2026-11-20T15:04Z", "2026-11-20T15:04Z"),
            ("2026-11-20T15-01", "2026-11-20T15-01"),
            ("2026-11-20T15:04+01", "2026-11-20T15:04+01"),
            ("2026-13-20T15:04", "2026-13-20T15:04"),
        ] {
            assert_eq!(moment(text, &vienna()), at);
        }
    }

    #[test]
    fn a_typed_time_means_the_same_moment_also_when_clocks_are_set_back() {
        for (at, text) in [
            ("2026-11-20T14:00:00.000+00:00", "2026-11-20T15:00"),
            ("2026-11-20T14:00:05.000+00:00", "2026-11-20T15:00:05"),
            ("2026-10-25T00:00:00.000+00:00", "2026-10-25T02:00"),
            ("2026-10-25T01:00:00.000+00:00", "2026-10-25T01:00:00.000+00:00"),
            ("2026-11-20T14:00:05.001+00:00", "2026-11-20T14:00:05.001+00:00"),
        ] {
            assert_eq!(typed(at.parse().unwrap(), &vienna()), text);
            assert_eq!(moment(text, &vienna()), at);
        }
    }

    #[test]
    fn a_field_shows_a_time_in_the_zone_and_keeps_what_it_does_not_understand() {
        let field = |text: &str| {
            let TimeField { kind, value } = TimeField::new(text, &vienna());
            (kind, value)
        };
        assert_eq!(field(""), ("date", String::new()));
        assert_eq!(field("2026-11-20"), ("date", "2026-11-20".to_owned()));
        assert_eq!(field("2026-11-20T14:00:00.000+00:00"), ("datetime-local", "2026-11-20T15:00".to_owned()));
        assert_eq!(field("yesterday"), ("text", "yesterday".to_owned()));
    }
}
