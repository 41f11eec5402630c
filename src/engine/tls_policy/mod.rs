//! TLS policy of a receiving domain, for each server: DANE before MTA-STS before opportunistic TLS (contract 6).
//!
//! It is read at every attempt. MTA-STS policies come from the store. They are fetched if the domain announces a new
//! one or the last fetch is a day old ([`cache`]). TLSA records come from the resolver's cache. The store counts the
//! results of sessions (RFC 8460). A policy is never relaxed here: a server that does not meet it is skipped, and a
//! message without a suitable server waits.

mod cache;
#[cfg(test)]
pub(super) mod tests;

use std::sync::Arc;

use self::cache::{KnownPolicy, PATIENCE, StsCache};
use super::Engine;
use super::ports::{LookupFailure, MailHost, PolicyHosts, Requester};
use crate::domain::event::TlsFacts;
use crate::domain::hostname::DomainName;
use crate::smtp::mta_sts::{StsMode, StsPolicy};
use crate::smtp::outcome::{Ending, Outcome};
use crate::smtp::tls_policy::{DaneTerms, TlsFault, TlsRequirement};
use crate::smtp::tlsa::{Association, TlsaRecord};
use crate::store::op::tls_report::{CountTlsSession, SessionCount};
use crate::store::row::tls_policy::PolicyType;

/// Maximum TLSA records of one policy in a report.
const TLSA_MAX: usize = 16;

/// The policies of all receiving domains.
pub(super) struct TlsPolicies {
    engine: Arc<Engine>,
    cache: Arc<StsCache>,
    /// Port of mail servers, used in the names of TLSA records.
    port: u16,
}

/// Policy of one domain, as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DomainPolicy {
    pub(super) domain: DomainName,
    sts: Option<Arc<StsPolicy>>,
    /// Whether there may be an MTA-STS policy that could not be looked up.
    is_unasked: bool,
}

/// Reason why no requirement is known for a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NoPolicy {
    /// The server can't be used under the domain's policy.
    Unfit(Unfit),
    /// The policy could not be looked up, because too many lookups are in flight. This says nothing about the policy.
    Unasked,
}

/// A server that can't be used under its domain's policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unfit {
    /// Failure type for TLS reports.
    pub(super) fault: TlsFault,
    /// Explanation for people.
    pub(super) why: String,
}

impl TlsPolicies {
    pub(super) fn new(engine: Arc<Engine>, hosts: Arc<dyn PolicyHosts>, port: u16) -> Self {
        let cache = Arc::new(StsCache::new(Arc::clone(&engine), hosts, PATIENCE));
        Self { engine, cache, port }
    }

    /// Returns the current policy of `domain`, the domain of a recipient's address.
    pub(super) async fn of(&self, domain: &DomainName, requester: Requester) -> DomainPolicy {
        let KnownPolicy { policy, failure, is_unasked } = self.cache.get(domain, requester).await;
        let known = DomainPolicy { domain: domain.clone(), sts: policy, is_unasked };
        if let Some(failure) = failure {
            self.post(&known, AppliedPolicy::of(PolicyType::Sts), None, Some(failure.fault));
        }
        known
    }

    /// Returns the required security of a session with `host`.
    ///
    /// # Errors
    /// A session with it could not meet the policy, or the policy is unknown at present.
    pub(super) async fn requirement(
        &self,
        policy: &DomainPolicy,
        host: &MailHost,
        requester: Requester,
    ) -> Result<TlsRequirement, NoPolicy> {
        if policy.is_unasked {
            return Err(NoPolicy::Unasked);
        }
        let records = self.tlsa_of(host, requester).await?;
        let dane = records.map(|(name, records)| DaneTerms {
            associations: Association::usable(&records),
            names: reference_names(&name, host, &policy.domain),
        });
        match (dane, policy.enforced()) {
            // DANE takes precedence over MTA-STS (RFC 8461 2).
            (Some(terms), _) if !terms.associations.is_empty() => Ok(TlsRequirement::Dane(Arc::new(terms))),
            (_, Some(sts)) if sts.admits(&host.name) => Ok(TlsRequirement::Pkix),
            (_, Some(_)) => Err(NoPolicy::Unfit(Unfit {
                fault: TlsFault::StsPolicyInvalid,
                why: format!("{} is not listed in the domain's MTA-STS policy", host.name),
            })),
            (Some(terms), None) => Ok(TlsRequirement::Dane(Arc::new(terms))),
            (None, None) => Ok(TlsRequirement::Opportunistic),
        }
    }

    /// Returns the first TLSA records for `host`, and their name.
    async fn tlsa_of(
        &self,
        host: &MailHost,
        requester: Requester,
    ) -> Result<Option<(String, Vec<TlsaRecord>)>, NoPolicy> {
        for name in &host.tlsa_names {
            match self.engine.resolver.tlsa(&format!("_{}._tcp.{name}", self.port), requester).await {
                Ok(records) => return Ok(Some((name.clone(), records))),
                Err(LookupFailure::Absent) => {}
                // An attacker who suppresses the answer must not receive the mail (RFC 7672 2.1.1).
                Err(LookupFailure::Temporary(why)) => {
                    let why = format!("the TLSA records of {name} could not be looked up: {why}");
                    return Err(NoPolicy::Unfit(Unfit { fault: TlsFault::DnssecInvalid, why }));
                }
                Err(LookupFailure::Unasked) => return Err(NoPolicy::Unasked),
            }
        }
        Ok(None)
    }

    /// Counts a server that was skipped.
    pub(super) fn count_unfit(&self, policy: &DomainPolicy, host: &str, unfit: &Unfit) {
        let policy_type = match unfit.fault {
            TlsFault::DnssecInvalid => PolicyType::Tlsa,
            _ => PolicyType::Sts,
        };
        self.post(policy, AppliedPolicy::of(policy_type), Some(host), Some(unfit.fault));
    }

    /// Counts an open session, with the security that `tls` describes.
    pub(super) fn count_opened(
        &self,
        policy: &DomainPolicy,
        requirement: &TlsRequirement,
        host: &str,
        tls: Result<&TlsFacts, TlsFault>,
    ) {
        let fault = match (requirement, &policy.sts, tls) {
            (TlsRequirement::Opportunistic, _, Err(fault)) => Some(fault),
            // The policy is in testing mode. Mail that would violate it is delivered and counted.
            (TlsRequirement::Opportunistic, Some(sts), Ok(_)) if !sts.admits(host) => Some(TlsFault::StsPolicyInvalid),
            (TlsRequirement::Opportunistic, Some(_), Ok(facts)) => {
                let is_met = TlsRequirement::Pkix.is_met_by(requirement, Some(facts));
                if is_met { None } else { Some(TlsFault::CertificateNotTrusted) }
            }
            (TlsRequirement::Dane(terms), ..) if terms.associations.is_empty() => Some(TlsFault::TlsaInvalid),
            (TlsRequirement::Opportunistic | TlsRequirement::Pkix | TlsRequirement::Dane(_), ..) => None,
        };
        self.post(policy, policy.applied(requirement), Some(host), fault);
    }

    /// Counts a session that failed because of TLS.
    pub(super) fn count_refused(
        &self,
        policy: &DomainPolicy,
        requirement: &TlsRequirement,
        host: &str,
        outcome: &Outcome,
    ) {
        let fault = match &outcome.ending {
            Ending::PolicyFailed { fault, .. } => *fault,
            Ending::TlsFailed(_) => TlsFault::ValidationFailure,
            Ending::Answered(_)
            | Ending::Unreachable(_)
            | Ending::Unusable(_)
            | Ending::TimedOut
            | Ending::Closed(_)
            | Ending::Unreadable(_)
            | Ending::TooLarge { .. }
            | Ending::NeedsSmtpUtf8
            | Ending::Loop => return,
        };
        self.post(policy, policy.applied(requirement), Some(host), Some(fault));
    }

    fn post(&self, policy: &DomainPolicy, applied: AppliedPolicy<'_>, host: Option<&str>, fault: Option<TlsFault>) {
        let AppliedPolicy { policy_type, associations } = applied;
        let text = match policy_type {
            PolicyType::Sts => policy.sts.as_ref().map(|sts| sts.lines()).unwrap_or_default(),
            PolicyType::Tlsa => associations.iter().take(TLSA_MAX).map(Association::to_text).collect(),
            PolicyType::NoPolicyFound => Vec::new(),
        };
        let host = host.map(str::to_owned);
        let report_after = self.engine.tls_report_after(&policy.domain);
        let domain = policy.domain.clone();
        let op = CountTlsSession { domain, policy_type, policy: text, host, fault, report_after };
        self.engine.store.post(op, |counted| match counted {
            Ok(SessionCount::Counted) => {}
            Ok(SessionCount::Full) => tracing::debug!("too many domains today; TLS session not counted"),
            Err(_) => tracing::warn!("could not count a TLS session; the day's TLS report lacks it"),
        });
    }
}

impl DomainPolicy {
    /// Returns the MTA-STS policy that must be met.
    fn enforced(&self) -> Option<&StsPolicy> {
        self.sts.as_deref().filter(|policy| match policy.mode {
            StsMode::Enforce => true,
            StsMode::Testing | StsMode::None => false,
        })
    }

    /// Returns the policy under which a session with `requirement` is counted.
    fn applied<'r>(&self, requirement: &'r TlsRequirement) -> AppliedPolicy<'r> {
        match (requirement, &self.sts) {
            (TlsRequirement::Dane(terms), _) => {
                AppliedPolicy { policy_type: PolicyType::Tlsa, associations: &terms.associations }
            }
            (TlsRequirement::Pkix, _) | (TlsRequirement::Opportunistic, Some(_)) => AppliedPolicy::of(PolicyType::Sts),
            (TlsRequirement::Opportunistic, None) => AppliedPolicy::of(PolicyType::NoPolicyFound),
        }
    }
}

/// The policy of a session, with its TLSA records for DANE.
struct AppliedPolicy<'r> {
    policy_type: PolicyType,
    associations: &'r [Association],
}

impl AppliedPolicy<'_> {
    const fn of(policy_type: PolicyType) -> Self {
        Self { policy_type, associations: &[] }
    }
}

/// Returns the names of which a certificate under DANE-TA must contain one: the name of the TLSA records, the server's
/// name, or the recipient's domain. DNSSEC authenticates all of them here (RFC 7672 3.2.2).
fn reference_names(tlsa_name: &str, host: &MailHost, domain: &DomainName) -> Vec<String> {
    let mut names = vec![tlsa_name.to_owned(), host.name.clone(), domain.as_str().to_owned()];
    names.dedup();
    names
}
