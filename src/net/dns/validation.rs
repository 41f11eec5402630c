//! Validating resolvers (DNSSEC) and the trust of their answers: secure, insecure or bogus. Bogus answers are
//! discarded.
//!
//! Signatures are checked against the system's clock, even if the program runs on a virtual one, since other parties
//! make them.

use std::sync::Arc;
use std::time::Duration;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::NameServerConfig;
use hickory_resolver::net::{NetError, NoRecords};
use hickory_resolver::proto::dnssec::rdata::{DNSKEY, DNSSECRData};
use hickory_resolver::proto::dnssec::{Proof, TrustAnchors};
use hickory_resolver::proto::rr::{Name, RData, Record, RecordType};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use super::anchor::Anchors;
use super::query::resolver;

/// Time for which keys found by digest are used before they are looked up again.
const KEYS_LIFETIME: Duration = Duration::from_secs(3600);
/// Time limit of a validated answer, as a multiple of the limit of one query. It takes a chain of queries from the
/// anchor down.
pub(super) const QUESTIONS: u32 = 3;

/// DNSSEC trust of an answer (RFC 4033 5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trust {
    /// Signed on the whole path from an anchor.
    Secure,
    /// An answer that is not signed and need not be, or that was not validated.
    Insecure,
}

/// The validating resolvers, one per server.
pub(super) struct Validation {
    anchors: Anchors,
    servers: Vec<NameServerConfig>,
    try_timeout: Duration,
    /// Locked while the keys are looked up, so that this is done once for all callers.
    current: Mutex<Option<Current>>,
}

struct Current {
    resolvers: Arc<[TokioResolver]>,
    made_at: Instant,
}

impl Validation {
    pub(super) fn new(anchors: Anchors, servers: Vec<NameServerConfig>, try_timeout: Duration) -> Self {
        Self { anchors, servers, try_timeout, current: Mutex::default() }
    }

    /// Returns whether answers about `name` are validated.
    pub(super) fn covers(&self, name: &Name) -> bool {
        self.anchors.covers(name)
    }

    /// Returns the resolvers. `plain` finds the keys that the anchors name by digest.
    ///
    /// # Errors
    /// There is no key to start from.
    pub(super) async fn resolvers(&self, plain: &TokioResolver) -> Result<Arc<[TokioResolver]>, &'static str> {
        let mut current = self.current.lock().await;
        let zones = self.anchors.digested_zones();
        if let Some(made) = current.as_ref().filter(|made| zones.is_empty() || made.made_at.elapsed() < KEYS_LIFETIME) {
            return Ok(Arc::clone(&made.resolvers));
        }
        let trusted = self.anchors.trusted(&self.keys_at(plain, zones).await);
        match trusted.and_then(|trusted| self.build(trusted)) {
            Some(resolvers) => {
                *current = Some(Current { resolvers: Arc::clone(&resolvers), made_at: Instant::now() });
                Ok(resolvers)
            }
            // Expired keys are better than none.
            None => current.as_ref().map(|made| Arc::clone(&made.resolvers)).ok_or("no key matches the trust anchor"),
        }
    }

    fn build(&self, trusted: TrustAnchors) -> Option<Arc<[TokioResolver]>> {
        let trusted = Arc::new(trusted);
        let build = |server: &NameServerConfig| resolver(server.clone(), self.try_timeout, Some(Arc::clone(&trusted)));
        let built: Result<Vec<_>, NetError> = self.servers.iter().map(build).collect();
        built.ok().map(Into::into)
    }

    async fn keys_at(&self, plain: &TokioResolver, zones: Vec<Name>) -> Vec<(Name, DNSKEY)> {
        let mut keys = Vec::new();
        for zone in zones {
            let asked = timeout(self.try_timeout, plain.lookup(zone.clone(), RecordType::DNSKEY)).await;
            let Ok(Ok(lookup)) = asked else { continue };
            keys.extend(lookup.answers().iter().filter_map(|record| match &record.data {
                RData::DNSSEC(DNSSECRData::DNSKEY(key)) if record.name == zone => Some((zone.clone(), key.clone())),
                _ => None,
            }));
        }
        keys
    }
}

/// Returns the combined trust of all records of a validated answer; `None` if one of them is bogus.
pub(super) fn trust_of<'a>(records: impl Iterator<Item = &'a Record>) -> Option<Trust> {
    let mut trust = Some(Trust::Secure);
    // Only the signature that was used carries a proof.
    for record in records.filter(|record| record.record_type() != RecordType::RRSIG) {
        match record.proof {
            Proof::Secure => {}
            Proof::Insecure => trust = trust.map(|_| Trust::Insecure),
            Proof::Bogus | Proof::Indeterminate => trust = None,
        }
    }
    trust
}

/// Returns the trust of a validated negative answer about `name`. After an alias only the end of the chain was proven,
/// so it counts as insecure.
pub(super) fn worth_of_nothing(name: &Name, none: &NoRecords) -> Trust {
    let is_denial = |record: &Record| matches!(record.record_type(), RecordType::NSEC | RecordType::NSEC3);
    let proven = none.authorities.iter().flat_map(|records| records.iter());
    let is_proven = proven.into_iter().any(|record| is_denial(record) && record.proof == Proof::Secure);
    if is_proven && none.query.name() == name { Trust::Secure } else { Trust::Insecure }
}
