//! A time as people read it: in the account's time zone, with UTC in the tooltip and a machine-readable form.

use std::fmt;
use std::time::Duration;

use askama::filters::HtmlSafe;
use jiff::tz::TimeZone;

use crate::base::time::Timestamp;

/// A moment in a zone. Written as a `time` element, on detail pages with its age after it.
#[derive(Debug, Clone)]
pub(super) struct Moment {
    at: Timestamp,
    zone: TimeZone,
    /// Time of the page, if the age is shown.
    now: Option<Timestamp>,
}

impl Moment {
    /// Creates the time `at`, shown in `zone`.
    pub(super) const fn new(at: Timestamp, zone: TimeZone) -> Self {
        Self { at, zone, now: None }
    }

    /// The moment with its age at `now`: `20 Nov 2026, 16:04:05 CET · 3 min ago`.
    pub(super) fn aged(self, now: Timestamp) -> Self {
        Self { now: Some(now), ..self }
    }

    /// The text: `20 Nov 2026, 16:04:05 CET`.
    pub(super) fn text(&self) -> String {
        zoned(self.at, &self.zone).strftime("%-d %b %Y, %H:%M:%S %Z").to_string()
    }

    /// Returns the day alone: `20 Nov`.
    pub(super) fn day(&self) -> String {
        zoned(self.at, &self.zone).strftime("%-d %b").to_string()
    }

    /// Returns the date: `2026-11-20`.
    pub(super) fn date(&self) -> String {
        zoned(self.at, &self.zone).strftime("%Y-%m-%d").to_string()
    }

    /// Returns the time without the zone: `2026-11-20T16:04`, with the seconds if they are not zero.
    pub(super) fn local(&self) -> String {
        let zoned = zoned(self.at, &self.zone);
        let form = if zoned.second() == 0 { "%Y-%m-%dT%H:%M" } else { "%Y-%m-%dT%H:%M:%S" };
        zoned.strftime(form).to_string()
    }

    /// Returns the zone's name at this time: `CET`.
    pub(super) fn zone_name(&self) -> String {
        zoned(self.at, &self.zone).strftime("%Z").to_string()
    }

    /// Returns the time of day as a `time` element, for lists grouped by day.
    pub(super) fn clock(&self) -> Clock<'_> {
        Clock(self)
    }

    /// Returns date and time to the minute as a `time` element, for lists whose rows are not grouped by day. The year
    /// is shown if it is not that of `now`.
    pub(super) fn short(self, now: Timestamp) -> ShortTime {
        let year = |at| zoned(at, &self.zone).year();
        ShortTime { has_year: year(self.at) != year(now), moment: self }
    }

    /// Returns the time of day, to the minute: `16:04`.
    pub(super) fn hour(&self) -> String {
        zoned(self.at, &self.zone).strftime("%H:%M").to_string()
    }
}

fn zoned(at: Timestamp, zone: &TimeZone) -> jiff::Zoned {
    let millis = i64::try_from(at.as_millis()).unwrap_or(i64::MAX);
    jiff::Timestamp::from_millisecond(millis).unwrap_or(jiff::Timestamp::UNIX_EPOCH).to_zoned(zone.clone())
}

/// Returns the start of the day that contains `now`.
pub(super) fn start_of_day(now: Timestamp, zone: &TimeZone) -> Timestamp {
    let start = zoned(now, zone).start_of_day().map(|day| day.timestamp().as_millisecond());
    start.ok().and_then(|millis| u64::try_from(millis).ok()).map_or(Timestamp::ZERO, Timestamp::from_millis)
}

impl fmt::Display for Moment {
    /// The output contains only digits and zone names, so it needs no escaping.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.text();
        let (date, rest) = text.split_once(", ").unwrap_or((&text, ""));
        let at = self.at;
        write!(f, "<time datetime=\"{at}\" title=\"{at} (UTC)\">{date}, <span>{rest}</span></time>")?;
        self.now.map_or(Ok(()), |now| write!(f, " <span class=\"age\">{}</span>", age(at, now)))
    }
}

impl HtmlSafe for Moment {}

/// A [`Moment`] without its date.
pub(super) struct Clock<'m>(&'m Moment);

impl fmt::Display for Clock<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Moment { at, zone, .. } = self.0;
        let text = zoned(*at, zone).strftime("%H:%M:%S").to_string();
        write!(f, "<time datetime=\"{at}\" title=\"{at} (UTC)\"><span>{text}</span></time>")
    }
}

impl HtmlSafe for Clock<'_> {}

/// A [`Moment`] without its seconds and zone.
pub(super) struct ShortTime {
    moment: Moment,
    has_year: bool,
}

impl ShortTime {
    /// The text: `20 Nov, 16:04`.
    pub(super) fn text(&self) -> String {
        let form = if self.has_year { "%-d %b %Y, %H:%M" } else { "%-d %b, %H:%M" };
        zoned(self.moment.at, &self.moment.zone).strftime(form).to_string()
    }
}

impl fmt::Display for ShortTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (text, at) = (self.text(), self.moment.at);
        let (date, hour) = text.split_once(", ").unwrap_or((&text, ""));
        write!(f, "<time datetime=\"{at}\" title=\"{at} (UTC)\">{date}, <span>{hour}</span></time>")
    }
}

impl HtmlSafe for ShortTime {}

/// Day headings of a list. The first row of each day gets one.
pub(super) struct Days {
    today: Timestamp,
    last: Option<String>,
}

impl Days {
    /// Creates the day headings of a list that is shown at this time.
    pub(super) const fn new(today: Timestamp) -> Self {
        Self { today, last: None }
    }

    /// Returns the day's name if `moment` is the first of its day: `Today`, `Sun 6 Dec`, or `Sun 6 Dec 2026` in another
    /// year.
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

/// Returns the distance of a moment from `now`, in one whole unit: `3 min ago`, `in 2 h`.
fn age(at: Timestamp, now: Timestamp) -> String {
    let seconds = now.since(at).max(at.since(now)).as_secs();
    let distance = match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min", seconds / 60),
        3_600..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    };
    if at > now { format!("in {distance}") } else { format!("{distance} ago") }
}

/// Returns the time since the step before: `+1.8 s`.
pub(super) fn gap(earlier: Timestamp, later: Timestamp) -> String {
    format!("+{}", lasted(later.since(earlier)))
}

/// Formats a duration in one or two units: `1.8 s`, `2 min 48 s`, `3 days 4 h`. Smaller units are cut off.
pub(super) fn lasted(time: Duration) -> String {
    let (millis, seconds) = (time.as_millis(), time.as_secs());
    let both = |large: u64, name: &str, small: u64, part: &str| match seconds % large / small {
        0 => format!("{} {name}", seconds / large),
        rest => format!("{} {name} {rest} {part}", seconds / large),
    };
    match seconds {
        0 => format!("{millis} ms"),
        1..10 if millis % 1_000 >= 100 => format!("{seconds}.{} s", millis % 1_000 / 100),
        1..60 => format!("{seconds} s"),
        60..3_600 => both(60, "min", 1, "s"),
        3_600..172_800 => both(3_600, "h", 60, "min"),
        _ => both(86_400, "days", 3_600, "h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_time_has_the_year_only_if_it_is_another() {
        let at = Timestamp::from_millis(1_700_000_000_000);
        let short = |now| Moment::new(at, TimeZone::UTC).short(now).to_string();
        assert!(short(at).ends_with(">14 Nov, <span>22:13</span></time>"), "{}", short(at));
        assert!(short(at + Duration::from_secs(60 * 86_400)).contains(">14 Nov 2023, <span>22:13</span>"));
    }

    #[test]
    fn a_time_is_shown_in_the_zone_and_marked_up_in_utc() {
        let zone = TimeZone::get("Europe/Vienna").unwrap();
        let moment = Moment::new(Timestamp::from_millis(1_700_000_000_000), zone.clone());
        assert_eq!(
            moment.to_string(),
            "<time datetime=\"2023-11-14T22:13:20.000+00:00\" title=\"2023-11-14T22:13:20.000+00:00 (UTC)\">\
             14 Nov 2023, <span>23:13:20 CET</span></time>"
        );
        let aged = moment.aged(Timestamp::from_millis(1_700_000_190_000)).to_string();
        assert!(aged.ends_with("</time> <span class=\"age\">3 min ago</span>"), "{aged}");
        let midnight = start_of_day(Timestamp::from_millis(1_700_000_000_000), &zone);
        assert_eq!(midnight.to_string(), "2023-11-13T23:00:00.000+00:00");
    }

    #[test]
    fn the_first_row_of_a_day_names_it() {
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
    fn a_duration_has_one_or_two_units() {
        let of = |seconds: f64| lasted(Duration::from_secs_f64(seconds));
        assert_eq!([0.0, 0.25, 1.875, 4.0, 30.9].map(of), ["0 ms", "250 ms", "1.8 s", "4 s", "30 s"]);
        assert_eq!([60.0, 168.0, 3_600.0, 11_520.0].map(of), ["1 min", "2 min 48 s", "1 h", "3 h 12 min"]);
        assert_eq!([172_800.0, 276_000.0].map(of), ["2 days", "3 days 4 h"]);
    }

    #[test]
    fn an_age_is_one_whole_unit_before_or_after() {
        let now = Timestamp::from_millis(1_700_000_000_000);
        let before = |seconds| age(now - Duration::from_secs(seconds), now);
        assert_eq!([0, 59, 60, 3_599].map(before), ["0 s ago", "59 s ago", "1 min ago", "59 min ago"]);
        assert_eq!([3_600, 172_799, 172_800].map(before), ["1 h ago", "47 h ago", "2 days ago"]);
        assert_eq!(age(now + Duration::from_secs(7_200), now), "in 2 h");
    }

    #[test]
    fn gaps_are_shown_in_the_unit_that_fits() {
        let after = |millis| gap(Timestamp::ZERO, Timestamp::from_millis(millis));
        assert_eq!([0, 999, 1_840, 90_000].map(after), ["+0 ms", "+999 ms", "+1.8 s", "+1 min 30 s"]);
        assert_eq!([7_200_000, 259_200_000].map(after), ["+2 h", "+3 days"]);
    }
}
