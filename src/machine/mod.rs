//! Floor 2: pure state machines, one per file. State and input go in, state and effects come out.
//!
//! A machine reads no clock, uses no randomness, logs nothing and waits for nothing. Inputs are past facts; effects are
//! the writes for the calling operation. Every machine is total: an input that makes no sense in a state leaves the
//! state unchanged. All pairs are printed to `tests/golden/machines.txt`, for comparison with
//! section 3 of the contract.

pub mod alert;
pub mod budget;
pub mod checklist;
pub mod delivery;
pub mod destination;
pub mod dkim_rotation;
pub mod dmarc_advice;
pub mod endpoint;
pub mod fair_permits;
pub mod fair_queue;
#[cfg(test)]
mod golden;
pub mod idempotency;
pub mod lease_table;
pub mod notice;
pub mod pace;
pub mod paused_messages;
pub mod provider;
pub mod quota;
pub mod rate;
pub mod relay_table;
pub mod renewal;
pub mod replica_lease;
pub mod reputation;
pub mod retention;
pub mod retry;
pub mod scheduler;
pub mod service_clock;
pub mod shares;
pub mod silent_resets;
pub mod throttle;
pub mod throttle_table;
pub mod transfer;
pub mod unassigned_messages;
pub mod verification;
pub mod warm_up;

/// Result of a step: the next state and its effects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Next<S, E> {
    /// The state to save.
    pub state: S,
    /// The effects for the operation to carry out, in this order. Empty if nothing changed.
    pub effects: Vec<E>,
}

impl<S, E> Next<S, E> {
    /// Returns `state` and `effects`.
    pub fn new(state: S, effects: impl Into<Vec<E>>) -> Self {
        Self { state, effects: effects.into() }
    }

    /// Returns the unchanged state without effects.
    pub const fn unchanged(state: S) -> Self {
        Self { state, effects: Vec::new() }
    }
}
