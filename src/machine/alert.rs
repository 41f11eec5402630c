//! An alert: suspected, open or ended, and the changes that are announced.
//!
//! ```text
//!            Found, not often enough         Found: its severity may rise (worse) or fall
//!                  .-----.                       .-----.   ReminderDue, a day later: reminder
//!                  v     |                       v     |
//!  absent ----> suspected ----- Found ---------> open ----- Gone: resolved ----> ended
//!     ^            |                             ^                                 |
//!     '--- Gone ---'                             '--- Found within an hour: -------'
//!                                                     reopened, unannounced
//! ```
//!
//! An alert reopens if its condition returns within an hour of the announced end. The reopening and the following end
//! are not announced. If the condition returns later, a new alert opens. So an intermittent condition is announced at
//! most once an hour. The alert for a momentary condition opens and ends at once.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Next;
use crate::base::time::Timestamp;
use crate::domain::alert::{NoticeKind, Severity};

/// Time during which an alert reopens after its announced end.
pub const REOPENS_FOR: Duration = Duration::from_secs(3600);
/// Time after which an open critical alert is announced again.
pub const REMINDER: Duration = Duration::from_secs(24 * 3600);
/// Minimum time at a lower severity before a rise to the old one is announced again.
const CALM: Duration = REOPENS_FOR;

/// The state of the alert for one condition and subject.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum State {
    /// The condition was never found, or has ended without an alert.
    #[default]
    Absent,
    /// The condition was found, but not often enough in a row.
    Suspected {
        /// Number of consecutive checks that found the condition.
        times: u8,
    },
    /// The alert is open.
    Open(Open),
    /// The alert has ended.
    Ended {
        /// Time of its last announced end.
        at: Timestamp,
        /// The highest severity that was announced.
        announced: Severity,
    },
}

/// An open alert.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Open {
    /// Current severity.
    pub severity: Severity,
    /// The highest severity that was announced.
    pub announced: Severity,
    /// Time of the announced end before the alert reopened; `None` once the opening or a later change was announced.
    pub reopened_after: Option<Timestamp>,
    /// Time since which the severity has been lower than the announced one.
    pub milder_since: Option<Timestamp>,
    /// Time of the next reminder, while the alert is critical.
    pub remind_at: Option<Timestamp>,
}

/// A check result or a timer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Input {
    /// The condition holds.
    Found(Severity),
    /// The condition occurred at this moment and is over.
    Happened(Severity),
    /// The condition does not hold.
    Gone,
    /// A reminder is due.
    ReminderDue,
}

/// An effect that the operation carries out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Create a new alert.
    Open,
    /// Reopen the last alert.
    Reopen,
    /// Save the alert's new severity.
    ChangeSeverity,
    /// End the alert.
    Resolve,
    /// Send a notice.
    Announce(NoticeKind),
    /// Arm the timer of the next reminder.
    Remind(Timestamp),
}

impl State {
    /// Returns whether an alert is open.
    pub const fn is_open(&self) -> bool {
        matches!(self, Self::Open(_))
    }

    /// Returns the next state and its effects after `input` at `now`. The alert opens once `looks` checks in a row
    /// found the condition.
    pub fn step(self, input: Input, looks: u8, now: Timestamp) -> Next<Self, Effect> {
        match (self, input) {
            (Self::Absent, Input::Found(severity)) => seen(0, severity, looks, now),
            (Self::Suspected { times }, Input::Found(severity)) => seen(times, severity, looks, now),
            (Self::Ended { at, announced }, Input::Found(severity)) if has_just_ended(at, now) => {
                reopen(at, announced, severity, now)
            }
            (Self::Ended { .. }, Input::Found(severity)) => seen(0, severity, looks, now),
            (Self::Open(open), Input::Found(severity) | Input::Happened(severity)) => open.changed(severity, now),
            (Self::Ended { at, announced }, Input::Happened(severity))
                if has_just_ended(at, now) && severity <= announced =>
            {
                Next::new(self, [Effect::Reopen, Effect::Resolve])
            }
            (Self::Absent | Self::Suspected { .. } | Self::Ended { .. }, Input::Happened(severity)) => {
                let ended = Self::Ended { at: now, announced: severity };
                Next::new(ended, [Effect::Open, Effect::Announce(NoticeKind::Opened), Effect::Resolve])
            }
            (Self::Suspected { .. }, Input::Gone) => Next::new(Self::Absent, []),
            (Self::Open(open), Input::Gone) => open.ended(now),
            (Self::Open(open), Input::ReminderDue) => open.reminded(now),
            (Self::Absent | Self::Ended { .. }, Input::Gone | Input::ReminderDue)
            | (Self::Suspected { .. }, Input::ReminderDue) => Next::unchanged(self),
        }
    }
}

/// Returns whether an alert that ended at `at` reopens. A time that is far ahead was recorded by a clock that was
/// ahead.
fn has_just_ended(at: Timestamp, now: Timestamp) -> bool {
    now < at + REOPENS_FOR && at <= now + REOPENS_FOR
}

/// Handles one more check that found the condition, after `before` consecutive ones.
fn seen(before: u8, severity: Severity, looks: u8, now: Timestamp) -> Next<State, Effect> {
    let times = before.saturating_add(1);
    if times < looks {
        return Next::new(State::Suspected { times }, []);
    }
    let (remind_at, remind) = reminder(severity, now);
    let open = Open { severity, announced: severity, reopened_after: None, milder_since: None, remind_at };
    let effects = [Effect::Open, Effect::Announce(NoticeKind::Opened)].into_iter().chain(remind);
    Next::new(State::Open(open), effects.collect::<Vec<_>>())
}

/// Reopens an alert soon after its announced end. Only a severity above the announced one is announced.
fn reopen(at: Timestamp, announced: Severity, severity: Severity, now: Timestamp) -> Next<State, Effect> {
    let (remind_at, remind) = reminder(severity, now);
    let is_worse = severity > announced;
    let open = Open {
        severity,
        announced: announced.max(severity),
        reopened_after: if is_worse { None } else { Some(at) },
        milder_since: (severity < announced).then_some(now),
        remind_at,
    };
    let worse = is_worse.then_some(Effect::Announce(NoticeKind::Worse));
    let effects = [Effect::Reopen, Effect::ChangeSeverity].into_iter().chain(worse).chain(remind);
    Next::new(State::Open(open), effects.collect::<Vec<_>>())
}

/// Returns the time of the first reminder, and the effect that arms its timer. Only critical alerts have reminders.
fn reminder(severity: Severity, now: Timestamp) -> (Option<Timestamp>, Option<Effect>) {
    let at = (severity == Severity::Critical).then_some(now + REMINDER);
    (at, at.map(Effect::Remind))
}

impl Open {
    fn changed(self, severity: Severity, now: Timestamp) -> Next<State, Effect> {
        if severity == self.severity {
            return Next::unchanged(State::Open(self));
        }
        let was_calm = self.milder_since.is_some_and(|since| now >= since + CALM);
        let is_announced = severity > self.announced || (severity > self.severity && was_calm);
        let (remind_at, remind) = match self.remind_at {
            Some(at) => (Some(at), None),
            None => reminder(severity, now),
        };
        let announced = self.announced.max(severity);
        let open = Self {
            severity,
            announced,
            reopened_after: self.reopened_after.filter(|_| !is_announced),
            milder_since: (severity < announced).then_some(self.milder_since.unwrap_or(now)),
            remind_at,
        };
        let worse = is_announced.then_some(Effect::Announce(NoticeKind::Worse));
        let effects = [Effect::ChangeSeverity].into_iter().chain(worse).chain(remind);
        Next::new(State::Open(open), effects.collect::<Vec<_>>())
    }

    fn ended(self, now: Timestamp) -> Next<State, Effect> {
        let at = self.reopened_after.unwrap_or(now);
        let announce = self.reopened_after.is_none().then_some(Effect::Announce(NoticeKind::Resolved));
        let effects: Vec<_> = [Effect::Resolve].into_iter().chain(announce).collect();
        Next::new(State::Ended { at, announced: self.announced }, effects)
    }

    fn reminded(self, now: Timestamp) -> Next<State, Effect> {
        if self.remind_at.is_none_or(|at| now < at) {
            return Next::unchanged(State::Open(self));
        }
        if self.severity < Severity::Critical {
            return Next::new(State::Open(Self { remind_at: None, ..self }), []);
        }
        let at = now + REMINDER;
        let open = Self { remind_at: Some(at), reopened_after: None, ..self };
        Next::new(State::Open(open), [Effect::Announce(NoticeKind::Reminder), Effect::Remind(at)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);
    const MINUTE: Duration = Duration::from_secs(60);

    /// Applies each input at its minute. Returns the final state and all effects.
    fn run(state: State, looks: u8, inputs: &[(u32, Input)]) -> (State, Vec<Effect>) {
        let mut effects = Vec::new();
        let state = inputs.iter().fold(state, |state, (minute, input)| {
            let next = state.step(*input, looks, NOW + *minute * MINUTE);
            effects.extend(next.effects);
            next.state
        });
        (state, effects)
    }

    fn announced(effects: &[Effect]) -> Vec<NoticeKind> {
        let kinds = effects.iter().filter_map(|effect| match effect {
            Effect::Announce(kind) => Some(*kind),
            _ => None,
        });
        kinds.collect()
    }

    #[test]
    fn an_alert_that_needs_two_checks_opens_at_the_second_consecutive_one() {
        let found = Input::Found(Severity::Critical);
        let (state, effects) = run(State::Absent, 2, &[(0, found), (60, Input::Gone), (120, found)]);
        assert_eq!((state, effects), (State::Suspected { times: 1 }, vec![]));
        let (state, effects) = run(state, 2, &[(180, found)]);
        assert!(state.is_open());
        assert_eq!(announced(&effects), [NoticeKind::Opened]);
    }

    #[test]
    fn an_alert_that_ended_by_a_clock_that_was_ahead_opens_again() {
        let now = Timestamp::from_millis(1_700_000_000_000);
        let ended = State::Ended { at: now + 5 * 24 * REOPENS_FOR, announced: Severity::Critical };
        let next = ended.step(Input::Found(Severity::Critical), 1, now);
        assert!(next.effects.contains(&Effect::Announce(NoticeKind::Opened)), "{:?}", next.effects);
    }

    #[test]
    fn a_condition_that_returns_within_an_hour_reopens_its_alert_unannounced() {
        let found = Input::Found(Severity::Warning);
        let (state, effects) = run(State::Absent, 1, &[(0, found), (5, Input::Gone), (10, found), (15, Input::Gone)]);
        assert_eq!(announced(&effects), [NoticeKind::Opened, NoticeKind::Resolved]);
        assert!(effects.contains(&Effect::Reopen));
        // An hour after the announced end, a new alert opens.
        let (_, effects) = run(state, 1, &[(64, found), (64, Input::Gone), (65, found)]);
        assert_eq!(effects.iter().filter(|effect| **effect == Effect::Open).count(), 1);
        assert_eq!(announced(&effects), [NoticeKind::Opened]);
    }

    #[test]
    fn a_repeated_rise_is_announced_only_after_an_hour_at_a_lower_severity() {
        let (warning, critical) = (Input::Found(Severity::Warning), Input::Found(Severity::Critical));
        let inputs = [(0, warning), (5, critical), (10, warning), (15, critical), (20, warning), (90, critical)];
        let (_, effects) = run(State::Absent, 1, &inputs);
        assert_eq!(announced(&effects), [NoticeKind::Opened, NoticeKind::Worse, NoticeKind::Worse]);
    }

    #[test]
    fn a_critical_alert_is_announced_again_every_day() {
        let day = 24 * 60;
        let inputs = [(0, Input::Found(Severity::Critical)), (day - 1, Input::ReminderDue), (day, Input::ReminderDue)];
        let (state, effects) = run(State::Absent, 1, &inputs);
        assert_eq!(announced(&effects), [NoticeKind::Opened, NoticeKind::Reminder]);
        let milder = [(day + 5, Input::Found(Severity::Warning)), (2 * day, Input::ReminderDue)];
        assert_eq!(announced(&run(state, 1, &milder).1), []);
    }

    #[test]
    fn a_momentary_condition_opens_and_ends_at_once_and_is_announced_once_an_hour() {
        let happened = Input::Happened(Severity::Warning);
        let (_, effects) = run(State::Absent, 1, &[(0, happened), (30, happened), (59, happened), (60, happened)]);
        assert_eq!(announced(&effects), [NoticeKind::Opened, NoticeKind::Opened]);
        assert_eq!(effects.iter().filter(|effect| **effect == Effect::Resolve).count(), 4);
    }

    fn input() -> impl Strategy<Value = Input> {
        let severity = prop_oneof![Just(Severity::Info), Just(Severity::Warning), Just(Severity::Critical)];
        prop_oneof![severity.prop_map(Input::Found), Just(Input::Gone), Just(Input::Gone), Just(Input::ReminderDue),]
    }

    proptest! {
        #[test]
        fn openings_and_ends_alternate_and_announcements_are_rare(
            steps in proptest::collection::vec((0_u32..240, input()), 1..200),
            looks in 1_u8..3,
        ) {
            let (mut state, mut now, mut notices) = (State::Absent, NOW, Vec::new());
            for (minutes, input) in steps {
                now = now + minutes * MINUTE;
                let before = state;
                let next = state.step(input, looks, now);
                state = next.state;
                let opens = next.effects.iter().any(|effect| matches!(effect, Effect::Open | Effect::Reopen));
                prop_assert_eq!(opens, !before.is_open() && state.is_open());
                prop_assert_eq!(next.effects.contains(&Effect::Resolve), before.is_open() && !state.is_open());
                let kinds = announced(&next.effects);
                prop_assert!(kinds.len() <= 1);
                notices.extend(kinds.into_iter().map(|kind| (now, kind)));
            }
            let of = |wanted: NoticeKind| notices.iter().filter(move |(_, kind)| *kind == wanted).map(|(at, _)| *at);
            let (opened, resolved): (Vec<_>, Vec<_>) =
                (of(NoticeKind::Opened).collect(), of(NoticeKind::Resolved).collect());
            // Each announced end follows its own announced opening, worsened reopening, or reminder.
            for pair in resolved.windows(2) {
                let is_between = |at: &Timestamp| (pair[0]..=pair[1]).contains(at);
                prop_assert!(notices.iter().any(|(at, kind)| *kind != NoticeKind::Resolved && is_between(at)));
            }
            // An intermittent condition is announced at most once an hour.
            for pair in opened.windows(2) {
                prop_assert!(pair[1].since(pair[0]) >= REOPENS_FOR);
            }
            let reminders: Vec<_> = of(NoticeKind::Reminder).collect();
            for pair in reminders.windows(2) {
                prop_assert!(pair[1].since(pair[0]) >= REMINDER);
            }
        }
    }
}
