//! Sender reputation of the account in sentences: the verdict on the overview, and remedies. The same state machine
//! serves `GET /v1/me` and the log.

use super::chart::percent;
use super::components::{Badge, grouped};
use crate::domain::stream::Stream;
use crate::engine::reputation::Reputation;
use crate::machine::reputation::{Level, Measure, Rate};
use crate::store::row::outcomes::OutcomeCounts;

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
    /// Page with the messages that caused the rate.
    pub(super) path: &'static str,
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
    /// Describes levels and rates.
    pub(super) fn new(reputation: &Reputation) -> Self {
        let mut found = Vec::new();
        let mut lines = Vec::new();
        for stream in Stream::ALL {
            let standing = reputation.of(stream);
            let [(_, of_day), (_, of_week)] = &standing.windows;
            if of_week.accepted == 0 && standing.levels.is_ok() {
                continue;
            }
            for (measure, level) in
                [(Measure::Bounces, standing.levels.bounces), (Measure::Complaints, standing.levels.complaints)]
            {
                let rates = [of_day, of_week].map(|counts| counts.figures().rate(measure));
                lines.push(line(stream, measure, level, rates));
                found.extend(finding(stream, measure, level, rates).map(|finding| (level, finding)));
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

fn finding(stream: Stream, measure: Measure, level: Level, rates: [Rate; 2]) -> Option<Finding> {
    let worst = rates.into_iter().max_by_key(|rate| rate.millionths())?;
    let rate = rate_text(worst);
    let (what, from, advice, path) = match measure {
        Measure::Bounces => (
            "Bounces",
            ["2%", "5%"],
            "Check where bouncing addresses come from; stop sending to them.",
            "/messages?status=bounced",
        ),
        Measure::Complaints => (
            "Complaints",
            ["0.1%", "0.3%"],
            "Send only to people who opted in; offer one-click unsubscribe.",
            "/messages?status=complained",
        ),
    };
    let sentence = match level {
        Level::Ok => return None,
        Level::Warn => format!("{what} on the {stream} stream: {rate}. Providers may throttle above {}.", from[0]),
        Level::Alarm => format!("{what} on the {stream} stream: {rate}. Providers may block above {}.", from[1]),
    };
    Some(Finding { sentence, is_alarm: level == Level::Alarm, advice, path })
}
