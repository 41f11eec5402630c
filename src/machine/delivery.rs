//! One webhook delivery: one event for one endpoint (contract 5).
//!
//! ```text
//!             AttemptFailed 1 to 6: due = its end + delay
//!                 .-----.
//!                 v     |
//!  (created) --> pending ------- Acknowledged --------------------------> delivered
//!                   |
//!                   '----------- AttemptFailed 7, EndpointDeleted, ----> failed
//!                                Outlived, CameDue more than 30 days old
//! ```
//!
//! `held` is not a state. A pending delivery is shown as held while its endpoint is not enabled, so that disabling and
//! enabling don't write a million rows. A crash between answer and commit repeats the same attempt number.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Next;
use super::service_clock::ServiceTime;
use crate::base::time::Timestamp;

/// Maximum number of attempts of one delivery (contract 5).
pub const ATTEMPTS_MAX: u8 = 7;
/// Maximum age of a delivery. An older held delivery is not sent any more (contract 5).
pub const AGE_MAX: Duration = Duration::from_secs(30 * 24 * 3600);

/// Seconds between the end of attempt 1, 2, ... and the start of the next (contract 5). Exact, without jitter.
const DELAY_SECS: [u64; 6] = [60, 5 * 60, 30 * 60, 2 * 3600, 6 * 3600, 24 * 3600];

/// Stage of a delivery.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Stage {
    /// Another attempt is due.
    Pending {
        /// Due time of the attempt. No attempt starts while the endpoint is not enabled.
        due: Timestamp,
    },
    /// The endpoint answered with a 2xx.
    Delivered,
    /// There are no more attempts.
    Failed,
}

/// The state of one delivery.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct State {
    /// Creation time, from which the age counts.
    pub created_at: Timestamp,
    /// Number of attempts with a recorded outcome, 0 to 7.
    pub attempts: u8,
    /// Stage of the delivery.
    pub stage: Stage,
}

/// The status as the API shows it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// The delivery waits for its next attempt.
    Pending,
    /// The delivery waits until its endpoint is enabled.
    Held,
    /// Answered with a 2xx.
    Delivered,
    /// There are no more attempts.
    Failed,
}

impl Status {
    /// All statuses, in the order of a delivery's life.
    pub const ALL: [Self; 4] = [Self::Pending, Self::Held, Self::Delivered, Self::Failed];

    /// Returns the name used in every interface.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Held => "held",
            Self::Delivered => "delivered",
            Self::Failed => "failed",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An input of the machine: a fact that has happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Input {
    /// The timer fired, and the endpoint is enabled and below its limit of attempts.
    CameDue,
    /// A 2xx arrived within the 10 seconds.
    Acknowledged,
    /// The attempt ended in any other way.
    AttemptFailed {
        /// End of the attempt, from which the next delay is measured.
        ended_at: Timestamp,
    },
    /// The endpoint was deleted.
    EndpointDeleted,
    /// The delivery is more than 30 days old.
    Outlived,
}

/// An effect that the operation carries out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Send the request with this attempt number, 1 to 7.
    StartAttempt(u8),
    /// Arm the timer of the next attempt.
    Schedule(Timestamp),
    /// Disarm the timer: the delivery has ended.
    Settle,
}

impl State {
    /// Creates a delivery at `now`, due at once.
    pub const fn new(now: Timestamp) -> Self {
        Self { created_at: now, attempts: 0, stage: Stage::Pending { due: now } }
    }

    /// Returns the status to show: a pending delivery is held if its endpoint is not enabled.
    pub const fn status(&self, endpoint_enabled: bool) -> Status {
        match self.stage {
            Stage::Pending { .. } if endpoint_enabled => Status::Pending,
            Stage::Pending { .. } => Status::Held,
            Stage::Delivered => Status::Delivered,
            Stage::Failed => Status::Failed,
        }
    }

    /// Returns the due time of the next attempt, at least `now`: overdue attempts start when the endpoint is enabled.
    /// `None` once the delivery has ended.
    pub fn due(&self, now: Timestamp) -> Option<Timestamp> {
        match self.stage {
            Stage::Pending { due } => Some(due.max(now)),
            Stage::Delivered | Stage::Failed => None,
        }
    }

    /// Returns the due time in terms of `time`. Deadlines may be frozen, and the delivery's age with them.
    pub fn due_at(&self, time: &ServiceTime) -> Timestamp {
        if time.expiry.since(self.created_at) > AGE_MAX { time.now } else { time.now.min(self.created_at + AGE_MAX) }
    }

    /// Returns the next state and its effects after `input` at `now`.
    #[must_use]
    pub fn step(self, input: Input, now: Timestamp) -> Next<Self, Effect> {
        let Stage::Pending { due } = self.stage else {
            return Next::unchanged(self);
        };
        match input {
            Input::CameDue if now.since(self.created_at) > AGE_MAX => self.settle(Stage::Failed),
            // The clock stepped back after the timer was read.
            Input::CameDue if now < due => Next::new(self, [Effect::Schedule(due)]),
            Input::CameDue => Next::new(self, [Effect::StartAttempt(self.attempts + 1)]),
            Input::Acknowledged => Self { attempts: self.attempts + 1, ..self }.settle(Stage::Delivered),
            Input::AttemptFailed { ended_at } => Self { attempts: self.attempts + 1, ..self }.failed(ended_at),
            Input::EndpointDeleted | Input::Outlived => self.settle(Stage::Failed),
        }
    }

    fn failed(self, ended_at: Timestamp) -> Next<Self, Effect> {
        match DELAY_SECS.get(usize::from(self.attempts) - 1) {
            Some(secs) => {
                let due = ended_at + Duration::from_secs(*secs);
                Next::new(Self { stage: Stage::Pending { due }, ..self }, [Effect::Schedule(due)])
            }
            None => self.settle(Stage::Failed),
        }
    }

    fn settle(self, stage: Stage) -> Next<Self, Effect> {
        Next::new(Self { stage, ..self }, [Effect::Settle])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);

    #[test]
    fn attempts_follow_the_specified_delays_and_the_seventh_failure_fails_the_delivery() {
        let mut state = State::new(START);
        let mut now = START;
        let mut waits = Vec::new();
        while let Some(due) = state.due(now) {
            waits.push(due.since(now).as_secs());
            now = due;
            assert_eq!(state.step(Input::CameDue, now).effects, [Effect::StartAttempt(state.attempts + 1)]);
            state = state.step(Input::AttemptFailed { ended_at: now }, now).state;
        }
        assert_eq!(waits, [0, 60, 300, 1800, 7200, 21_600, 86_400]);
        assert_eq!((state.attempts, state.status(true)), (7, Status::Failed));
        assert_eq!(state.step(Input::Acknowledged, now), Next::unchanged(state));
    }

    #[test]
    fn the_delay_counts_from_the_end_of_the_attempt_not_from_its_recording() {
        let ended_at = START + Duration::from_secs(9);
        let next = State::new(START).step(Input::AttemptFailed { ended_at }, START + Duration::from_secs(30));
        assert_eq!(next.effects, [Effect::Schedule(START + Duration::from_secs(69))]);
    }

    #[test]
    fn a_held_delivery_keeps_its_attempts_and_is_due_at_its_time_but_not_in_the_past() {
        let state = State::new(START).step(Input::AttemptFailed { ended_at: START }, START).state;
        assert_eq!(state.status(false), Status::Held);
        assert_eq!(state.due(START), Some(START + Duration::from_secs(60)));
        let later = START + Duration::from_secs(86_400);
        assert_eq!(state.due(later), Some(later));
        assert_eq!(state.step(Input::CameDue, later).effects, [Effect::StartAttempt(2)]);
        let old = START + AGE_MAX;
        assert_eq!(state.step(Input::CameDue, old).effects, [Effect::StartAttempt(2)]);
        assert_eq!(state.step(Input::CameDue, old + Duration::from_millis(1)).state.stage, Stage::Failed);
    }

    fn input() -> impl Strategy<Value = Input> {
        prop_oneof![
            3 => Just(Input::CameDue),
            1 => Just(Input::Acknowledged),
            9 => (0_u64..100_000_000).prop_map(|ms| Input::AttemptFailed { ended_at: START + Duration::from_millis(ms) }),
            1 => Just(Input::EndpointDeleted),
            1 => Just(Input::Outlived),
        ]
    }

    proptest! {
        #[test]
        fn an_ended_delivery_never_changes_and_attempt_numbers_stop_at_seven(
            steps in proptest::collection::vec((input(), 0_u64..3_000_000_000), 0..30),
        ) {
            let mut state = State::new(START);
            for (input, ms) in steps {
                let next = state.step(input, START + Duration::from_millis(ms));
                if state.due(START).is_none() {
                    prop_assert_eq!(&next, &Next::unchanged(state));
                }
                for effect in &next.effects {
                    if let Effect::StartAttempt(number) = effect {
                        prop_assert!((1..=ATTEMPTS_MAX).contains(number));
                    }
                }
                prop_assert_eq!(next.effects.contains(&Effect::Settle), next.state.due(START).is_none() && state.due(START).is_some());
                state = next.state;
                prop_assert!(state.attempts <= ATTEMPTS_MAX);
            }
        }
    }
}
