//! A moment as people read it: in the account's time zone, with UTC in the tooltip and a form that scripts understand.

use std::fmt;
use std::time::Duration;

use askama::filters::HtmlSafe;
use jiff::tz::TimeZone;

use crate::base::time::Timestamp;

/// A moment in a zone. Written as a `time` element.
#[derive(Debug, Clone)]
pub(super) struct Moment {
    at: Timestamp,
    zone: TimeZone,
}

impl Moment {
    /// `at`, shown in `zone`.
    pub(super) const fn new(at: Timestamp, zone: TimeZone) -> Self {
        Self { at, zone }
    }

    /// The text: `2026-11-20 16:04:05 CET`.
    pub(super) fn text(&self) -> String {
        zoned(self.at, &self.zone).strftime("%Y-%m-%d %H:%M:%S %Z").to_string()
    }

    /// The day alone: `20 Nov`.
    pub(super) fn day(&self) -> String {
        zoned(self.at, &self.zone).strftime("%-d %b").to_string()
    }

    /// The date: `2026-11-20`.
    pub(super) fn date(&self) -> String {
        zoned(self.at, &self.zone).strftime("%Y-%m-%d").to_string()
    }

    /// The name of the zone at this moment: `CET`.
    pub(super) fn zone_name(&self) -> String {
        zoned(self.at, &self.zone).strftime("%Z").to_string()
    }

    /// The time of day as a `time` element, for lists whose rows stand under their day.
    pub(super) fn clock(&self) -> Clock<'_> {
        Clock(self)
    }

    /// The time of day, to the minute: `16:04`.
    pub(super) fn hour(&self) -> String {
        zoned(self.at, &self.zone).strftime("%H:%M").to_string()
    }
}

fn zoned(at: Timestamp, zone: &TimeZone) -> jiff::Zoned {
    let millis = i64::try_from(at.as_millis()).unwrap_or(i64::MAX);
    jiff::Timestamp::from_millisecond(millis).unwrap_or(jiff::Timestamp::UNIX_EPOCH).to_zoned(zone.clone())
}

/// The first moment of the day that `now` is in.
pub(super) fn start_of_day(now: Timestamp, zone: &TimeZone) -> Timestamp {
    let start = zoned(now, zone).start_of_day().map(|day| day.timestamp().as_millisecond());
    start.ok().and_then(|millis| u64::try_from(millis).ok()).map_or(Timestamp::ZERO, Timestamp::from_millis)
}

impl fmt::Display for Moment {
    /// Digits and names of zones: nothing in it is markup.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.text();
        let (date, rest) = text.split_once(' ').unwrap_or((&text, ""));
        write!(f, "<time datetime=\"{at}\" title=\"{at} (UTC)\">{date} <span>{rest}</span></time>", at = self.at)
    }
}

impl HtmlSafe for Moment {}

/// A [`Moment`] without its date.
pub(super) struct Clock<'m>(&'m Moment);

impl fmt::Display for Clock<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Moment { at, zone } = self.0;
        let text = zoned(*at, zone).strftime("%H:%M:%S").to_string();
        write!(f, "<time datetime=\"{at}\" title=\"{at} (UTC)\"><span>{text}</span></time>")
    }
}

impl HtmlSafe for Clock<'_> {}

/// The days of a list: the name of the day above each row that begins one.
pub(super) struct Days {
    today: Timestamp,
    last: Option<String>,
}

impl Days {
    /// The days of a list that is shown at this moment.
    pub(super) const fn new(today: Timestamp) -> Self {
        Self { today, last: None }
    }

    /// The name of the day where `moment` begins one: `Today`, `Sun 6 Dec`, `Sun 6 Dec 2026` in another year.
    pub(super) fn begin(&mut self, moment: &Moment) -> Option<String> {
        let date = moment.date();
        if self.last.as_ref() == Some(&date) {
            return None;
        }
        let today = Moment::new(self.today, moment.zone.clone()).date();
        let form = if date[..4] == today[..4] { "%a %-d %b" } else { "%a %-d %b %Y" };
        let name = match date == today {
            true => "Today".to_owned(),
            false => zoned(moment.at, &moment.zone).strftime(form).to_string(),
        };
        self.last = Some(date);
        Some(name)
    }
}

/// Returns the time since the step before: `+1.8 s`.
pub(super) fn gap(earlier: Timestamp, later: Timestamp) -> String {
    format!("+{}", lasted(later.since(earlier)))
}

/// A time in the unit that fits: `1.8 s`.
pub(super) fn lasted(time: Duration) -> String {
    let millis = time.as_millis();
    let tenths = |unit: u128| format!("{}.{}", millis / unit, millis % unit * 10 / unit);
    match millis {
        0..1_000 => format!("{millis} ms"),
        1_000..60_000 => format!("{} s", tenths(1_000)),
        60_000..3_600_000 => format!("{} min", tenths(60_000)),
        3_600_000..172_800_000 => format!("{} h", tenths(3_600_000)),
        _ => format!("{} days", tenths(86_400_000)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_told_in_the_zone_and_meant_in_utc() {
        let zone = TimeZone::get("Europe/Vienna").unwrap();
        let moment = Moment::new(Timestamp::from_millis(1_700_000_000_000), zone.clone());
        assert_eq!(
            moment.to_string(),
            "<time datetime=\"2023-11-14T22:13:20.000+00:00\" title=\"2023-11-14T22:13:20.000+00:00 (UTC)\">\
             2023-11-14 <span>23:13:20 CET</span></time>"
        );
        let midnight = start_of_day(Timestamp::from_millis(1_700_000_000_000), &zone);
        assert_eq!(midnight.to_string(), "2023-11-13T23:00:00.000+00:00");
    }

    #[test]
    fn a_row_that_begins_a_day_names_it() {
        let zone = TimeZone::get("Europe/Vienna").unwrap();
        let at = |text: &str| Moment::new(text.parse().unwrap(), zone.clone());
        let mut days = Days::new("2026-12-06T22:30:00.000+00:00".parse().unwrap());
        let mut begun = |text: &str| days.begin(&at(text));
        assert_eq!(begun("2026-12-06T22:20:00.000+00:00").as_deref(), Some("Today"));
        assert_eq!(begun("2026-12-05T23:00:00.000+00:00"), None, "midnight of the zone");
        assert_eq!(begun("2026-12-05T22:59:59.000+00:00").as_deref(), Some("Sat 5 Dec"));
        assert_eq!(begun("2025-12-31T12:00:00.000+00:00").as_deref(), Some("Wed 31 Dec 2025"));
        let moment = at("2026-12-05T22:59:59.000+00:00");
        assert_eq!(moment.zone_name(), "CET");
        assert!(moment.clock().to_string().ends_with("(UTC)\"><span>23:59:59</span></time>"));
    }

    #[test]
    fn gaps_are_told_in_the_unit_that_fits() {
        let after = |millis| gap(Timestamp::ZERO, Timestamp::from_millis(millis));
        assert_eq!([0, 999, 1_840, 90_000].map(after), ["+0 ms", "+999 ms", "+1.8 s", "+1.5 min"]);
        assert_eq!([7_200_000, 259_200_000].map(after), ["+2.0 h", "+3.0 days"]);
    }
}
