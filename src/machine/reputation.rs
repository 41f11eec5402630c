//! Bounce and complaint levels of an account, judged against the thresholds of receivers: one level for each measure
//! and stream.
//!
//! ```text
//!         2 %, 0.1 %           5 %, 0.3 %            of bounces, of complaints
//!  ok ----------------> warn ----------------> alarm
//!   ^                   |  ^                   |
//!   '--- below 1.6 %, --'  '---- below 4 %, ---'
//!            0.08 %                 0.24 %
//! ```
//!
//! Two windows are judged, the last day and the last week, and the worse one counts. The day shows current problems;
//! the week includes complaints that arrive days later. A level rises at its threshold and falls a fifth below it, so
//! that a rate near the threshold is reported once. Fewer than 100 deliveries give no rate, and a single bounce or
//! complaint raises no level.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::Next;
use crate::domain::stream::Stream;

/// Minimum number of deliveries in a window for a meaningful percentage.
pub const DELIVERIES_MIN: u64 = 100;
/// Minimum number of bounces or complaints that raise a level: a single one may be random.
const COUNT_MIN: u64 = 2;

/// Severity of a rate.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// No problem, as far as the data shows.
    #[default]
    Ok,
    /// Receivers may object.
    Warn,
    /// Receivers block senders for this.
    Alarm,
}

/// A judged rate: bounces or complaints.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Measure {
    /// Messages that were permanently refused, or returned.
    Bounces,
    /// Messages that recipients marked as spam.
    Complaints,
}

/// A fraction: `count` out of `of`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Rate {
    /// Number of counted messages.
    pub count: u64,
    /// Total number of messages.
    pub of: u64,
}

/// Counts of one stream in one window.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Figures {
    /// Bounces among the messages with a final answer.
    pub bounces: Rate,
    /// Complaints among the delivered messages.
    pub complaints: Rate,
}

/// Both windows of one stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Windows {
    /// The last 24 hours.
    pub day: Figures,
    /// The last seven days.
    pub week: Figures,
}

/// Levels of one stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct State {
    /// Level of its bounces.
    pub bounces: Level,
    /// Level of its complaints.
    pub complaints: Level,
}

/// Levels of an account at the last judgement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Reputation {
    /// The transactional stream.
    pub transactional: State,
    /// The marketing stream.
    pub marketing: State,
}

/// A threshold was crossed, upwards or downwards.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ThresholdCrossing {
    /// The measure that crossed a threshold.
    pub measure: Measure,
    /// The level before.
    pub from: Level,
    /// Current level.
    pub to: Level,
}

impl fmt::Display for ThresholdCrossing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { measure, from, to } = self;
        write!(f, "{} from {} to {}", measure.as_str(), from.as_str(), to.as_str())
    }
}

impl Level {
    /// Returns the name used in every interface.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Alarm => "alarm",
        }
    }
}

impl Measure {
    /// All measures.
    pub const ALL: [Self; 2] = [Self::Bounces, Self::Complaints];

    /// Returns the name used in logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Bounces => "bounces",
            Self::Complaints => "complaints",
        }
    }

    /// Returns the thresholds of [`Level::Warn`] and [`Level::Alarm`], in thousandths.
    pub const fn thresholds(self) -> (u64, u64) {
        match self {
            Self::Bounces => (20, 50),
            Self::Complaints => (1, 3),
        }
    }
}

impl Rate {
    /// Returns the rate in millionths, rounded down; `None` if there are too few deliveries.
    pub fn millionths(self) -> Option<u32> {
        let share = u128::from(self.count) * 1_000_000 / u128::from(self.of.max(1));
        (self.of >= DELIVERIES_MIN).then(|| u32::try_from(share).unwrap_or(u32::MAX))
    }

    /// Returns the level that the rate raises to.
    pub fn raises(self, measure: Measure) -> Level {
        if self.of < DELIVERIES_MIN || self.count < COUNT_MIN { Level::Ok } else { self.level(measure, 10) }
    }

    /// Returns the level that the rate keeps if it was reached before: it needs half the deliveries, and falls a fifth
    /// below the threshold.
    fn holds(self, measure: Measure) -> Level {
        if self.of < DELIVERIES_MIN / 2 { Level::Ok } else { self.level(measure, 8) }
    }

    /// Returns the level of the rate against the thresholds multiplied by `tenths` / 10.
    fn level(self, measure: Measure, tenths: u64) -> Level {
        let (warn, alarm) = measure.thresholds();
        let reaches =
            |threshold: u64| u128::from(self.count) * 10_000 >= u128::from(self.of) * u128::from(threshold * tenths);
        match (reaches(warn), reaches(alarm)) {
            (_, true) => Level::Alarm,
            (true, false) => Level::Warn,
            (false, false) => Level::Ok,
        }
    }
}

impl Figures {
    /// Returns the rate of one measure.
    pub const fn rate(&self, measure: Measure) -> Rate {
        match measure {
            Measure::Bounces => self.bounces,
            Measure::Complaints => self.complaints,
        }
    }
}

impl State {
    /// Returns the levels for the counts of `windows`, and the crossings.
    #[must_use]
    pub fn step(self, windows: Windows) -> Next<Self, ThresholdCrossing> {
        let judged = |before, measure| judge(before, measure, windows);
        let state = Self {
            bounces: judged(self.bounces, Measure::Bounces),
            complaints: judged(self.complaints, Measure::Complaints),
        };
        let of_bounces = ThresholdCrossing { measure: Measure::Bounces, from: self.bounces, to: state.bounces };
        let of_complaints =
            ThresholdCrossing { measure: Measure::Complaints, from: self.complaints, to: state.complaints };
        let crossings = [of_bounces, of_complaints].into_iter().filter(|crossing| crossing.from != crossing.to);
        Next::new(state, crossings.collect::<Vec<_>>())
    }

    /// Returns the level of a measure.
    pub const fn of(self, measure: Measure) -> Level {
        match measure {
            Measure::Bounces => self.bounces,
            Measure::Complaints => self.complaints,
        }
    }

    /// Returns whether both levels are `ok`.
    pub fn is_ok(self) -> bool {
        self == Self::default()
    }
}

fn judge(before: Level, measure: Measure, windows: Windows) -> Level {
    let rates = [windows.day, windows.week].map(|figures| figures.rate(measure));
    let worst = |level: fn(Rate, Measure) -> Level| rates.into_iter().map(|rate| level(rate, measure)).max();
    let (raised, held) = (worst(Rate::raises).unwrap_or_default(), worst(Rate::holds).unwrap_or_default());
    raised.max(before.min(held))
}

impl Reputation {
    /// Returns the levels of a stream.
    pub const fn of(&self, stream: Stream) -> State {
        match stream {
            Stream::Transactional => self.transactional,
            Stream::Marketing => self.marketing,
        }
    }

    /// Returns the levels of a stream for modification.
    pub const fn of_mut(&mut self, stream: Stream) -> &mut State {
        match stream {
            Stream::Transactional => &mut self.transactional,
            Stream::Marketing => &mut self.marketing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn day(count: u64, of: u64) -> Windows {
        let bounces = Rate { count, of };
        Windows { day: Figures { bounces, ..Figures::default() }, week: Figures::default() }
    }

    fn after(before: Level, windows: Windows) -> Level {
        State { bounces: before, complaints: Level::Ok }.step(windows).state.bounces
    }

    #[test]
    fn the_worse_of_both_windows_counts() {
        let (bad, good) = (day(60, 1000).day, day(0, 1000).day);
        assert_eq!(after(Level::Ok, Windows { day: good, week: bad }), Level::Alarm);
        assert_eq!(after(Level::Ok, Windows { day: bad, week: good }), Level::Alarm);
        assert_eq!(after(Level::Alarm, Windows { day: good, week: good }), Level::Ok);
    }

    #[test]
    fn a_percentage_needs_a_hundred_deliveries() {
        let rate = |count, of| Rate { count, of }.millionths();
        assert_eq!(
            [rate(99, 99), rate(0, 100), rate(1, 300), rate(u64::MAX, 100)],
            [None, Some(0), Some(3333), Some(u32::MAX)]
        );
    }

    fn levels() -> impl Strategy<Value = Level> {
        proptest::sample::select(vec![Level::Ok, Level::Warn, Level::Alarm])
    }

    proptest! {
        #[test]
        fn judging_the_same_figures_again_changes_nothing(before in levels(), count: u64, of: u64) {
            let once = after(before, day(count, of));
            prop_assert_eq!(after(once, day(count, of)), once);
        }

        #[test]
        fn more_bounces_never_lower_the_level(
            before in levels(), count in 0_u64..2000, more in 0_u64..2000, of in 0_u64..2000,
        ) {
            prop_assert!(after(before, day(count, of)) <= after(before, day(count + more, of)));
            prop_assert!(after(Level::Ok, day(count, of)) <= after(before, day(count, of)));
        }

        #[test]
        fn a_rate_that_varies_between_a_threshold_and_a_fifth_below_crosses_it_once(
            rates in proptest::collection::vec(1600_u64..5000, 1..40),
        ) {
            let mut level = Level::Ok;
            let mut crossings = 0;
            for rate in rates {
                let next = after(level, day(rate, 100_000));
                crossings += usize::from(next != level);
                level = next;
            }
            prop_assert!(crossings <= 1);
        }

        #[test]
        fn crossings_are_exactly_the_changed_levels(bounces in levels(), complaints in levels(), count: u64, of: u64) {
            let before = State { bounces, complaints };
            let figures = Figures { bounces: Rate { count, of }, complaints: Rate { count: count / 9, of } };
            let next = before.step(Windows { day: figures, week: Figures::default() });
            let changed = usize::from(next.state.bounces != bounces) + usize::from(next.state.complaints != complaints);
            prop_assert_eq!(next.effects.len(), changed);
            prop_assert!(next.effects.iter().all(|crossing| crossing.from != crossing.to));
        }
    }
}
