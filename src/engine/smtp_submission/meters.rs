//! Counts of SMTP submission for monitoring.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::base::meter::{Counter, Distribution, Histogram};
use crate::smtp::server::SubmissionStage;

/// The result of a login, as monitoring names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoginEnd {
    /// The key is good.
    Ok,
    /// The key is not.
    Refused,
    /// The address had too many failures: the session ended before the key was judged, or with it.
    Throttled,
}

impl LoginEnd {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Ok, Self::Refused, Self::Throttled];

    /// The name in monitoring.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Refused => "refused",
            Self::Throttled => "throttled",
        }
    }
}

/// The meters of SMTP submission. Durations are in microseconds.
#[derive(Debug)]
pub struct SubmissionMeters {
    /// Connections that were accepted.
    pub sessions_begun: Counter,
    /// Connections that have ended.
    pub sessions_ended: Counter,
    logins: [Counter; LoginEnd::ALL.len()],
    /// Messages accepted, one for each recipient.
    pub messages: Counter,
    /// Codes are few: the table of the contract has about twenty.
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
    /// Counts a login, as the listener answered it.
    pub fn login(&self, end: LoginEnd) {
        self.logins[end as usize].count();
    }

    pub(super) fn refused(&self, stage: SubmissionStage, code: u16) {
        *self.refusals.lock().unwrap_or_else(PoisonError::into_inner).entry((stage, code)).or_default() += 1;
    }

    /// Counts the time from the final dot to its answer.
    pub(super) fn answered(&self, after: Duration) {
        self.duration.observe_duration(after);
    }

    /// Logins by their end.
    pub fn logins(&self) -> impl Iterator<Item = (&'static str, u64)> {
        LoginEnd::ALL.into_iter().map(LoginEnd::as_str).zip(self.logins.iter().map(Counter::read))
    }

    /// Refusals by stage and code.
    pub fn refusals(&self) -> Vec<(SubmissionStage, u16, u64)> {
        let refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        refusals.iter().map(|((stage, code), count)| (*stage, *code, *count)).collect()
    }

    /// Times from the final dot to its answer.
    pub fn duration(&self) -> Distribution {
        self.duration.read()
    }
}
