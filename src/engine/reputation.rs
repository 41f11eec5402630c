//! An account's bounce and complaint rates, for `GET /v1/me`, log warnings and the panel's charts. All of them come
//! from hourly counts ([`store::op::outcomes`](crate::store::op::outcomes)), never from messages.

use std::collections::BTreeMap;

use super::Engine;
use crate::base::id::{AccountId, DomainId};
use crate::base::time::Timestamp;
use crate::domain::stream::Stream;
use crate::machine::reputation::{self as machine, Level, Measure, State, ThresholdCrossing, Windows};
use crate::store::error::{OpError, StoreError};
use crate::store::op::Infallible;
use crate::store::op::outcomes::{hour_of, scan, start_of};
use crate::store::op::reputation::JudgeReputation;
use crate::store::read::Read;
use crate::store::row::outcomes::OutcomeCounts;
use crate::store::timer::Timer;

const DAY_HOURS: u32 = 24;
const WEEK_HOURS: u32 = 7 * 24;

/// Current levels of an account.
#[derive(Clone, Debug)]
pub struct Reputation {
    transactional: StreamReputation,
    marketing: StreamReputation,
}

/// Current levels of one stream.
#[derive(Clone, Debug)]
pub struct StreamReputation {
    /// Levels, by the current counts.
    pub levels: State,
    /// Hours and counts of its windows: the day, then the week.
    pub windows: [(u32, OutcomeCounts); 2],
}

impl Reputation {
    /// Returns the levels of a stream.
    pub const fn of(&self, stream: Stream) -> &StreamReputation {
        match stream {
            Stream::Transactional => &self.transactional,
            Stream::Marketing => &self.marketing,
        }
    }
}

/// The counts of both windows of both streams.
#[derive(Default)]
struct WindowCounts {
    transactional: [OutcomeCounts; 2],
    marketing: [OutcomeCounts; 2],
}

impl WindowCounts {
    fn look(read: &impl Read, account: AccountId, now: Timestamp) -> Result<Self, StoreError> {
        let end = hour_of(now).saturating_add(1);
        let mut seen = Self::default();
        scan(read, account, end.saturating_sub(WEEK_HOURS), end, &mut |row| {
            let [day, week] = match row.stream {
                Stream::Transactional => &mut seen.transactional,
                Stream::Marketing => &mut seen.marketing,
            };
            week.add(&row.counts);
            if row.hour >= end.saturating_sub(DAY_HOURS) {
                day.add(&row.counts);
            }
        })?;
        Ok(seen)
    }
}

fn windows([day, week]: &[OutcomeCounts; 2]) -> Windows {
    Windows { day: day.figures(), week: week.figures() }
}

/// Parameters of a chart.
#[derive(Clone, Copy, Debug)]
pub struct OutcomesQuestion {
    /// Start: the hour of this time.
    pub from: Timestamp,
    /// End: the hour of this time, exclusive.
    pub to: Timestamp,
    /// Step of the series.
    pub step: Step,
    /// Only this stream.
    pub stream: Option<Stream>,
    /// Only this sending domain.
    pub domain: Option<DomainId>,
}

/// Length of one step of a series.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// A UTC hour.
    Hour,
    /// 24 hours from the start on. This is a day of the account's time zone if the start is the beginning of one.
    Day,
}

/// Outcomes of the messages that were accepted in a period.
#[derive(Clone, Debug, Default)]
pub struct Outcomes {
    /// Counts of each step in order, including steps without a message.
    pub series: Vec<(Timestamp, OutcomeCounts)>,
    /// Sum of all steps.
    pub total: OutcomeCounts,
    /// Counts by sending domain, which may have been deleted since. The zero identifier has the remaining messages of
    /// hours with too many domains.
    pub by_domain: BTreeMap<DomainId, OutcomeCounts>,
    /// Counts by receiving provider. The empty name has messages without a server, such as those that are accepted but
    /// not sent yet.
    pub by_provider: BTreeMap<String, OutcomeCounts>,
}

impl Engine {
    /// Returns the current levels of the account.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn reputation(&self, account: AccountId) -> Result<Reputation, StoreError> {
        let snapshot = self.store.snapshot()?;
        let seen = WindowCounts::look(&snapshot, account, self.clock.now())?;
        let judged: machine::Reputation = snapshot.row(account.as_bytes())?.unwrap_or_default();
        let stream = |stream, counts: [OutcomeCounts; 2]| StreamReputation {
            levels: judged.of(stream).step(windows(&counts)).state,
            windows: [(DAY_HOURS, counts[0]), (WEEK_HOURS, counts[1])],
        };
        Ok(Reputation {
            transactional: stream(Stream::Transactional, seen.transactional),
            marketing: stream(Stream::Marketing, seen.marketing),
        })
    }

    /// Returns the series of a chart. The cost grows with the period: some hundred rows for a day, a few thousand for a
    /// week.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn outcomes(&self, account: AccountId, question: &OutcomesQuestion) -> Result<Outcomes, StoreError> {
        let (from, to) = (hour_of(question.from), hour_of(question.to));
        let hours = match question.step {
            Step::Hour => 1,
            Step::Day => DAY_HOURS,
        };
        let steps = to.saturating_sub(from).div_ceil(hours);
        let mut outcomes = Outcomes {
            series: (0..steps).map(|step| (start_of(from + step * hours), OutcomeCounts::default())).collect(),
            ..Outcomes::default()
        };
        scan(&self.store.snapshot()?, account, from, to, &mut |row| {
            let is_asked = question.stream.is_none_or(|stream| stream == row.stream)
                && question.domain.is_none_or(|domain| domain == row.domain);
            if !is_asked {
                return;
            }
            let step = usize::try_from((row.hour - from) / hours).unwrap_or(usize::MAX);
            outcomes.series.get_mut(step).into_iter().for_each(|(_, counts)| counts.add(&row.counts));
            outcomes.total.add(&row.counts);
            outcomes.by_domain.entry(row.domain).or_default().add(&row.counts);
            outcomes.by_provider.entry(row.provider.to_owned()).or_default().add(&row.counts);
        })?;
        Ok(outcomes)
    }

    /// Serves the timer of an account's reputation: logs each crossed threshold.
    pub(super) async fn judge_reputation(&self, timer: Timer) -> Result<(), OpError<Infallible>> {
        let account = timer.account;
        let seen = WindowCounts::look(&self.store.snapshot()?, account, self.clock.now())?;
        let (transactional, marketing) = (windows(&seen.transactional), windows(&seen.marketing));
        for (stream, crossing) in self.store.commit(JudgeReputation { timer, transactional, marketing }).await? {
            let windows = match stream {
                Stream::Transactional => transactional,
                Stream::Marketing => marketing,
            };
            log_crossing(account, stream, crossing, windows);
        }
        Ok(())
    }
}

/// Returns advice for a measure.
const fn advice(measure: Measure) -> &'static str {
    match measure {
        Measure::Bounces => {
            "find the source of the bouncing addresses (GET /v1/events?type=bounced), and stop writing to them"
        }
        Measure::Complaints => {
            "send only to people who opted in, and let them unsubscribe with one click (GET \
             /v1/events?type=complained)"
        }
    }
}

fn log_crossing(
    account: AccountId,
    stream: Stream,
    ThresholdCrossing { measure, from, to }: ThresholdCrossing,
    windows: Windows,
) {
    let [day, week] = [windows.day, windows.week].map(|figures| percent(figures.rate(measure)));
    let (stream, what_to_do) = (stream.as_str(), advice(measure));
    let measure = measure.as_str();
    match to {
        _ if to < from => tracing::info!(%account, stream, measure, ?to, day, week, "bounce or complaint rate fell"),
        Level::Alarm => {
            let message = "bounce or complaint rate above the limit";
            tracing::error!(%account, stream, measure, day, week, what_to_do, "{message}");
        }
        Level::Warn | Level::Ok => {
            let message = "bounce or complaint rate above the warning threshold";
            tracing::warn!(%account, stream, measure, day, week, what_to_do, "{message}");
        }
    }
}

/// Formats a rate for the log.
fn percent(rate: machine::Rate) -> String {
    match rate.millionths() {
        Some(share) => format!("{}.{:02}% ({} of {})", share / 10_000, share % 10_000 / 100, rate.count, rate.of),
        None => format!("{} of {}", rate.count, rate.of),
    }
}
