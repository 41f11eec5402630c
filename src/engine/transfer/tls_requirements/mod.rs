//! Requirements for one message's connections: TLS for each new server, and whether a kept connection meets the policy
//! of the message's own domain.

use std::time::Duration;

use super::Shared;
use super::site::Site;
use crate::domain::event::TlsFacts;
use crate::engine::ports::{MailHost, Requester, Session, Target};
use crate::engine::tls_policy::{DomainPolicy, NoPolicy, Unfit};
use crate::smtp::finding;
use crate::smtp::outcome::Outcome;
use crate::smtp::tls_policy::TlsRequirement;
use crate::smtp::verdict::{Deferral, FinalResult, Scope, Verdict};
use crate::store::row::message::MessageRow;

/// Time for which a connection serves a domain under one policy without another lookup of its names.
const AGREED: Duration = Duration::from_secs(60);

/// Domain and policy that a connection met at its last check.
#[derive(Clone)]
pub(super) struct Agreement {
    policy: Option<DomainPolicy>,
    /// Requirement of the domain's policy, but no stricter than the one under which the connection was opened.
    pub(super) required: TlsRequirement,
    /// Expiry on the monotonic clock.
    at: Duration,
}

/// Reason why no connection to a server is opened.
pub(super) enum WithheldReason {
    /// The server can't meet the policy. If this is true for all servers, the message waits.
    LeftOut(Verdict),
    /// The requirement could not be looked up now.
    Unasked,
}

/// The policy of one recipient's domain; `None` for mail that is captured, goes to a smarthost, or waives TLS.
pub(super) struct RecipientPolicy<'a> {
    shared: &'a Shared,
    policy: Option<DomainPolicy>,
    /// The message's account and stream, for lookups.
    pub(super) requester: Requester,
}

impl<'a> RecipientPolicy<'a> {
    /// Returns the current policy for the message of `row` at `site`. The smarthost decides about mail behind it. A
    /// message that waives TLS looks up no policy (RFC 8689), so none is counted.
    pub(super) async fn new(shared: &'a Shared, site: &Site, row: &MessageRow, requester: Requester) -> Self {
        let policy = match site {
            Site::Provider(_) | Site::Servers(_) if !row.waives_tls => {
                Some(shared.tls.of(row.to.domain(), requester).await)
            }
            Site::Provider(_) | Site::Servers(_) | Site::Smarthost(_) | Site::Captured(_) => None,
        };
        Self { shared, policy, requester }
    }

    /// Returns whether a connection opened under `required` meets it.
    pub(super) fn agreement(&self, required: TlsRequirement) -> Agreement {
        Agreement { policy: self.policy.clone(), required, at: self.shared.engine.clock.monotonic() }
    }

    /// Returns the required security of a session with `host`.
    ///
    /// # Errors
    /// Reason why the server is not contacted.
    pub(super) async fn requirement(&self, host: Option<&MailHost>) -> Result<TlsRequirement, WithheldReason> {
        let (Some(policy), Some(host)) = (&self.policy, host) else { return Ok(TlsRequirement::Opportunistic) };
        let required = self.shared.tls.requirement(policy, host, self.requester).await;
        required.map_err(|unmet| match unmet {
            NoPolicy::Unfit(unfit) => {
                self.shared.tls.count_unfit(policy, &host.name, &unfit);
                WithheldReason::LeftOut(left_out(&unfit))
            }
            NoPolicy::Unasked => WithheldReason::Unasked,
        })
    }

    /// Returns whether a session to `target` meets this message's policy. The session is encrypted as `tls` says, and
    /// met `agreed` at its last check.
    pub(super) async fn renewed(&self, target: &Target, tls: Option<TlsFacts>, agreed: Agreement) -> Option<Agreement> {
        let Some(policy) = &self.policy else { return Some(agreed) };
        let age = self.shared.engine.clock.monotonic().saturating_sub(agreed.at);
        if agreed.policy.as_ref() == Some(policy) && age < AGREED {
            return Some(agreed);
        }
        let hosts = self.shared.engine.resolver.mail_hosts(&policy.domain, self.requester).await.ok()?;
        let host = hosts.iter().find(|host| *host.name == *target.host)?;
        let required = self.shared.tls.requirement(policy, host, self.requester).await.ok()?;
        required.is_met_by(&target.tls, tls.as_ref()).then(|| self.agreement(required))
    }

    /// Counts the result of opening a session to `target`.
    pub(super) fn count(&self, target: &Target, opened: &Result<Box<dyn Session>, Outcome>) {
        let Some(policy) = &self.policy else { return };
        match opened {
            Ok(session) => self.shared.tls.count_opened(policy, &target.tls, &target.host, session.tls()),
            Err(outcome) => self.shared.tls.count_refused(policy, &target.tls, &target.host, outcome),
        }
    }
}

fn left_out(unfit: &Unfit) -> Verdict {
    let why = finding::policy_failed(&unfit.why);
    let deferral = Deferral { scope: Scope::Message, why, is_outcome_unknown: false };
    Verdict::NextServer(FinalResult::Deferred(deferral))
}

#[cfg(test)]
mod tests;
