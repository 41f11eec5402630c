//! Metrics of SMTP submission.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::base::meter::{Counter, Distribution, Histogram};
use crate::smtp::server::SubmissionStage;

/// The result of a login, under its name in metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoginEnd {
    /// The key is valid.
    Ok,
    /// The key is invalid.
    Refused,
    /// The address had too many failures: the session ended before the key was checked, or together with the check.
    Throttled,
}

impl LoginEnd {
    /// All results.
    pub const ALL: [Self; 3] = [Self::Ok, Self::Refused, Self::Throttled];

    /// Returns the name in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Refused => "refused",
            Self::Throttled => "throttled",
        }
    }
}

/// The metrics of SMTP submission. Durations are in microseconds.
#[derive(Debug)]
pub struct SubmissionMeters {
    /// Accepted connections.
    pub sessions_begun: Counter,
    /// Ended connections.
    pub sessions_ended: Counter,
    logins: [Counter; LoginEnd::ALL.len()],
    /// Accepted messages, one for each recipient.
    pub messages: Counter,
    /// There are few codes: the contract's table has about twenty.
    refusals: Mutex<BTreeMap<(SubmissionStage, u16), u64>>,
    duration: Histogram,
}

impl Default for SubmissionMeters {
    fn default() -> Self {
        Self {
            sessions_begun: Counter::default(),
            sessions_ended: Counter::default(),
            logins: Default::default(),
            messages: Counter::default(),
            refusals: Mutex::default(),
            duration: Histogram::of_durations(),
        }
    }
}

impl SubmissionMeters {
    /// Counts a login by the listener's answer to it.
    pub fn login(&self, end: LoginEnd) {
        self.logins[end as usize].count();
    }

    pub(super) fn refused(&self, stage: SubmissionStage, code: u16) {
        *self.refusals.lock().unwrap_or_else(PoisonError::into_inner).entry((stage, code)).or_default() += 1;
    }

    /// Records the time from the final dot to its answer.
    pub(super) fn answered(&self, after: Duration) {
        self.duration.observe_duration(after);
    }

    /// Returns the logins by result.
    pub fn logins(&self) -> impl Iterator<Item = (&'static str, u64)> {
        LoginEnd::ALL.into_iter().map(LoginEnd::as_str).zip(self.logins.iter().map(Counter::read))
    }

    /// Returns the refusals by stage and code.
    pub fn refusals(&self) -> Vec<(SubmissionStage, u16, u64)> {
        let refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        refusals.iter().map(|((stage, code), count)| (*stage, *code, *count)).collect()
    }

    /// Returns the times from the final dot to its answer.
    pub fn duration(&self) -> Distribution {
        self.duration.read()
    }
}
