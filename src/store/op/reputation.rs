//! Evaluating an account by its bounces and complaints. The result is stored in a row, so that a crossed threshold is
//! reported once.
//!
//! The creator of the operation has summed the windows from a snapshot, so that the writer never waits for a scan.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Infallible, Op, alert, audit, outcomes};
use crate::domain::alert::{Condition, Severity, Sighting, Subject, SubjectKind};
use crate::domain::audit::{Action, Actor, Change};
use crate::domain::stream::Stream;
use crate::machine::reputation::{Figures, Level, Measure, Rate, Reputation, ThresholdCrossing, Windows};
use crate::store::error::{OpError, StoreError};
use crate::store::read::Read;
use crate::store::tables::Tables;
use crate::store::timer::Timer;

/// Interval at which an account with a raised level is evaluated: its windows move by the hour.
const RECOVERY: Duration = Duration::from_secs(3600);

/// Evaluates one account.
#[derive(Debug, Serialize, Deserialize)]
pub struct JudgeReputation {
    /// The timer that was served; it names the account.
    pub timer: Timer,
    /// Counts of the transactional stream's windows.
    pub transactional: Windows,
    /// Counts of the marketing stream's windows.
    pub marketing: Windows,
}

impl Op for JudgeReputation {
    /// The thresholds that were crossed.
    type Reply = Vec<(Stream, ThresholdCrossing)>;
    type Refusal = Infallible;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<Self::Reply, OpError<Infallible>> {
        tables.disarm(self.timer);
        let account = self.timer.account;
        let before: Reputation = tables.row(account.as_bytes())?.unwrap_or_default();
        let mut after = before;
        let mut crossed = Vec::new();
        for stream in Stream::ALL {
            let next = before.of(stream).step(self.windows(stream));
            *after.of_mut(stream) = next.state;
            crossed.extend(next.effects.into_iter().map(|crossing| (stream, crossing)));
        }
        if after != before {
            tables.put(account.as_bytes(), &after);
        }
        for (stream, crossing) in &crossed {
            let change = Change::new(Action::ThresholdCrossed, "", format!("{stream} {crossing}"));
            audit::write(tables, account, &Actor::Service, change)?;
            self.raise(tables, *stream, crossing)?;
        }
        if Stream::ALL.into_iter().any(|stream| !after.of(stream).is_ok()) {
            let next_hour = outcomes::start_of(outcomes::hour_of(tables.now())) + RECOVERY;
            tables.arm(outcomes::judged_at(account, next_hour));
        }
        Ok(crossed)
    }
}

impl JudgeReputation {
    /// Raises or ends the alert of a rate that crossed a threshold.
    fn raise(&self, tables: &mut Tables<'_>, stream: Stream, crossing: &ThresholdCrossing) -> Result<(), StoreError> {
        let (account, ThresholdCrossing { measure, to, .. }) = (self.timer.account, *crossing);
        match sighting(stream, measure, to, self.windows(stream)) {
            Some(sighting) => alert::found(tables, account, &sighting).map(drop),
            None => alert::gone(tables, account, condition_of(measure), stream.as_str()).map(drop),
        }
    }

    /// Returns the counts of a stream's windows.
    pub const fn windows(&self, stream: Stream) -> Windows {
        match stream {
            Stream::Transactional => self.transactional,
            Stream::Marketing => self.marketing,
        }
    }
}

/// Returns the condition of the alert for a measure.
pub const fn condition_of(measure: Measure) -> Condition {
    match measure {
        Measure::Bounces => Condition::BounceRate,
        Measure::Complaints => Condition::ComplaintRate,
    }
}

/// Returns the sighting for a rate of a stream at this level; `None` if the level is `ok`.
pub fn sighting(stream: Stream, measure: Measure, level: Level, Windows { day, week }: Windows) -> Option<Sighting> {
    let severity = match level {
        Level::Ok => return None,
        Level::Warn => Severity::Warning,
        Level::Alarm => Severity::Critical,
    };
    let shown = |figures: Figures| {
        let Rate { count, of } = figures.rate(measure);
        format!("{count} of {of}")
    };
    let (day, week) = (shown(day), shown(week));
    let (kind, counted) = match measure {
        Measure::Bounces => ("bounce", "bounced"),
        Measure::Complaints => ("complaint", "were marked as spam"),
    };
    let summary = format!("The {kind} rate of {stream} mail is too high");
    let seen = format!("In the last day {day} messages {counted}, in the last week {week}.");
    let subject = Subject::named(SubjectKind::Stream, stream);
    Some(Sighting::new(condition_of(measure), severity, summary, seen).of(subject))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::time::Timestamp;
    use crate::store::row::audit::AuditRow;
    use crate::store::testing::TestStore;
    use crate::store::timer::TimerKind;

    #[test]
    fn a_crossed_threshold_is_reported_once_and_evaluated_hourly_until_it_ends() {
        let test = TestStore::new();
        let account = test.account(Default::default());
        let judge = |bounced: u64, due: Timestamp| {
            let day = Figures { bounces: Rate { count: bounced, of: 1000 }, ..Figures::default() };
            let windows = Windows { day, week: Figures::default() };
            let timer = outcomes::judged_at(account, due);
            test.done(JudgeReputation { timer, transactional: Windows::default(), marketing: windows })
        };
        let crossing = |from, to| vec![(Stream::Marketing, ThresholdCrossing { measure: Measure::Bounces, from, to })];
        assert_eq!(judge(50, test.now()), crossing(Level::Ok, Level::Alarm));
        let next = test.timers(TimerKind::Reputation);
        assert_eq!(next.iter().map(|timer| timer.due).collect::<Vec<_>>(), [test.now() + RECOVERY]);
        test.set_now(next[0].due);
        assert_eq!(judge(45, next[0].due), []);
        let next = test.timers(TimerKind::Reputation);
        assert_eq!(next.len(), 1);
        assert_eq!(judge(0, next[0].due), crossing(Level::Alarm, Level::Ok));
        assert!(test.timers(TimerKind::Reputation).is_empty());
        assert_eq!(test.row::<Reputation>(account.as_bytes()), Reputation::default());
        let lines = test.snapshot().rows::<AuditRow>(account.as_bytes(), 9).unwrap();
        let lines: Vec<_> = lines.into_iter().map(|(_, line)| (line.actor, line.change.name)).collect();
        let line = |text: &str| (Actor::Service, text.to_owned());
        let (up, down) = ("marketing bounces from ok to alarm", "marketing bounces from alarm to ok");
        assert_eq!(lines, [line(up), line(down)]);
    }
}
