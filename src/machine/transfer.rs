//! The status of one message (contract 3 "Status"): what its attempts, its sender and its receivers' reports make of
//! it.
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
//! Reports arrive in any order, so the status is the highest rank heard of, complained > bounced > delivered > the
//! rest, while the timeline gets every fact once. A report that is heard twice changes nothing.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::Next;
use crate::domain::event::EventType;

/// The status of a message, as answers show it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Accepted; no attempt has ended yet.
    Queued,
    /// At least one attempt met a transient failure; another is due.
    Deferred,
    /// The receiver's server took it.
    Delivered,
    /// Refused for good, in the session or by a late report.
    Bounced,
    /// Given up without a permanent answer.
    Failed,
    /// Its address became suppressed before it was sent.
    Suppressed,
    /// Withdrawn by its sender.
    Canceled,
    /// The recipient called it spam.
    Complained,
}

/// The text names no status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be one of queued, deferred, delivered, bounced, failed, suppressed, canceled, complained")]
pub struct InvalidStatus;

impl Status {
    /// All of them, in the contract's order.
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

    /// The name on every interface.
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

    /// Whether the message still waits for an attempt.
    pub const fn is_waiting(self) -> bool {
        matches!(self, Self::Queued | Self::Deferred)
    }

    /// The precedence of contract 3: a status gives way only to one of higher rank.
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

/// Whether an attempt of the message is on the wire at this moment, as its in-memory lease tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Wire {
    /// No attempt is under way.
    Idle,
    /// An attempt is under way; only its outcome may settle the message.
    Busy,
}

/// An input of the machine: a fact that has happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Input {
    /// A 2xx to the final dot.
    Delivered,
    /// An attempt met a transient failure.
    AttemptDeferred,
    /// An attempt met a permanent refusal: theirs, the DNS's, or our own finding before asking.
    AttemptBounced,
    /// Lifetime or `expires_at` is over, or the content is gone.
    GaveUp,
    /// The recipient's address became suppressed. What is on the wire ends by its outcome: whoever settles that
    /// as deferred looks at the suppressions again, and feeds this with [`Wire::Idle`].
    RecipientSuppressed(Wire),
    /// The sender asked to withdraw the message.
    CancelAsked(Wire),
    /// An authenticated DSN says `failed`.
    ReportedBounced,
    /// An authenticated DSN says `delayed`.
    ReportedDelayed,
    /// An authenticated ARF report calls it spam.
    ReportedComplaint,
    /// The recipient used the hosted one-click link.
    Unsubscribed,
}

/// An effect that the operation carries out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Append this event to the timeline and the log, and fan it out.
    Record(EventType),
    /// Arm the timer of the next attempt, by `machine::retry`.
    ScheduleAttempt,
    /// Disarm the message's attempt timer: it will not be tried again.
    StopAttempts,
    /// Suppress the recipient's address (contract 6: a complaint always does; for a bounce the verdict says).
    SuppressRecipient,
    /// Answer 409 `conflict`: the cancel comes too late.
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
    /// Bits of [`Fact`]: beneath a higher status, what was heard already cannot be told from the status alone.
    heard: u8,
}

impl Default for State {
    fn default() -> Self {
        Self { status: Status::Queued, heard: 0 }
    }
}

impl State {
    /// The status to show.
    pub const fn status(self) -> Status {
        self.status
    }

    /// Whether it was taken, and refused or returned too: in whichever order that was heard, it is one message.
    pub const fn is_returned(self) -> bool {
        const BOTH: u8 = Fact::Delivered as u8 | Fact::Bounced as u8;
        self.heard & BOTH == BOTH
    }

    /// Returns the next state and its effects after `input`. It takes no time: `machine::retry` decides when to try
    /// again.
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
            Input::RecipientSuppressed(Wire::Idle) => self.end(Status::Suppressed, EventType::Suppressed),
            Input::CancelAsked(Wire::Idle) if self.status.is_waiting() => {
                self.end(Status::Canceled, EventType::Canceled)
            }
            Input::CancelAsked(Wire::Idle | Wire::Busy) => Next::new(self, [Effect::RefuseCancel]),
            Input::ReportedDelayed => self.note(Fact::Delayed, &[Effect::Record(EventType::Deferred)]),
            Input::Unsubscribed => {
                self.note(Fact::Unsubscribed, &[Effect::Record(EventType::Unsubscribed), Effect::SuppressRecipient])
            }
            Input::AttemptDeferred | Input::RecipientSuppressed(Wire::Busy) => Next::unchanged(self),
        }
    }

    /// A fact about the message's fate: recorded the first time, and its status where that outranks the present one.
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

    /// A fact that leaves the status: its effects the first time, nothing after.
    fn note(self, fact: Fact, effects: &[Effect]) -> Next<Self, Effect> {
        let bit = fact as u8;
        if self.heard & bit != 0 {
            return Next::unchanged(self);
        }
        Next::new(Self { heard: self.heard | bit, ..self }, effects)
    }

    /// An end that only a message that still waits can come to.
    fn end(self, status: Status, event: EventType) -> Next<Self, Effect> {
        if !self.status.is_waiting() {
            return Next::unchanged(self);
        }
        Next::new(Self { status, ..self }, [Effect::Record(event), Effect::StopAttempts])
    }
}

#[cfg(test)]
impl Input {
    /// Every input, for tables and properties.
    pub(super) const ALL: [Self; 12] = [
        Self::Delivered,
        Self::AttemptDeferred,
        Self::AttemptBounced,
        Self::GaveUp,
        Self::RecipientSuppressed(Wire::Idle),
        Self::RecipientSuppressed(Wire::Busy),
        Self::CancelAsked(Wire::Idle),
        Self::CancelAsked(Wire::Busy),
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
    fn a_late_dsn_turns_delivered_into_bounced_once_and_a_delay_leaves_it() {
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
    fn a_bounce_after_a_complaint_is_an_event_that_leaves_complained() {
        let (state, effects) = walk(&[Input::Delivered, Input::ReportedComplaint, Input::ReportedBounced]);
        assert_eq!(state.status(), Status::Complained);
        assert_eq!(effects.last(), Some(&Effect::Record(EventType::Bounced)));
        assert_eq!(state.step(Input::ReportedBounced), Next::unchanged(state));
    }

    #[test]
    fn a_report_that_overtakes_the_answer_to_the_final_dot_keeps_its_rank() {
        let (state, effects) = walk(&[Input::ReportedBounced, Input::Delivered]);
        assert_eq!(state.status(), Status::Bounced);
        assert_eq!(
            effects,
            [Effect::Record(EventType::Bounced), Effect::StopAttempts, Effect::Record(EventType::Delivered)]
        );
    }

    #[test]
    fn every_name_reads_back_as_its_status() {
        assert!(Status::ALL.iter().all(|status| status.to_string().parse() == Ok(*status)));
        assert!("sent".parse::<Status>().is_err());
    }

    proptest! {
        #[test]
        fn the_rank_never_falls_and_the_last_word_is_the_highest_heard(inputs in inputs()) {
            let mut state = State::default();
            for input in &inputs {
                let next = state.step(*input).state;
                prop_assert!(next.status.rank() >= state.status.rank());
                state = next;
            }
            let heard = |wanted: &[Input]| inputs.iter().any(|input| wanted.contains(input));
            let highest = if heard(&[Input::ReportedComplaint]) { 3 }
                else if heard(&[Input::AttemptBounced, Input::ReportedBounced]) { 2 }
                else { u8::from(heard(&[Input::Delivered])) };
            prop_assert_eq!(state.status.rank(), highest);
        }

        #[test]
        fn a_report_heard_twice_changes_nothing(inputs in inputs(), report in proptest::sample::select(vec![
            Input::Delivered, Input::AttemptBounced, Input::ReportedBounced, Input::ReportedDelayed, Input::ReportedComplaint,
            Input::Unsubscribed, Input::GaveUp, Input::RecipientSuppressed(Wire::Idle),
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
        fn attempts_stop_exactly_when_the_message_no_longer_waits(inputs in inputs()) {
            let (state, effects) = walk(&inputs);
            let stops = effects.iter().filter(|effect| **effect == Effect::StopAttempts).count();
            prop_assert_eq!(stops, usize::from(!state.status.is_waiting()));
        }
    }
}
