//! Result of a query in our own terms: an answer, its trust, and its lifetime. There are two kinds of no answer, which
//! are never confused: the servers failed, or none was asked.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::fact::Fact;
use super::validation::Trust;
use crate::engine::ports::{LookupFailure, RouteFailure};

/// A server that fails is left alone for so long (contract 8).
const FAILURE_TTL: Duration = Duration::from_secs(10);

/// Answer of the servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    /// These records; at least one.
    Found(Arc<[Fact]>),
    /// The name exists, with no record of this kind.
    NoData,
    /// The name does not exist (NXDOMAIN).
    NoName,
    /// Nothing is known, and nothing may be concluded from it.
    Unknown(Unknown),
}

/// Why nothing is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Unknown {
    /// The servers do not say: SERVFAIL, refusal, time-out.
    Failed(Arc<str>),
    /// They were not asked, for too many questions are on their way: it is no word about the name.
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

impl Told {
    /// The memory that it takes.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>()
            + match &self.answer {
                Answer::Found(facts) => facts.iter().map(Fact::bytes).sum(),
                Answer::Unknown(Unknown::Failed(why)) => why.len(),
                Answer::NoData | Answer::NoName | Answer::Unknown(Unknown::Unasked) => 0,
            }
    }
}

/// An answer, and whether DNSSEC vouches for it. One that failed is insecure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) answer: Answer,
    pub(super) trust: Trust,
}

impl Told {
    pub(super) const fn insecure(answer: Answer) -> Self {
        Self { answer, trust: Trust::Insecure }
    }
}

/// An answer and its lifetime.
pub(super) struct Answered {
    pub(super) told: Told,
    pub(super) ttl: Duration,
}

impl Answered {
    pub(super) fn failed(why: impl fmt::Display) -> Self {
        let unknown = Unknown::Failed(why.to_string().into());
        Self { told: Told::insecure(Answer::Unknown(unknown)), ttl: FAILURE_TTL }
    }

    /// Not kept: whoever asks next may find a place.
    pub(super) const fn unasked() -> Self {
        Self { told: Told::insecure(Answer::Unknown(Unknown::Unasked)), ttl: Duration::ZERO }
    }

    pub(super) const fn is_failed(&self) -> bool {
        matches!(self.told.answer, Answer::Unknown(_))
    }
}
