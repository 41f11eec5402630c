//! One idempotency key of one account (contract 3).
//!
//! ```text
//!            Requested: process            Accepted: bound for 24 hours
//!   free --------------------> in progress ----------------------------> bound -- same body: replay
//!    ^                          |      |                                   |   \- other body: 409
//!    '------- Refused ----------'      '- Requested: 409, Retry-After 1    |
//!    '------------------------- 24 hours --------------------------------'
//! ```
//!
//! Bindings are rows, written in the transaction of their message. Keys in progress are kept only in memory, so a crash
//! releases them. Bodies are the same if the hashes of the parsed bodies are equal (contract 3).

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Next;
use super::service_clock::ServiceTime;
use crate::base::time::Timestamp;

/// The time for which a key stays bound (contract 3).
pub const LIFETIME: Duration = Duration::from_secs(24 * 3600);

/// Maximum time by which a doubtful wall clock that is ahead can extend a binding.
const BELIEVED_MAX: Duration = Duration::from_secs(400 * 24 * 3600);

/// Returns the time at which a key bound at `time` is free again. A doubtful wall clock may turn out to be right, so
/// the key stays bound for 24 hours by that clock too.
pub fn expires_at(time: &ServiceTime) -> Timestamp {
    let bound_at = if time.is_doubtful() { time.now.max(time.wall.min(time.now + BELIEVED_MAX)) } else { time.now };
    bound_at + LIFETIME
}

/// The request and answer that a key is bound to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Binding {
    /// Hash of the accepted body.
    pub body_hash: [u8; 32],
    /// Time from which the key is free.
    pub expires_at: Timestamp,
}

/// The state of one key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum State {
    /// The key was never used, was released, or expired after 24 hours.
    #[default]
    Free,
    /// The key's first request is in progress.
    InProgress,
    /// The key's first request was accepted.
    Bound(Binding),
}

/// An input of the machine: a fact that has happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Input {
    /// A valid request with the key arrived.
    Requested {
        /// Hash of its body.
        body_hash: [u8; 32],
    },
    /// The request in progress ended with a 202.
    Accepted {
        /// Hash of its body.
        body_hash: [u8; 32],
    },
    /// The request in progress ended in any other way.
    Refused,
}

/// An effect that the operation carries out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Process the request.
    Process,
    /// Answer with the first 202 again and `Idempotent-Replay: true`; send nothing.
    Replay,
    /// Answer 409 `idempotency_mismatch`.
    Mismatch,
    /// Answer 409 `idempotency_in_progress` with `Retry-After: 1`.
    InProgress,
}

impl State {
    /// Returns the state at `now` for a stored binding and the key's progress.
    pub fn of(binding: Option<Binding>, progress: Progress, now: Timestamp) -> Self {
        match (binding, progress) {
            (Some(binding), _) if now < binding.expires_at => Self::Bound(binding),
            (_, Progress::Running) => Self::InProgress,
            (_, Progress::Idle) => Self::Free,
        }
    }

    /// Returns the next state and its effects after `input` at `now`.
    #[must_use]
    pub fn step(self, input: Input, now: Timestamp) -> Next<Self, Effect> {
        match (self, input) {
            (Self::Bound(binding), _) if now >= binding.expires_at => Self::Free.step(input, now),
            (Self::Free, Input::Requested { .. }) => Next::new(Self::InProgress, [Effect::Process]),
            (Self::InProgress, Input::Requested { .. }) => Next::new(self, [Effect::InProgress]),
            (Self::Bound(binding), Input::Requested { body_hash }) if body_hash == binding.body_hash => {
                Next::new(self, [Effect::Replay])
            }
            (Self::Bound(_), Input::Requested { .. }) => Next::new(self, [Effect::Mismatch]),
            (Self::Free | Self::InProgress, Input::Accepted { body_hash }) => {
                Next::new(Self::Bound(Binding { body_hash, expires_at: now + LIFETIME }), [])
            }
            (Self::Free | Self::InProgress, Input::Refused) => Next::new(Self::Free, []),
            // Only its expiry releases a bound key.
            (Self::Bound(_), Input::Accepted { .. } | Input::Refused) => Next::unchanged(self),
        }
    }
}

/// Whether a request with the key is in progress, according to memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// No request is in progress.
    Idle,
    /// A request is in progress.
    Running,
}

/// Returns the answer to a request with this `body_hash` at `now`: the effect of [`Input::Requested`].
pub fn judge(binding: Option<Binding>, progress: Progress, body_hash: [u8; 32], now: Timestamp) -> Effect {
    match State::of(binding, progress, now) {
        State::Free => Effect::Process,
        State::InProgress => Effect::InProgress,
        State::Bound(binding) if binding.body_hash == body_hash => Effect::Replay,
        State::Bound(_) => Effect::Mismatch,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);

    #[test]
    fn a_key_bound_during_a_clock_doubt_stays_bound_for_24_hours_by_both_clocks() {
        let (day, forty_days) = (LIFETIME, 40 * LIFETIME);
        let at = |wall, doubt| expires_at(&ServiceTime { wall, doubt, ..NOW.into() });
        assert_eq!(at(NOW + day, None), NOW + day, "a trusted wall clock is followed, and may be ahead for an instant");
        assert_eq!(at(NOW + forty_days, Some(1)), NOW + forty_days + day);
        assert_eq!(at(NOW - forty_days, Some(1)), NOW + day);
        assert_eq!(at(NOW + 100 * forty_days, Some(1)), NOW + 10 * forty_days + day);
    }

    #[test]
    fn a_refused_request_releases_the_key_and_an_accepted_one_binds_it_for_24_hours() {
        let running = State::Free.step(Input::Requested { body_hash: [1; 32] }, NOW).state;
        assert_eq!(running.step(Input::Refused, NOW).state, State::Free);
        let bound = running.step(Input::Accepted { body_hash: [1; 32] }, NOW).state;
        let at = |millis| NOW + Duration::from_millis(millis);
        let again = |state: State, body: u8, at| state.step(Input::Requested { body_hash: [body; 32] }, at).effects;
        assert_eq!(again(bound, 1, at(86_399_999)), [Effect::Replay]);
        assert_eq!(again(bound, 2, at(86_399_999)), [Effect::Mismatch]);
        assert_eq!(again(bound, 2, at(86_400_000)), [Effect::Process]);
        assert_eq!(bound.step(Input::Refused, NOW), Next::unchanged(bound));
    }

    proptest! {
        #[test]
        fn judge_returns_the_effect_of_the_step(bound: Option<(bool, i32)>, running: bool, late_ms in 0_u64..200_000_000) {
            let now = NOW + Duration::from_millis(late_ms);
            let binding = bound.map(|(same, shift)| Binding {
                body_hash: [u8::from(same); 32],
                expires_at: now + Duration::from_millis(u64::from(shift.unsigned_abs())) - Duration::from_secs(1_000_000),
            });
            let progress = if running { Progress::Running } else { Progress::Idle };
            let step = State::of(binding, progress, now).step(Input::Requested { body_hash: [1; 32] }, now);
            prop_assert_eq!(step.effects, [judge(binding, progress, [1; 32], now)]);
        }

        #[test]
        fn a_request_is_processed_again_only_after_a_refusal_or_24_hours(
            steps in proptest::collection::vec((0_u8..3, 0_u8..2, 0_u64..30_000_000), 0..60),
        ) {
            let (mut state, mut now, mut accepted_at) = (State::Free, NOW, None::<Timestamp>);
            for (kind, body, gap) in steps {
                now = now + Duration::from_millis(gap);
                let body_hash = [body; 32];
                let before = state;
                let input = match kind { 0 => Input::Requested { body_hash }, 1 => Input::Accepted { body_hash }, _ => Input::Refused };
                let next = state.step(input, now);
                if next.effects == [Effect::Process] {
                    prop_assert!(accepted_at.is_none_or(|at| now.since(at) >= LIFETIME));
                }
                state = next.state;
                if state != before && matches!(state, State::Bound(_)) { accepted_at = Some(now); }
            }
        }
    }
}
