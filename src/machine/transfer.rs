//! The status of one message (contract 3 "Status"), derived from its attempts, its sender's requests and its receivers'
//! reports.
//!
//! ```text
//!                                 .-- AttemptDeferred --.
//!                                 v                     |
//! queued --- AttemptDeferred --> deferred --------------'
//!    |                             |
//!    '------------.----------------'
//!                 |--- CancelAsked --------------------> canceled   -.
//!                 |--- RecipientSuppressed ------------> suppressed  | rank 0
//!                 |--- GaveUp -------------------------> failed     -'
//!                 |                                        |
//!                 |--- Delivered ----------------------> delivered    rank 1
//!                 |                                        |
//!                 |--- AttemptBounced, ReportedBounced -> bounced     rank 2
//!                 |                                        |
//!                 '--- ReportedComplaint --------------> complained   rank 3   (downwards from any status)
//! ```
//!
//! Reports arrive in any order, so the status is the one of highest rank: complained > bounced > delivered > the rest.
//! The timeline gets every fact once. A repeated report changes nothing.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::Next;
use crate::domain::event::EventType;

/// The status of a message, as shown in answers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Accepted; no attempt has ended yet.
    Queued,
    /// At least one attempt failed temporarily. Another attempt is due.
    Deferred,
    /// The receiver's server accepted the message.
    Delivered,
    /// Permanently refused, in the session or by a later report.
    Bounced,
    /// Given up without a permanent answer.
    Failed,
    /// The recipient's address was suppressed before the message was sent.
    Suppressed,
    /// The sender canceled the message.
    Canceled,
    /// The recipient marked the message as spam.
    Complained,
}

/// Error: the text is not a status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be one of queued, deferred, delivered, bounced, failed, suppressed, canceled, complained")]
pub struct InvalidStatus;

impl Status {
    /// All statuses, in the contract's order.
    pub const ALL: [Self; 8] = [
        Self::Queued,
        Self::Deferred,
        Self::Delivered,
        Self::Bounced,
        Self::Failed,
        Self::Suppressed,
        Self::Canceled,
        Self::Complained,
    ];

    /// Returns the name used in every interface.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Deferred => "deferred",
            Self::Delivered => "delivered",
            Self::Bounced => "bounced",
            Self::Failed => "failed",
            Self::Suppressed => "suppressed",
            Self::Canceled => "canceled",
            Self::Complained => "complained",
        }
    }

    /// Returns whether the message still waits for an attempt.
    pub const fn is_waiting(self) -> bool {
        matches!(self, Self::Queued | Self::Deferred)
    }

    /// Returns the precedence of contract 3: a status is replaced only by one of higher rank.
    const fn rank(self) -> u8 {
        match self {
            Self::Queued | Self::Deferred | Self::Failed | Self::Suppressed | Self::Canceled => 0,
            Self::Delivered => 1,
            Self::Bounced => 2,
            Self::Complained => 3,
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Status {
    type Err = InvalidStatus;
    fn from_str(text: &str) -> Result<Self, InvalidStatus> {
        Self::ALL.into_iter().find(|status| status.as_str() == text).ok_or(InvalidStatus)
    }
}

/// Whether an attempt of the message is in progress, according to its in-memory lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum AttemptProgress {
    /// No attempt is in progress.
    Idle,
    /// An attempt is in progress; only its outcome may settle the message.
    Busy,
}

/// An input of the machine: a fact that has happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Input {
    /// A 2xx answered the final dot.
    Delivered,
    /// An attempt failed temporarily.
    AttemptDeferred,
    /// An attempt failed permanently: by the receiver's answer, by DNS, or by our own check before connecting.
    AttemptBounced,
    /// The lifetime or `expires_at` has passed, or the content is gone.
    GaveUp,
    /// The recipient's address was suppressed. An attempt in progress ends with its outcome. If that outcome is a
    /// deferral, the caller checks the suppressions again and applies this input with [`AttemptProgress::Idle`].
    RecipientSuppressed(AttemptProgress),
    /// The sender asked to cancel the message.
    CancelAsked(AttemptProgress),
    /// An authenticated DSN reported `failed`.
    ReportedBounced,
    /// An authenticated DSN reported `delayed`.
    ReportedDelayed,
    /// An authenticated ARF report marked the message as spam.
    ReportedComplaint,
    /// The recipient used the hosted one-click link.
    Unsubscribed,
}

/// An effect that the operation carries out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Append this event to the timeline and the log, and create its webhook deliveries.
    Record(EventType),
    /// Arm the timer of the next attempt, by `machine::retry`.
    ScheduleAttempt,
    /// Disarm the message's attempt timer: there are no more attempts.
    StopAttempts,
    /// Suppress the recipient's address (contract 6: a complaint always does; for a bounce the verdict decides).
    SuppressRecipient,
    /// Answer 409 `conflict`: the cancel came too late.
    RefuseCancel,
}

/// A fact that the timeline holds at most once.
#[derive(Clone, Copy)]
enum Fact {
    Delivered = 1,
    Bounced = 2,
    Complained = 4,
    Delayed = 8,
    Unsubscribed = 16,
}

/// The state of one message's transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct State {
    status: Status,
    /// Bits of [`Fact`]. Below a higher status, the status alone does not show which facts are known.
    facts: u8,
}

impl Default for State {
    fn default() -> Self {
        Self { status: Status::Queued, facts: 0 }
    }
}

impl State {
    /// Returns the status to show.
    pub const fn status(self) -> Status {
        self.status
    }

    /// Returns whether the message was both accepted and then refused or returned. In any order of these facts, it
    /// counts as one message.
    pub const fn is_returned(self) -> bool {
        const BOTH: u8 = Fact::Delivered as u8 | Fact::Bounced as u8;
        self.facts & BOTH == BOTH
    }

    /// Returns the next state and its effects after `input`. It needs no time: `machine::retry` schedules the next
    /// attempt.
    #[must_use]
    pub fn step(self, input: Input) -> Next<Self, Effect> {
        match input {
            Input::Delivered => self.learn(Fact::Delivered, Status::Delivered, EventType::Delivered),
            Input::AttemptBounced | Input::ReportedBounced => {
                self.learn(Fact::Bounced, Status::Bounced, EventType::Bounced)
            }
            Input::ReportedComplaint => {
                let mut next = self.learn(Fact::Complained, Status::Complained, EventType::Complained);
                if !next.effects.is_empty() {
                    next.effects.push(Effect::SuppressRecipient);
                }
                next
            }
            Input::AttemptDeferred if self.status.is_waiting() => Next::new(
                Self { status: Status::Deferred, ..self },
                [Effect::Record(EventType::Deferred), Effect::ScheduleAttempt],
            ),
            Input::GaveUp => self.end(Status::Failed, EventType::Failed),
            Input::RecipientSuppressed(AttemptProgress::Idle) => self.end(Status::Suppressed, EventType::Suppressed),
            Input::CancelAsked(AttemptProgress::Idle) if self.status.is_waiting() => {
                self.end(Status::Canceled, EventType::Canceled)
            }
            Input::CancelAsked(AttemptProgress::Idle | AttemptProgress::Busy) => {
                Next::new(self, [Effect::RefuseCancel])
            }
            Input::ReportedDelayed => self.note(Fact::Delayed, &[Effect::Record(EventType::Deferred)]),
            Input::Unsubscribed => {
                self.note(Fact::Unsubscribed, &[Effect::Record(EventType::Unsubscribed), Effect::SuppressRecipient])
            }
            Input::AttemptDeferred | Input::RecipientSuppressed(AttemptProgress::Busy) => Next::unchanged(self),
        }
    }

    /// Handles a fact about the message's fate. It is recorded the first time, and its status applies if it outranks
    /// the current one.
    fn learn(self, fact: Fact, status: Status, event: EventType) -> Next<Self, Effect> {
        let mut next = self.note(fact, &[Effect::Record(event)]);
        if next.effects.is_empty() {
            return next;
        }
        if status.rank() > self.status.rank() {
            next.state.status = status;
        }
        if self.status.is_waiting() {
            next.effects.push(Effect::StopAttempts);
        }
        next
    }

    /// Handles a fact that does not change the status: its effects apply the first time only.
    fn note(self, fact: Fact, effects: &[Effect]) -> Next<Self, Effect> {
        let bit = fact as u8;
        if self.facts & bit != 0 {
            return Next::unchanged(self);
        }
        Next::new(Self { facts: self.facts | bit, ..self }, effects)
    }

    /// Handles an end that applies only to a message that still waits.
    fn end(self, status: Status, event: EventType) -> Next<Self, Effect> {
        if !self.status.is_waiting() {
            return Next::unchanged(self);
        }
        Next::new(Self { status, ..self }, [Effect::Record(event), Effect::StopAttempts])
    }
}

#[cfg(test)]
impl Input {
    /// All inputs, for tables and properties.
    pub(super) const ALL: [Self; 12] = [
        Self::Delivered,
        Self::AttemptDeferred,
        Self::AttemptBounced,
        Self::GaveUp,
        Self::RecipientSuppressed(AttemptProgress::Idle),
        Self::RecipientSuppressed(AttemptProgress::Busy),
        Self::CancelAsked(AttemptProgress::Idle),
        Self::CancelAsked(AttemptProgress::Busy),
        Self::ReportedBounced,
        Self::ReportedDelayed,
        Self::ReportedComplaint,
        Self::Unsubscribed,
    ];
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn walk(inputs: &[Input]) -> (State, Vec<Effect>) {
        inputs.iter().fold((State::default(), Vec::new()), |(state, mut effects), input| {
            let mut next = state.step(*input);
            effects.append(&mut next.effects);
            (next.state, effects)
        })
    }

    fn inputs() -> impl Strategy<Value = Vec<Input>> {
        proptest::collection::vec(proptest::sample::select(&Input::ALL[..]), 0..24)
    }

    #[test]
    fn a_late_dsn_changes_delivered_to_bounced_once_and_a_delay_report_does_not() {
        let (state, _) = walk(&[Input::AttemptDeferred, Input::Delivered]);
        let delayed = state.step(Input::ReportedDelayed);
        assert_eq!(delayed.state.status(), Status::Delivered);
        assert_eq!(delayed.effects, [Effect::Record(EventType::Deferred)]);
        let bounced = delayed.state.step(Input::ReportedBounced);
        assert_eq!(bounced.state.status(), Status::Bounced);
        assert_eq!(bounced.effects, [Effect::Record(EventType::Bounced)]);
        assert_eq!(bounced.state.step(Input::ReportedBounced), Next::unchanged(bounced.state));
    }

    #[test]
    fn a_bounce_after_a_complaint_is_recorded_and_the_status_stays_complained() {
        let (state, effects) = walk(&[Input::Delivered, Input::ReportedComplaint, Input::ReportedBounced]);
        assert_eq!(state.status(), Status::Complained);
        assert_eq!(effects.last(), Some(&Effect::Record(EventType::Bounced)));
        assert_eq!(state.step(Input::ReportedBounced), Next::unchanged(state));
    }

    #[test]
    fn a_report_that_precedes_the_answer_to_the_final_dot_keeps_its_rank() {
        let (state, effects) = walk(&[Input::ReportedBounced, Input::Delivered]);
        assert_eq!(state.status(), Status::Bounced);
        assert_eq!(
            effects,
            [Effect::Record(EventType::Bounced), Effect::StopAttempts, Effect::Record(EventType::Delivered)]
        );
    }

    #[test]
    fn every_status_name_parses_to_its_status() {
        assert!(Status::ALL.iter().all(|status| status.to_string().parse() == Ok(*status)));
        assert!("sent".parse::<Status>().is_err());
    }

    proptest! {
        #[test]
        fn the_rank_never_falls_and_the_final_status_is_the_highest_reported(inputs in inputs()) {
            let mut state = State::default();
            for input in &inputs {
                let next = state.step(*input).state;
                prop_assert!(next.status.rank() >= state.status.rank());
                state = next;
            }
            let includes = |wanted: &[Input]| inputs.iter().any(|input| wanted.contains(input));
            let highest = if includes(&[Input::ReportedComplaint]) { 3 }
                else if includes(&[Input::AttemptBounced, Input::ReportedBounced]) { 2 }
                else { u8::from(includes(&[Input::Delivered])) };
            prop_assert_eq!(state.status.rank(), highest);
        }

        #[test]
        fn a_repeated_report_changes_nothing(inputs in inputs(), report in proptest::sample::select(vec![
            Input::Delivered, Input::AttemptBounced, Input::ReportedBounced, Input::ReportedDelayed, Input::ReportedComplaint,
            Input::Unsubscribed, Input::GaveUp, Input::RecipientSuppressed(AttemptProgress::Idle),
        ])) {
            let once = walk(&inputs).0.step(report).state;
            prop_assert_eq!(once.step(report), Next::unchanged(once));
        }

        #[test]
        fn reports_lead_to_the_same_state_in_any_order(
            mut reports in Just(vec![Input::Delivered, Input::ReportedBounced, Input::ReportedDelayed, Input::ReportedComplaint])
                .prop_shuffle(),
        ) {
            let state = walk(&reports).0;
            reports.sort_by_key(|report| format!("{report:?}"));
            prop_assert_eq!(state, walk(&reports).0);
        }

        #[test]
        fn attempts_stop_exactly_when_the_message_reaches_an_end(inputs in inputs()) {
            let (state, effects) = walk(&inputs);
            let stops = effects.iter().filter(|effect| **effect == Effect::StopAttempts).count();
            prop_assert_eq!(stops, usize::from(!state.status.is_waiting()));
        }
    }
}
