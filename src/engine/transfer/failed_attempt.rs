//! Ends of attempts that are not the word of a receiver's server: a fault of the relay, no server, or the DNS alone.

use std::time::Duration;

use super::site::Site;
use crate::base::time::Timestamp;
use crate::domain::event::Bounce;
use crate::engine::ports::RouteFailure;
use crate::smtp::finding;
use crate::smtp::outcome::{Ending, Outcome, Phase};
use crate::smtp::verdict::{Deferral, Scope, Verdict};
use crate::store::op::settle_transfer::TransferEnd;

/// When a message is looked at again whose names could not be asked for, so many were on their way.
const ASK_AGAIN: Duration = Duration::from_secs(10);

/// Why the relay itself can't be used, where that is what the outcome says: its address, or at a smarthost the login
/// and the security that go before every message.
pub(super) fn relay_fault(site: &Site, outcome: &Outcome) -> Option<RelayFault> {
    let is_smarthost = matches!(site, Site::Smarthost(_));
    match (&outcome.ending, outcome.phase) {
        // 421 is the server's state, not a refusal of ours.
        (Ending::Answered(reply), Phase::Auth) if is_smarthost && reply.code != 421 => {
            let why = format!("the smarthost refused the login: {}", reply.text());
            Some(RelayFault { why, needs_operator: reply.code >= 500 })
        }
        // Its words may name the recipient, and this goes to the log.
        (Ending::Answered(reply), _) if is_smarthost && matches!(reply.code, 530 | 534 | 535 | 538) => {
            let why = format!("the smarthost takes no mail without another login: {}", reply.code);
            Some(RelayFault { why, needs_operator: true })
        }
        (Ending::TlsFailed(why) | Ending::PolicyFailed { why, .. }, _) if is_smarthost => {
            Some(RelayFault::passing(format!("no secured connection to the smarthost: {why}")))
        }
        (Ending::Unreadable(why), Phase::Auth) => {
            Some(RelayFault::passing(format!("no login at the smarthost: {why}")))
        }
        (Ending::TimedOut | Ending::Closed(_), Phase::StartTls | Phase::Auth) if is_smarthost => {
            let why = format!("no secured connection to the smarthost: {:?} in {:?}", outcome.ending, outcome.phase);
            Some(RelayFault::passing(why))
        }
        _ => None,
    }
}

/// A fault of a relay: no message is charged for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RelayFault {
    /// The fault in words; what follows the first colon is the smarthost's answer.
    pub(super) why: String,
    /// Whether it lasts until the operator corrects the configuration: the login, or the source address.
    pub(super) needs_operator: bool,
}

impl RelayFault {
    /// A fault that may pass.
    pub(super) const fn passing(why: String) -> Self {
        Self { why, needs_operator: false }
    }
}

pub(super) const fn deferred(why: Bounce) -> TransferEnd {
    TransferEnd::Deferred { bounce: Some(why), not_before: None }
}

pub(super) fn nowhere() -> Verdict {
    Verdict::Deferred(no_server())
}

pub(super) fn no_server() -> Deferral {
    Deferral { scope: Scope::Site, why: finding::closed("no server could be used"), is_outcome_unknown: false }
}

/// Returns the end for a look-up that could not be made now. It is made again soon, and is charged to nobody.
pub(super) fn unasked(now: Timestamp) -> TransferEnd {
    TransferEnd::Postponed { until: now + ASK_AGAIN }
}

/// Returns the end that the DNS alone decides (contract 6).
pub(super) fn route_failed(failure: &RouteFailure, now: Timestamp) -> TransferEnd {
    match failure {
        RouteFailure::NoSuchDomain => TransferEnd::Bounced(finding::no_such_domain()),
        RouteFailure::NullMx => TransferEnd::Bounced(finding::null_mx()),
        RouteFailure::NoHost => TransferEnd::Bounced(finding::no_host()),
        RouteFailure::BlockedDestination => TransferEnd::Bounced(finding::blocked_destination()),
        RouteFailure::Loop => TransferEnd::Bounced(finding::loops_back()),
        RouteFailure::Temporary(_) => deferred(finding::lookup_failed()),
        RouteFailure::Unasked => unasked(now),
    }
}
