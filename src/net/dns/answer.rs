//! Result of a DNS query: an answer, its trust, and its lifetime. A server failure and a query that was never sent are
//! kept apart.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::fact::RecordData;
use super::validation::Trust;
use crate::engine::ports::{LookupFailure, RouteFailure};

/// Time for which a server failure is cached (contract 8).
const FAILURE_TTL: Duration = Duration::from_secs(10);

/// Answer to a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    /// Records; at least one.
    Found(Arc<[RecordData]>),
    /// The name exists, with no record of this kind.
    NoData,
    /// The name does not exist (NXDOMAIN).
    NoName,
    /// The answer is unknown. Callers must not conclude anything from it.
    Unknown(Unknown),
}

/// Reasons for an unknown answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Unknown {
    /// The servers failed: SERVFAIL, refusal, timeout.
    Failed(Arc<str>),
    /// The servers were not asked, since too many queries are in flight. This says nothing about the name.
    Unasked,
}

impl From<Unknown> for RouteFailure {
    fn from(unknown: Unknown) -> Self {
        match unknown {
            Unknown::Failed(why) => Self::Temporary(why.to_string()),
            Unknown::Unasked => Self::Unasked,
        }
    }
}

impl From<Unknown> for LookupFailure {
    fn from(unknown: Unknown) -> Self {
        match unknown {
            Unknown::Failed(why) => Self::Temporary(why.to_string()),
            Unknown::Unasked => Self::Unasked,
        }
    }
}

impl LookupResult {
    /// Returns the memory use in bytes.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>()
            + match &self.answer {
                Answer::Found(facts) => facts.iter().map(RecordData::bytes).sum(),
                Answer::Unknown(Unknown::Failed(why)) => why.len(),
                Answer::NoData | Answer::NoName | Answer::Unknown(Unknown::Unasked) => 0,
            }
    }
}

/// An answer, and whether DNSSEC validated it. A failed one is insecure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LookupResult {
    pub(super) answer: Answer,
    pub(super) trust: Trust,
}

impl LookupResult {
    pub(super) const fn insecure(answer: Answer) -> Self {
        Self { answer, trust: Trust::Insecure }
    }
}

/// An answer and its lifetime.
pub(super) struct TimedResult {
    pub(super) result: LookupResult,
    pub(super) ttl: Duration,
}

impl TimedResult {
    pub(super) fn failed(why: impl fmt::Display) -> Self {
        let unknown = Unknown::Failed(why.to_string().into());
        Self { result: LookupResult::insecure(Answer::Unknown(unknown)), ttl: FAILURE_TTL }
    }

    /// Returns the answer for a query that was not sent. It is not cached, so the next caller tries again.
    pub(super) const fn unasked() -> Self {
        Self { result: LookupResult::insecure(Answer::Unknown(Unknown::Unasked)), ttl: Duration::ZERO }
    }

    pub(super) const fn is_failed(&self) -> bool {
        matches!(self.result.answer, Answer::Unknown(_))
    }
}
