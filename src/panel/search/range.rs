//! Range of times in a search. Its end is included, as people read it: a day to its end, and a time to the end of its
//! minute. The API's own `before` excludes the time that it names.

use std::time::Duration;

use jiff::civil::Date;
use jiff::tz::TimeZone;

use super::time::{day, moment, parsed, typed};
use super::{parts, quoted};
use crate::base::time::Timestamp;
use crate::panel::timestamp::Moment;

/// Units of an end that is not a day, the largest first.
const UNITS: [Duration; 3] = [Duration::from_secs(60), Duration::from_secs(1), Duration::from_millis(1)];
/// Ranges that lists offer, and how many days before today they start.
const PRESETS: [(&str, i64); 3] = [("Today", 0), ("7 days", 6), ("30 days", 29)];

/// Converts the last day or time of a range to the moment after it, for the API's `before`.
pub(in crate::panel) fn end(text: &str, zone: &TimeZone) -> String {
    if let Some(day) = day(text) {
        return day.tomorrow().map_or_else(|_| text.to_owned(), |next| moment(&next.to_string(), zone));
    }
    let unit = match (text.as_bytes().get(16), text.contains('.')) {
        (_, true) => UNITS[2],
        (Some(b':'), _) => UNITS[1],
        _ => UNITS[0],
    };
    parsed(text, zone).map_or_else(|| text.to_owned(), |at| (at + unit).to_string())
}

/// Converts an excluded end, as in `before:`, to the last day or time of the same range. Other text stays as it is.
pub(in crate::panel) fn last(before: &str, zone: &TimeZone) -> String {
    if let Some(day) = day(before) {
        return day.yesterday().map_or_else(|_| before.to_owned(), |day| day.to_string());
    }
    let same = |at: Timestamp| {
        let ends = UNITS.iter().map(|unit| typed(at - *unit, zone));
        ends.into_iter().find(|text| end(text, zone) == at.to_string())
    };
    parsed(before, zone).and_then(same).unwrap_or_else(|| before.to_owned())
}

/// Returns a range in words: `21 to 28 Nov 2026`, `from 21 Nov 2026`, `up to 28 Nov 2026`. `None` without an end.
pub(in crate::panel) fn in_words(after: &str, until: &str, zone: &TimeZone) -> Option<String> {
    Some(match (after, until) {
        ("", "") => return None,
        (after, "") => format!("from {}", one(after, zone)),
        ("", until) => format!("up to {}", one(until, zone)),
        (after, until) if after == until && day(after).is_some() => format!("on {}", one(after, zone)),
        (after, until) => {
            let (first, last) = (one(after, zone), one(until, zone));
            let is_same =
                |from: Date, to: Date, form: &str| from.strftime(form).to_string() == to.strftime(form).to_string();
            match (day(after), day(until)) {
                (Some(from), Some(to)) if is_same(from, to, "%Y-%m") => format!("{} to {last}", from.day()),
                (Some(from), Some(to)) if is_same(from, to, "%Y") => format!("{} to {last}", from.strftime("%-d %b")),
                _ => format!("{first} to {last}"),
            }
        }
    })
}

/// Returns a day, or a time to the minute if its seconds are zero, in words. Other text stays as it is.
fn one(text: &str, zone: &TimeZone) -> String {
    match (day(text), parsed(text, zone)) {
        (Some(day), _) => day.strftime("%-d %b %Y").to_string(),
        (None, Some(at)) => Moment::new(at, zone.clone()).text().replacen(":00 ", " ", 1),
        (None, None) => text.to_owned(),
    }
}

/// Returns the ranges that a list offers, each with its first and its last day.
pub(in crate::panel) fn presets(now: Timestamp, zone: &TimeZone) -> Vec<(&'static str, String, String)> {
    let today = Moment::new(now, zone.clone()).date();
    let first = |days: i64| day(&today)?.checked_sub(jiff::Span::new().days(days)).ok().map(|day| day.to_string());
    PRESETS.into_iter().filter_map(|(words, days)| Some((words, first(days)?, today.clone()))).collect()
}

/// Returns the search text with these values of `after`, and of `until` or `before`. An empty value removes the term.
pub(in crate::panel) fn with_times(text: &str, times: &[(&str, Option<&str>)]) -> String {
    let is_kept = |part: &String| {
        let named = bound(part);
        named.is_none()
            || times.iter().all(|(time, given)| given.is_none() || (*time == "after") != (named == Some("after")))
    };
    let kept = parts(text).filter(is_kept).map(|part| quoted(&part));
    let given = times.iter().filter_map(|(name, given)| Some((name, given.filter(|value| !value.is_empty())?)));
    kept.chain(given.map(|(name, value)| quoted(&format!("{name}:{value}")))).collect::<Vec<_>>().join(" ")
}

/// Returns the operator of a part that is an end of the range.
pub(super) fn bound(part: &str) -> Option<&'static str> {
    let (name, _) = part.split_once(':')?;
    ["after", "until", "before"].into_iter().find(|known| name.eq_ignore_ascii_case(known))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vienna() -> TimeZone {
        TimeZone::get("Europe/Vienna").unwrap()
    }

    #[test]
    fn the_last_day_minute_or_second_of_a_range_is_included() {
        for (text, next) in [
            ("2026-11-28", "2026-11-28T23:00:00.000+00:00"),
            ("2026-10-25", "2026-10-25T23:00:00.000+00:00"),
            ("2026-11-28T15:04", "2026-11-28T14:05:00.000+00:00"),
            ("2026-11-28T15:04:05", "2026-11-28T14:04:06.000+00:00"),
            ("2026-11-28T15:04:05.999Z", "2026-11-28T15:04:06.000+00:00"),
            ("soon", "soon"),
        ] {
            assert_eq!(end(text, &vienna()), next, "{text}");
        }
    }

    #[test]
    fn an_excluded_end_is_shown_as_the_last_day_or_time_before_it() {
        for (before, text) in [
            ("2026-11-29", "2026-11-28"),
            ("2026-11-29T00:00", "2026-11-28T23:59"),
            ("2026-11-28T15:04:05", "2026-11-28T15:04:04"),
            ("soon", "soon"),
        ] {
            assert_eq!(last(before, &vienna()), text);
        }
        for before in
            ["2026-11-28T15:00:01", "2026-10-25T01:00:00.000Z", "2026-10-25T00:00:00.000Z", "2026-11-28T15:04"]
        {
            assert_eq!(end(&last(before, &vienna()), &vienna()), moment_of(before), "{before}");
        }
    }

    fn moment_of(text: &str) -> String {
        parsed(text, &vienna()).unwrap().to_string()
    }

    #[test]
    fn a_range_is_named_as_people_say_it() {
        for (after, until, words) in [
            ("2026-11-21", "2026-11-28", "21 to 28 Nov 2026"),
            ("2026-10-28", "2026-11-03", "28 Oct to 3 Nov 2026"),
            ("2025-12-28", "2026-01-03", "28 Dec 2025 to 3 Jan 2026"),
            ("2026-11-28", "2026-11-28", "on 28 Nov 2026"),
            ("2026-11-28", "", "from 28 Nov 2026"),
            ("", "2026-11-28", "up to 28 Nov 2026"),
            ("2026-11-28T15:04", "2026-11-28T15:04:05", "28 Nov 2026, 15:04 CET to 28 Nov 2026, 15:04:05 CET"),
            ("soon", "", "from soon"),
        ] {
            assert_eq!(in_words(after, until, &vienna()).as_deref(), Some(words));
        }
        assert_eq!(in_words("", "", &vienna()), None);
    }

    #[test]
    fn the_offered_ranges_end_today_in_the_zone() {
        let offered = presets("2026-11-27T23:30:00.000Z".parse().unwrap(), &vienna());
        let days: Vec<_> = offered.iter().map(|(_, first, last)| (first.as_str(), last.as_str())).collect();
        assert_eq!(days, [("2026-11-28", "2026-11-28"), ("2026-11-22", "2026-11-28"), ("2026-10-30", "2026-11-28")]);
    }

    #[test]
    fn chosen_days_replace_typed_ones() {
        let times = |after, until| [("after", after), ("until", until)];
        for end in ["Before:2026-11-21", "until:2026-11-20"] {
            let text = format!("\"big order\" After:2026-11-20 {end}");
            assert_eq!(with_times(&text, &times(None, None)), text);
            assert_eq!(with_times(&text, &times(Some("2026-11-01"), Some(""))), "\"big order\" after:2026-11-01");
        }
        assert_eq!(with_times("", &times(None, Some("2026-11-02"))), "until:2026-11-02");
    }
}
