//! Outcomes of an account's messages over time, from the hourly counts: charts, and the tables behind them.

use std::time::Duration;

use jiff::tz::TimeZone;

use super::chart::{Bar, Chart, Column, Heading, Rates, percent};
use super::components::grouped;
use super::paging;
use super::search::{last, typed};
use super::timestamp::{Moment, lasted, start_of_day};
use super::wording::provider;
use crate::base::time::Timestamp;
use crate::domain::stream::Stream;
use crate::engine::reputation::{Outcomes, OutcomesQuestion, Step};
use crate::machine::reputation::{Measure, Rate};
use crate::store::row::outcomes::OutcomeCounts;

const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);
/// Maximum number of receivers in the table.
const PROVIDERS: usize = 10;

/// Period on display.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Span {
    /// The last 24 hours, by hour.
    Day,
    /// The last seven days, by day.
    Week,
    /// The last thirty days, by day.
    Month,
}

impl Span {
    /// All periods, in the order of the choice.
    pub(super) const ALL: [Self; 3] = [Self::Day, Self::Week, Self::Month];

    /// Returns the name in addresses.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Day => "24h",
            Self::Week => "7d",
            Self::Month => "30d",
        }
    }

    /// Returns the name for people.
    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::Day => "24 hours",
            Self::Week => "7 days",
            Self::Month => "30 days",
        }
    }

    /// Returns the period with this name, or a week for an unknown name.
    pub(super) fn named(name: &str) -> Self {
        Self::ALL.into_iter().find(|span| span.as_str() == name).unwrap_or(Self::Week)
    }

    const fn step(self) -> Step {
        match self {
            Self::Day => Step::Hour,
            Self::Week | Self::Month => Step::Day,
        }
    }

    /// Returns the search for the messages of this period up to `now`.
    pub(super) fn search(self, now: Timestamp, zone: &TimeZone) -> String {
        let from = self.question(now, zone, None).from;
        match self.step() {
            Step::Hour => format!("after:{}", hour_text(from, zone)),
            Step::Day => format!("after:{}", Moment::new(from + DAY / 2, zone.clone()).date()),
        }
    }

    /// Returns the number of steps in 7 days, the window for rates.
    const fn steps_of_week(self) -> usize {
        match self.step() {
            Step::Hour => 7 * 24,
            Step::Day => 7,
        }
    }

    /// Returns the query for the 7 days before this period, without the first step. The rolling rates need them.
    pub(super) fn question_before(self, now: Timestamp, zone: &TimeZone, stream: Option<Stream>) -> OutcomesQuestion {
        let question = self.question(now, zone, stream);
        let from = match self.step() {
            Step::Hour => question.from - HOUR * (7 * 24 - 1),
            Step::Day => start_of_day(question.from + DAY / 2 - DAY * 6, zone),
        };
        OutcomesQuestion { from, to: question.from, ..question }
    }

    /// Returns the query for this period up to `now`. Days are days of `zone`.
    pub(super) fn question(self, now: Timestamp, zone: &TimeZone, stream: Option<Stream>) -> OutcomesQuestion {
        // Counting back from midday finds the start of a day even if hours were skipped or repeated since.
        let days_ago = |days| start_of_day(start_of_day(now, zone) + DAY / 2 - DAY * days, zone);
        let from = match self {
            Self::Day => now - HOUR * 23,
            Self::Week => days_ago(6),
            Self::Month => days_ago(29),
        };
        OutcomesQuestion { from, to: now + HOUR, step: self.step(), stream, domain: None }
    }
}

/// One row of the table behind the charts.
pub(super) struct Row {
    /// Name of the step or receiver.
    pub(super) name: String,
    /// Address of the page that shows the receiver.
    pub(super) path: Option<String>,
    /// Counts, in the table's order.
    pub(super) counts: [String; 5],
    /// Share of bounces among all responses.
    pub(super) bounce_rate: String,
    /// Share of complaints among deliveries.
    pub(super) complaint_rate: String,
    /// Median and 95th percentile of the time to delivery.
    pub(super) times: [String; 2],
}

impl Row {
    fn new(name: String, counts: &OutcomeCounts) -> Self {
        let numbers = [counts.accepted, delivered(counts), counts.deferred, counts.bounced(), counts.complained];
        let figures = counts.figures();
        let rate = |rate: Rate| rate.millionths().map_or_else(|| "–".to_owned(), percent);
        Self {
            name,
            path: None,
            counts: numbers.map(grouped),
            bounce_rate: rate(figures.bounces),
            complaint_rate: rate(figures.complaints),
            times: [50, 95].map(|hundredths| {
                let seconds = counts.delivery_seconds(hundredths);
                seconds.map_or_else(|| "–".to_owned(), |seconds| lasted(Duration::from_secs(seconds)))
            }),
        }
    }
}

/// Charts and tables of a period.
pub(super) struct Trend {
    /// Deliveries over time.
    pub(super) deliveries: Chart,
    /// Bounce rate, compared with its thresholds.
    pub(super) bounces: Chart,
    /// Complaint rate, compared with its thresholds.
    pub(super) complaints: Chart,
    /// Rows by step, the newest first.
    pub(super) rows: Vec<Row>,
    /// Rows by receiver, the largest first.
    pub(super) providers: Vec<Row>,
    /// Whether any step has enough deliveries for a rate.
    pub(super) has_rates: bool,
    /// Whether no message was sent.
    pub(super) is_empty: bool,
}

/// Link targets of a chart's columns.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Links {
    /// The messages that a column counts, of this stream if one is selected.
    Messages(Option<Stream>),
    /// No links, because the messages belong to another account.
    None,
}

impl Trend {
    /// Renders the counts of a period in `zone`. Each rate covers the 7 days up to its step, so the counts `before` the
    /// period are needed.
    pub(super) fn new(before: &Outcomes, outcomes: &Outcomes, span: Span, zone: &TimeZone, links: Links) -> Self {
        let weeks = rolling(before, outcomes, span.steps_of_week());
        let names: Vec<_> = outcomes.series.iter().map(|(at, _)| name_of(*at, span, zone)).collect();
        let series = || outcomes.series.iter().map(|(_, counts)| counts);
        let bars: Vec<_> = series().map(bar).collect();
        let columns = |words: Vec<String>| -> Vec<Column> {
            let steps = outcomes.series.iter().zip(&names).zip(words);
            let column = |((step, name), words): ((&(Timestamp, OutcomeCounts), &String), String)| Column {
                label: name.clone(),
                words: format!("{name}: {words}"),
                link: link(step.0, span, zone, links),
            };
            steps.map(column).collect()
        };
        let rates = |measure| {
            let words = weeks.iter().map(|counts| words_of_rate(counts.figures().rate(measure)));
            Chart::of_rates(heading_of(measure, span), &rates_of(weeks.iter(), measure), columns(words.collect()))
        };
        let rows = series().zip(&names).map(|(counts, name)| Row::new(name.clone(), counts)).rev();
        let total = &outcomes.total;
        Self {
            deliveries: Chart::of_bars(deliveries(total, span), &bars, columns(series().map(words_of_bar).collect())),
            bounces: rates(Measure::Bounces),
            complaints: rates(Measure::Complaints),
            rows: rows.collect(),
            providers: providers(outcomes),
            has_rates: weeks.iter().any(|counts| counts.figures().bounces.millionths().is_some()),
            is_empty: *total == OutcomeCounts::default(),
        }
    }
}

/// Returns the counts of the 7 days up to each step of `outcomes`.
fn rolling(before: &Outcomes, outcomes: &Outcomes, steps_of_week: usize) -> Vec<OutcomeCounts> {
    let all: Vec<_> = before.series.iter().chain(&outcomes.series).map(|(_, counts)| counts).collect();
    let week = |end: usize| {
        let mut week = OutcomeCounts::default();
        all[(end + 1).saturating_sub(steps_of_week)..=end].iter().for_each(|counts| week.add(counts));
        week
    };
    (before.series.len()..all.len()).map(week).collect()
}

/// Returns the link to the messages that a step counts.
fn link(at: Timestamp, span: Span, zone: &TimeZone, links: Links) -> Option<String> {
    let Links::Messages(stream) = links else { return None };
    let search = match span.step() {
        Step::Hour => {
            format!("after:{} until:{}", hour_text(at, zone), last(&hour_text(at + HOUR, zone), zone))
        }
        Step::Day => {
            let day = Moment::new(at + DAY / 2, zone.clone()).date();
            format!("after:{day} until:{day}")
        }
    };
    let stream = stream.map_or("", Stream::as_str);
    Some(paging::address("/messages", &[("q", &search), ("stream", stream)]).replace('&', "&amp;"))
}

/// Returns the start of an hour in the format of the search.
fn hour_text(at: Timestamp, zone: &TimeZone) -> String {
    typed(Timestamp::from_millis(at.as_millis() / 3_600_000 * 3_600_000), zone)
}

fn words_of_rate(rate: Rate) -> String {
    rate.millionths().map_or_else(|| "not enough data".to_owned(), percent)
}

/// Returns the name of a step: its first hour, or the day that contains its middle.
fn name_of(at: Timestamp, span: Span, zone: &TimeZone) -> String {
    match span.step() {
        Step::Hour => Moment::new(at, zone.clone()).hour(),
        Step::Day => Moment::new(at + DAY / 2, zone.clone()).day(),
    }
}

/// Returns delivered messages without those that bounced later, so that each message counts once in a bar.
fn delivered(counts: &OutcomeCounts) -> u64 {
    counts.answered().saturating_sub(counts.bounced())
}

fn bar(counts: &OutcomeCounts) -> Bar {
    Bar { parts: vec![("good", delivered(counts)), ("bad", counts.bounced()), ("wait", counts.failed)] }
}

fn words_of_bar(counts: &OutcomeCounts) -> String {
    let [delivered, bounced, failed] = [delivered(counts), counts.bounced(), counts.failed].map(grouped);
    format!("{delivered} delivered, {bounced} bounced, {failed} failed")
}

fn rates_of<'a>(series: impl Iterator<Item = &'a OutcomeCounts>, measure: Measure) -> Rates {
    let (warn, alarm) = measure.thresholds();
    let millionths = |thousandths: u64| u32::try_from(thousandths * 1_000).unwrap_or(u32::MAX);
    Rates {
        steps: series.map(|counts| counts.figures().rate(measure).millionths()).collect(),
        thresholds: (millionths(warn), millionths(alarm)),
    }
}

fn deliveries(total: &OutcomeCounts, span: Span) -> Heading {
    let (delivered, bounced) = (grouped(delivered(total)), grouped(total.bounced()));
    let about = format!(
        "In the last {}: {delivered} delivered, {bounced} bounced. The table below has each step.",
        span.words()
    );
    Heading { name: "deliveries", title: "Deliveries", about }
}

fn heading_of(measure: Measure, span: Span) -> Heading {
    let (name, title, what) = match measure {
        Measure::Bounces => ("bounces", "Bounce rate", "bounces among answered messages, against 2% and 5%"),
        Measure::Complaints => ("complaints", "Complaint rate", "complaints among deliveries, against 0.1% and 0.3%"),
    };
    let about = format!("The share of {what}, over the 7 days up to each step of the last {}.", span.words());
    Heading { name, title, about }
}

fn providers(outcomes: &Outcomes) -> Vec<Row> {
    let mut asked: Vec<_> = outcomes.by_provider.iter().filter(|(name, _)| !name.is_empty()).collect();
    asked.sort_by_key(|(_, counts)| std::cmp::Reverse(counts.answered() + counts.deferred));
    let row = |(name, counts): (&String, &OutcomeCounts)| Row {
        path: Some(format!("/providers#of-{name}")),
        ..Row::new(provider(name).to_owned(), counts)
    };
    asked.into_iter().take(PROVIDERS).map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::reputation::Outcomes;

    fn zone() -> TimeZone {
        TimeZone::get("Europe/Vienna").unwrap()
    }

    fn counts(delivered: u64, bounced_hard: u64, returned: u64) -> OutcomeCounts {
        OutcomeCounts {
            accepted: delivered + bounced_hard,
            delivered,
            bounced_hard,
            returned,
            ..OutcomeCounts::default()
        }
    }

    #[test]
    fn days_start_at_midnight_of_the_zone_across_a_clock_change() {
        // 2026-10-28 12:00 in Vienna; summer time ended on the 25th.
        let now: Timestamp = "2026-10-28T11:00:00.000+00:00".parse().unwrap();
        let question = Span::Week.question(now, &zone(), None);
        assert_eq!(question.from.to_string(), "2026-10-21T22:00:00.000+00:00");
        let names: Vec<_> = (0..7).map(|day| name_of(question.from + DAY * day, Span::Week, &zone())).collect();
        assert_eq!(names, ["22 Oct", "23 Oct", "24 Oct", "25 Oct", "26 Oct", "27 Oct", "28 Oct"]);
        let question = Span::Day.question(now, &zone(), None);
        assert_eq!(name_of(question.from, Span::Day, &zone()), "13:00");
    }

    #[test]
    fn percentages_need_a_hundred_deliveries_and_counts_are_always_shown() {
        let now: Timestamp = "2026-10-28T11:00:00.000+00:00".parse().unwrap();
        let few = Outcomes { series: vec![(now, counts(98, 1, 0))], total: counts(98, 1, 0), ..Outcomes::default() };
        let trend = Trend::new(&Outcomes::default(), &few, Span::Day, &zone(), Links::None);
        assert_eq!((trend.rows[0].counts[3].as_str(), trend.rows[0].bounce_rate.as_str()), ("1", "–"));
        assert!(!trend.has_rates && !trend.is_empty);
        let many = Outcomes { series: vec![(now, counts(98, 2, 0))], total: counts(98, 2, 0), ..Outcomes::default() };
        let trend = Trend::new(&Outcomes::default(), &many, Span::Day, &zone(), Links::None);
        assert_eq!(trend.rows[0].bounce_rate, "2%");
        assert!(trend.has_rates && trend.bounces.to_string().contains("class=\"rate\""));
    }

    #[test]
    fn each_rate_covers_the_seven_days_up_to_its_step() {
        let now: Timestamp = "2026-10-28T11:00:00.000+00:00".parse().unwrap();
        let day = |days: u32| now - DAY * days;
        let before =
            Outcomes { series: vec![(day(8), counts(50, 50, 0)), (day(7), counts(90, 10, 0))], ..Outcomes::default() };
        let series = (0..7).rev().map(|days| (day(days), counts(0, 0, 0))).collect();
        let outcomes = Outcomes { series, ..Outcomes::default() };
        let weeks = rolling(&before, &outcomes, Span::Week.steps_of_week());
        let bounced: Vec<_> = weeks.iter().map(OutcomeCounts::bounced).collect();
        assert_eq!(bounced, [60, 60, 60, 60, 60, 10, 0], "the eighth day is outside the window");
        let question = Span::Week.question_before(now, &zone(), None);
        assert_eq!((question.to, question.from), (Span::Week.question(now, &zone(), None).from, question.to - DAY * 6));
        let question = Span::Day.question_before(now, &zone(), None);
        assert_eq!(question.to.since(question.from), HOUR * 167);
    }

    #[test]
    fn a_returned_message_counts_once_in_its_bar() {
        let counts = counts(10, 3, 2);
        assert_eq!(bar(&counts).parts, [("good", 8), ("bad", 3), ("wait", 0)]);
        assert_eq!(words_of_bar(&counts), "8 delivered, 3 bounced, 0 failed");
        assert_eq!(Row::new(String::new(), &counts).counts, ["13", "8", "0", "3", "0"], "the table behind it");
    }

    #[test]
    fn a_column_links_to_the_messages_that_it_counts() {
        let at: Timestamp = "2026-10-21T22:00:00.000+00:00".parse().unwrap();
        let to = |span, links| link(at, span, &zone(), links);
        let day = to(Span::Week, Links::Messages(None)).unwrap();
        assert_eq!(day, "/messages?q=after%3A2026-10-22+until%3A2026-10-22");
        let hour = to(Span::Day, Links::Messages(Some(Stream::Marketing))).unwrap();
        assert!(hour.starts_with("/messages?q=after%3A2026-10-22T00%3A00+until%3A2026-10-22T00%3A59"), "{hour}");
        assert!(hour.ends_with("&amp;stream=marketing") && to(Span::Day, Links::None).is_none());
    }
}
