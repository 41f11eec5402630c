//! Floor 2: pure transitions, one machine in each file. State and input go in, state and effects come out.
//!
//! A machine reads no clock, rolls no dice, logs nothing and waits for nothing. Inputs are facts that have happened;
//! effects are what the Op that asked must write. Every machine is total: an input that makes no sense in a state
//! leaves it as it was. All pairs are printed to `tests/golden/machines.txt`, to be laid beside section 3 of the
//! specification.

pub mod alert;
pub mod budget;
pub mod checklist;
pub mod delivery;
pub mod dkim_rotation;
pub mod dmarc_advice;
pub mod endpoint;
pub mod fair_permits;
pub mod fair_queue;
#[cfg(test)]
mod golden;
pub mod idempotency;
pub mod notice;
pub mod pace;
pub mod provider;
pub mod quota;
pub mod rate;
pub mod renewal;
pub mod replica_lease;
pub mod reputation;
pub mod retention;
pub mod retry;
pub mod service_clock;
pub mod shares;
pub mod throttle;
pub mod throttle_table;
pub mod transfer;
pub mod verification;

/// Result of a step: the next state and its effects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Next<S, E> {
    /// The state to save.
    pub state: S,
    /// Effects for the operation to carry out, in this order. Empty if nothing changed.
    pub effects: Vec<E>,
}

impl<S, E> Next<S, E> {
    /// The state `state`, and `effects`.
    pub fn new(state: S, effects: impl Into<Vec<E>>) -> Self {
        Self { state, effects: effects.into() }
    }

    /// The state as it was, and nothing to do.
    pub const fn unchanged(state: S) -> Self {
        Self { state, effects: Vec::new() }
    }
}
