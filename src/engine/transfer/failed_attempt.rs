//! Ends of attempts without an answer from the recipient's server: the relay failed, no server answered, or the DNS
//! decided.

use std::time::Duration;

use super::site::Site;
use crate::base::id::AccountId;
use crate::base::time::Timestamp;
use crate::domain::event::Bounce;
use crate::engine::ports::RouteFailure;
use crate::smtp::finding;
use crate::smtp::outcome::{Ending, Outcome, Phase};
use crate::smtp::verdict::{Deferral, Scope, Verdict};
use crate::store::op::settle_transfer::TransferEnd;

/// Delay after which a message is checked again if too many lookups were running.
const ASK_AGAIN: Duration = Duration::from_secs(10);

/// Returns the relay's own failure, if the outcome shows one: its address, or the smarthost's login and encryption,
/// which come before every message.
pub(super) fn relay_fault(site: &Site, outcome: &Outcome) -> Option<RelayFault> {
    let is_smarthost = matches!(site, Site::Smarthost(_));
    match (&outcome.ending, outcome.phase) {
        // 421 describes the server's state. It does not refuse our login.
        (Ending::Answered(reply), Phase::Auth) if is_smarthost && reply.code != 421 => {
            let why = format!("the smarthost refused the login: {}", reply.text());
            Some(RelayFault { needs_operator: reply.code >= 500, ..RelayFault::passing(why) })
        }
        // The answer may contain the recipient's address, and this text goes to the log.
        (Ending::Answered(reply), _) if is_smarthost && matches!(reply.code, 530 | 534 | 535 | 538) => {
            let why = format!("the smarthost takes no mail without another login: {}", reply.code);
            Some(RelayFault { needs_operator: true, ..RelayFault::passing(why) })
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

/// A failure of a relay: no message is charged for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RelayFault {
    /// Description of the failure. Text after the first colon is the smarthost's answer.
    pub(super) why: String,
    /// Whether the failure lasts until the operator corrects the configuration, such as the login or the source
    /// address.
    pub(super) needs_operator: bool,
    /// The message's account, if the failure may be about that account.
    pub(super) only: Option<AccountId>,
}

impl RelayFault {
    /// Creates a failure that may pass.
    pub(super) const fn passing(why: String) -> Self {
        Self { why, needs_operator: false, only: None }
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

/// Returns the end for a lookup that was not possible now. It is repeated soon and charged to no message.
pub(super) fn unasked(now: Timestamp) -> TransferEnd {
    TransferEnd::Postponed { until: now + ASK_AGAIN }
}

/// Returns the end that the DNS decides (contract 6).
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
