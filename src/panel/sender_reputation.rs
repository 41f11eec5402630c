//! Sender reputation of the account in sentences: the verdict on the overview, and remedies. The same state machine
//! serves `GET /v1/me` and the log.

use jiff::tz::TimeZone;

use super::chart::percent;
use super::components::{Badge, grouped};
use super::paging;
use super::search::typed;
use crate::base::time::Timestamp;
use crate::domain::stream::Stream;
use crate::engine::reputation::Reputation;
use crate::machine::reputation::{Level, Measure, Rate};
use crate::machine::transfer::Status;
use crate::store::row::outcomes::OutcomeCounts;

const HOUR_MS: u64 = 3_600_000;

/// One stream and measure, over both periods.
pub(super) struct StandingLine {
    /// The stream.
    pub(super) stream: Stream,
    /// Name of the measure.
    pub(super) measure: &'static str,
    /// Level of the measure.
    pub(super) badge: Badge,
    /// Rates of the last day and of the last week.
    pub(super) rates: [String; 2],
    /// Thresholds, in words.
    pub(super) thresholds: &'static str,
}

/// A rate that needs attention.
pub(super) struct Finding {
    /// The problem, in a sentence.
    pub(super) sentence: String,
    /// Whether providers may block mail because of the rate.
    pub(super) is_alarm: bool,
    /// Remedy.
    pub(super) advice: &'static str,
    /// Page with the messages that the rate counts.
    pub(super) path: String,
}

/// Reputation of an account.
pub(super) struct AccountReputation {
    worst: Level,
    /// Findings that need attention, the worst first.
    pub(super) findings: Vec<Finding>,
    /// Rates by stream, for streams with messages.
    pub(super) lines: Vec<StandingLine>,
}

impl AccountReputation {
    /// Describes levels and rates at `now`.
    pub(super) fn new(reputation: &Reputation, now: Timestamp, zone: &TimeZone) -> Self {
        let mut found = Vec::new();
        let mut lines = Vec::new();
        for stream in Stream::ALL {
            let standing = reputation.of(stream);
            let [(day_hours, of_day), (week_hours, of_week)] = &standing.windows;
            if of_week.accepted == 0 && standing.levels.is_ok() {
                continue;
            }
            for (measure, level) in
                [(Measure::Bounces, standing.levels.bounces), (Measure::Complaints, standing.levels.complaints)]
            {
                let rates = [of_day, of_week].map(|counts| counts.figures().rate(measure));
                lines.push(line(stream, measure, level, rates));
                let windows = [*day_hours, *week_hours].map(|hours| Window { hours, now, zone });
                let worst = windows.into_iter().zip(rates).max_by_key(|(_, rate)| rate.millionths());
                let finding = worst.and_then(|worst| finding(stream, measure, level, worst));
                found.extend(finding.map(|finding| (level, finding)));
            }
        }
        found.sort_by_key(|(level, _)| std::cmp::Reverse(*level));
        let worst = found.first().map_or(Level::Ok, |(level, _)| *level);
        let findings = found.into_iter().map(|(_, finding)| finding).collect();
        Self { worst, findings, lines }
    }

    /// Returns the verdict in one sentence, with the counts of the period that `shown` names.
    pub(super) fn verdict(&self, period: &OutcomeCounts, shown: &str) -> String {
        let sent = format!("{} accepted {shown}", messages(period.accepted));
        let answered = period.answered();
        let delivered = Rate { count: answered.saturating_sub(period.bounced()), of: answered };
        match (self.worst, delivered.millionths()) {
            (Level::Alarm | Level::Warn, _) => format!("{sent}. Needs attention:"),
            (Level::Ok, _) if period.accepted == 0 => format!("No messages {shown}."),
            (Level::Ok, Some(share)) => format!("{sent}; {} delivered.", percent(share)),
            (Level::Ok, None) => format!("{sent}. Rates need 100 deliveries."),
        }
    }
}

fn messages(count: u64) -> String {
    if count == 1 { "1 message".to_owned() } else { format!("{} messages", grouped(count)) }
}

/// Returns the badge of a level. Without enough data for a rate it does not claim success.
fn badge(level: Level, rates: [Rate; 2]) -> Badge {
    match level {
        Level::Ok if rates.iter().all(|rate| rate.millionths().is_none()) => {
            Badge::new("Not enough data", "calm", "clock")
        }
        Level::Ok => Badge::new("OK", "good", "check"),
        Level::Warn => Badge::new("Warning", "wait", "warn"),
        Level::Alarm => Badge::new("Limit", "bad", "warn"),
    }
}

fn line(stream: Stream, measure: Measure, level: Level, rates: [Rate; 2]) -> StandingLine {
    let (measure, thresholds) = match measure {
        Measure::Bounces => ("Bounces", "warning 2%, limit 5%"),
        Measure::Complaints => ("Complaints", "warning 0.1%, limit 0.3%"),
    };
    StandingLine { stream, measure, badge: badge(level, rates), rates: rates.map(rate_text), thresholds }
}

/// Formats a rate with its counts, or the counts alone if they are too few for a percentage.
fn rate_text(rate: Rate) -> String {
    let counts = format!("{} of {}", grouped(rate.count), grouped(rate.of));
    rate.millionths().map_or_else(|| counts.clone(), |share| format!("{} ({counts})", percent(share)))
}

/// The hours up to now that a rate covers.
#[derive(Clone, Copy)]
struct Window<'z> {
    hours: u32,
    now: Timestamp,
    zone: &'z TimeZone,
}

impl Window<'_> {
    fn words(self) -> &'static str {
        if self.hours > 24 { "7 days" } else { "24 hours" }
    }

    /// Returns the path of the window's messages with this status.
    fn messages(self, stream: Stream, status: Status) -> String {
        let hour = self.now.as_millis() / HOUR_MS;
        let from = Timestamp::from_millis((hour + 1).saturating_sub(self.hours.into()) * HOUR_MS);
        let search = format!("after:{}", typed(from, self.zone));
        let query = [("q", search.as_str()), ("status", status.as_str()), ("stream", stream.as_str())];
        paging::address("/messages", &query)
    }
}

fn finding(stream: Stream, measure: Measure, level: Level, (window, rate): (Window<'_>, Rate)) -> Option<Finding> {
    let (rate, period) = (rate_text(rate), window.words());
    let (what, from, advice, status) = match measure {
        Measure::Bounces => (
            "Bounces",
            ["2%", "5%"],
            "Check where bouncing addresses come from; stop sending to them.",
            Status::Bounced,
        ),
        Measure::Complaints => (
            "Complaints",
            ["0.1%", "0.3%"],
            "Send only to people who opted in; offer one-click unsubscribe.",
            Status::Complained,
        ),
    };
    let seen = format!("{what} on the {stream} stream in {period}: {rate}.");
    let sentence = match level {
        Level::Ok => return None,
        Level::Warn => format!("{seen} Providers may throttle above {}.", from[0]),
        Level::Alarm => format!("{seen} Providers may block above {}.", from[1]),
    };
    let path = window.messages(stream, status);
    Some(Finding { sentence, is_alarm: level == Level::Alarm, advice, path })
}
