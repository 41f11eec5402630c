//! The state of a webhook endpoint: enabled, disabled by its owner, or disabled after ten consecutive failures
//! (contract 5).
//!
//! ```text
//!              AttemptFailed 1 to 9: count + 1; AttemptSucceeded: count = 0
//!                  .-----.
//!                  v     |        AttemptFailed, the tenth
//!  (created) --> enabled -----------------------------------> disabled by failures (disabled_at)
//!                  |  ^ ^                                              |
//!     DisabledByHand  | '------------- Enabled: count = 0 -------------'
//!                  v  |
//!           disabled by hand ... Enabled: count = 0
//! ```
//!
//! While the endpoint is disabled, outcomes of attempts in flight do not change its state: a late 2xx completes its
//! delivery and does not enable the endpoint. Deliveries of type `test` never reach this machine.

use serde::{Deserialize, Serialize};

use super::Next;
use crate::base::time::Timestamp;

/// Number of consecutive failures that disable an endpoint (contract 5).
pub const FAILURES_MAX: u8 = 10;
/// Maximum number of concurrent attempts of one endpoint (contract 5).
pub const IN_FLIGHT_MAX: usize = 8;

// Contract 5 requires `in flight + count` below 10 for an endpoint that has failures or is unproven. It exempts a
// proven endpoint without failures. With at most 8 concurrent attempts the exemption has no effect, so one rule serves
// all endpoints.
const _: () = assert!(IN_FLIGHT_MAX <= FAILURES_MAX as usize);

/// The state of one endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum State {
    /// Attempts may start.
    Enabled {
        /// Failed attempts since the last success, 0 to 9.
        failures: u8,
    },
    /// The owner disabled the endpoint.
    DisabledByHand {
        /// Number of consecutive failures at that time.
        failures: u8,
    },
    /// The service disabled the endpoint.
    DisabledByFailures {
        /// The record's `disabled_at`.
        at: Timestamp,
    },
}

/// An input of the machine: a fact that has happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Input {
    /// An attempt got a 2xx within the 10 seconds.
    AttemptSucceeded,
    /// An attempt ended in any other way.
    AttemptFailed,
    /// PATCH with `enabled: true`, or the panel's Reactivate.
    Enabled,
    /// PATCH with `enabled: false`.
    DisabledByHand,
}

/// An effect that the operation carries out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// No attempt may start; pending deliveries are now shown as held.
    Hold,
    /// Held deliveries become due at their time, at least now, oldest first.
    Release,
}

impl Default for State {
    fn default() -> Self {
        Self::Enabled { failures: 0 }
    }
}

impl State {
    /// Returns the record's `enabled`.
    pub const fn is_enabled(&self) -> bool {
        matches!(self, Self::Enabled { .. })
    }

    /// Returns the record's `disabled_at`, which only the service sets.
    pub const fn disabled_at(&self) -> Option<Timestamp> {
        match self {
            Self::Enabled { .. } | Self::DisabledByHand { .. } => None,
            Self::DisabledByFailures { at } => Some(*at),
        }
    }

    /// Returns the record's `disabled_reason`, in the panel's words (contract 5).
    pub const fn disabled_reason(&self) -> Option<&'static str> {
        match self {
            Self::Enabled { .. } | Self::DisabledByHand { .. } => None,
            Self::DisabledByFailures { .. } => Some("Disabled after repeated failures"),
        }
    }

    /// Returns the record's `consecutive_failures`.
    pub const fn consecutive_failures(&self) -> u8 {
        match self {
            Self::Enabled { failures } | Self::DisabledByHand { failures } => *failures,
            Self::DisabledByFailures { .. } => FAILURES_MAX,
        }
    }

    /// Returns whether another attempt may start in addition to `in_flight` others, so that a dead endpoint gets
    /// exactly ten requests.
    pub const fn may_start(&self, in_flight: usize) -> bool {
        match self {
            Self::Enabled { failures } => {
                in_flight < IN_FLIGHT_MAX && in_flight + (*failures as usize) < FAILURES_MAX as usize
            }
            Self::DisabledByHand { .. } | Self::DisabledByFailures { .. } => false,
        }
    }

    /// Returns the next state and its effects after `input` at `now`. Outcomes are applied in the order in which they
    /// are recorded.
    #[must_use]
    pub fn step(self, input: Input, now: Timestamp) -> Next<Self, Effect> {
        match (self, input) {
            (Self::Enabled { failures }, Input::AttemptFailed) if failures >= FAILURES_MAX - 1 => {
                Next::new(Self::DisabledByFailures { at: now }, [Effect::Hold])
            }
            (Self::Enabled { failures }, Input::AttemptFailed) => {
                Next::new(Self::Enabled { failures: failures + 1 }, [])
            }
            (Self::Enabled { .. }, Input::AttemptSucceeded) => Next::new(Self::default(), []),
            (Self::Enabled { failures }, Input::DisabledByHand) => {
                Next::new(Self::DisabledByHand { failures }, [Effect::Hold])
            }
            (Self::DisabledByHand { .. } | Self::DisabledByFailures { .. }, Input::Enabled) => {
                Next::new(Self::default(), [Effect::Release])
            }
            (Self::Enabled { .. }, Input::Enabled)
            | (
                Self::DisabledByHand { .. } | Self::DisabledByFailures { .. },
                Input::AttemptSucceeded | Input::AttemptFailed | Input::DisabledByHand,
            ) => Next::unchanged(self),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);

    fn failed(times: u8) -> State {
        (0..times).fold(State::default(), |state, _| state.step(Input::AttemptFailed, NOW).state)
    }

    #[test]
    fn ten_consecutive_failures_disable_and_a_success_resets_the_count() {
        assert_eq!(failed(9).consecutive_failures(), 9);
        let tenth = failed(9).step(Input::AttemptFailed, NOW);
        assert_eq!((tenth.state.disabled_at(), tenth.effects), (Some(NOW), vec![Effect::Hold]));
        let saved = failed(9).step(Input::AttemptSucceeded, NOW).state.step(Input::AttemptFailed, NOW).state;
        assert_eq!(saved, State::Enabled { failures: 1 });
    }

    #[test]
    fn a_late_success_does_not_enable_and_enabling_resets_the_count() {
        let disabled = failed(10);
        assert_eq!(disabled.step(Input::AttemptSucceeded, NOW), Next::unchanged(disabled));
        assert_eq!(disabled.step(Input::DisabledByHand, NOW), Next::unchanged(disabled));
        let enabled = disabled.step(Input::Enabled, NOW);
        assert_eq!(enabled, Next::new(State::default(), [Effect::Release]));
        assert_eq!(failed(3).step(Input::Enabled, NOW), Next::unchanged(failed(3)));
    }

    #[test]
    fn disabling_manually_leaves_disabled_at_empty() {
        let by_hand = failed(4).step(Input::DisabledByHand, NOW).state;
        assert_eq!((by_hand.is_enabled(), by_hand.disabled_at(), by_hand.disabled_reason()), (false, None, None));
        assert!(!by_hand.may_start(0));
    }

    proptest! {
        /// Starts attempts whenever allowed, and ends them in random order.
        #[test]
        fn a_dead_endpoint_gets_exactly_ten_requests(starts_first in proptest::collection::vec(any::<bool>(), 0..200)) {
            let (mut state, mut in_flight, mut requests) = (State::default(), 0_usize, 0);
            for start in starts_first.into_iter().chain(std::iter::repeat_n(true, 20)).chain(std::iter::repeat_n(false, 20)) {
                if start && state.may_start(in_flight) {
                    in_flight += 1;
                    requests += 1;
                } else if in_flight > 0 {
                    in_flight -= 1;
                    state = state.step(Input::AttemptFailed, NOW).state;
                }
                prop_assert!(in_flight <= IN_FLIGHT_MAX);
            }
            while state.is_enabled() {
                if state.may_start(0) && in_flight == 0 { requests += 1; } else { in_flight -= 1; }
                state = state.step(Input::AttemptFailed, NOW).state;
            }
            prop_assert_eq!((requests, in_flight), (10, 0));
        }

        #[test]
        fn the_count_is_the_number_of_failures_since_the_last_success(outcomes in proptest::collection::vec(any::<bool>(), 0..60)) {
            let (mut state, mut run) = (State::default(), 0_u8);
            for succeeded in outcomes {
                let input = if succeeded { Input::AttemptSucceeded } else { Input::AttemptFailed };
                state = state.step(input, NOW).state;
                run = if run >= FAILURES_MAX { run } else if succeeded { 0 } else { run + 1 };
                prop_assert_eq!(state.consecutive_failures(), run);
                prop_assert_eq!(state.is_enabled(), run < FAILURES_MAX);
            }
        }
    }
}
