//! The MTA-STS policies of receiving domains: read from the store, and fetched if they may have changed.
//!
//! A policy is read when it is used. It is fetched again once a day, and when the domain announces another identifier.
//! A fetch restarts its `max_age`, so a domain that receives mail keeps its policy even while its policy host is down.
//! A domain without mail causes no requests. A failed fetch leaves the stored policy unchanged, and is not repeated for
//! a while. Each account has one fetch of a domain's policy at a time. All fetches share a limited number of slots,
//! which slow hosts or one account can't use up.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::timeout;

use crate::domain::hostname::DomainName;
use crate::engine::Engine;
use crate::engine::ports::{LookupFailure, PolicyHosts, Requester, StsFetchFailure, Unfetched};
use crate::engine::query_places::QueryPlaces;
use crate::smtp::mta_sts::{StsMode, StsPolicy, announced_id};
use crate::smtp::tls_policy::TlsFault;
use crate::store::error::OpError;
use crate::store::op::tls_policy::{KeepStsPolicy, policy_of};
use crate::store::row::tls_policy::StsPolicyRow;

/// Age at which a policy is fetched again.
const FRESH: Duration = Duration::from_secs(24 * 3600);
/// Time before a failed fetch of a domain's policy is retried.
const AGAIN: Duration = Duration::from_secs(300);
/// Maximum number of remembered failures. If the list is full, the entry with the earliest retry is dropped. An entry
/// takes at most 512 bytes: 2 MiB of the 32 MiB that all DNS caches share. The policies themselves are in the store.
const FAILED_MAX: usize = 4096;
/// Maximum number of fast fetches.
const PROMPT_MAX: u32 = 16;
/// Time after which a fetch counts as slow.
const PROMPT: Duration = Duration::from_secs(5);
/// Maximum number of slow fetches.
const SLOW_MAX: u32 = 256;
/// Maximum time that a message waits for a running fetch, or a fetch waits for a slot.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// The cache.
pub(super) struct StsCache {
    engine: Arc<Engine>,
    hosts: Arc<dyn PolicyHosts>,
    max_wait: Duration,
    places: QueryPlaces,
    state: Mutex<State>,
}

/// One fetch; locked while it runs.
type Flight = Arc<tokio::sync::Mutex<()>>;

#[derive(Default)]
struct State {
    /// Fetches in progress.
    flights: HashMap<(DomainName, Requester), Flight>,
    failed: HashMap<DomainName, Failed>,
}

/// A failed fetch of the policy with this identifier.
struct Failed {
    id: String,
    /// End on the monotonic clock.
    until: Duration,
    /// A failure that is not counted yet.
    uncounted: Option<StsFetchFailure>,
}

/// Facts about a domain.
#[derive(Debug, Default)]
pub(super) struct KnownPolicy {
    /// The policy in force; `None` if there is none or the domain has withdrawn it.
    pub(super) policy: Option<Arc<StsPolicy>>,
    /// A failed fetch that must be counted.
    pub(super) failure: Option<StsFetchFailure>,
    /// Whether no policy is stored and none could be requested, so that its absence is not certain.
    pub(super) is_unasked: bool,
}

impl StsCache {
    /// Creates an empty cache. Messages wait for `max_wait` (which is [`PATIENCE`] outside tests).
    pub(super) fn new(engine: Arc<Engine>, hosts: Arc<dyn PolicyHosts>, max_wait: Duration) -> Self {
        Self {
            engine,
            hosts,
            max_wait,
            places: QueryPlaces::new(PROMPT_MAX, SLOW_MAX, PROMPT),
            state: Mutex::default(),
        }
    }

    /// Returns the policy that applies to `domain` now.
    pub(super) async fn get(self: &Arc<Self>, domain: &DomainName, requester: Requester) -> KnownPolicy {
        let announced = self.announced(domain, requester).await;
        let kept = self.kept(domain);
        let Ok(announced) = announced else { return unasked(kept) };
        // A missing or unreadable record does not end a policy. Only the policy's own expiry does (RFC 8461 3.1, 5).
        let Some(id) = announced else { return known(kept, None) };
        match kept {
            Some(row) if row.id == id => {
                // The policy is renewed in the background, while the stored one applies.
                if !self.is_fresh(&row) && !self.has_failed(domain, &id) {
                    drop(self.begin(domain, &id, FetchReason::Renewed, requester));
                }
                known(Some(row), self.uncounted(domain))
            }
            _ => self.fetch(domain, &id, requester).await,
        }
    }

    /// Returns the identifier of the policy that the domain announces.
    async fn announced(&self, domain: &DomainName, requester: Requester) -> Result<Option<String>, TooManyLookups> {
        match self.engine.resolver.txt(&format!("_mta-sts.{domain}"), requester).await {
            Ok(texts) => Ok(announced_id(&texts)),
            Err(LookupFailure::Absent | LookupFailure::Temporary(_)) => Ok(None),
            Err(LookupFailure::Unasked) => Err(TooManyLookups),
        }
    }

    fn kept(&self, domain: &DomainName) -> Option<StsPolicyRow> {
        let expiry = self.engine.clock.time().expiry;
        let kept = self.engine.store.snapshot().and_then(|snapshot| policy_of(&snapshot, domain, expiry));
        kept.unwrap_or_else(|error| {
            tracing::error!(%error, "could not read a stored MTA-STS policy; continuing without it");
            None
        })
    }

    fn is_fresh(&self, row: &StsPolicyRow) -> bool {
        self.engine.clock.now() < row.fetched_at + FRESH
    }

    /// Returns whether a fetch of the domain's policy is running.
    #[cfg(test)]
    pub(super) fn is_fetching(&self, domain: &DomainName) -> bool {
        self.state().flights.keys().any(|(flying, _)| flying == domain)
    }

    /// Returns the age of the domain's policy.
    #[cfg(test)]
    pub(super) fn age_of(&self, domain: &DomainName) -> Option<Duration> {
        self.kept(domain).map(|row| self.engine.clock.now().since(row.fetched_at))
    }

    /// Fetches the policy `id`, or waits for the running fetch. A slow host does not block the caller: the fetch
    /// continues, and the policy is unknown meanwhile.
    async fn fetch(self: &Arc<Self>, domain: &DomainName, id: &str, requester: Requester) -> KnownPolicy {
        if !self.has_failed(domain, id) {
            let flight = self.begin(domain, id, FetchReason::New, requester);
            let _landed = timeout(self.max_wait, flight.lock()).await;
        }
        let kept = self.kept(domain);
        if self.has_failed(domain, id) || kept.as_ref().is_some_and(|row| row.id == id) {
            return known(kept, self.uncounted(domain));
        }
        unasked(kept)
    }

    /// Starts a fetch that continues even if its caller is cancelled, or joins the running one of the same account.
    fn begin(self: &Arc<Self>, domain: &DomainName, id: &str, what: FetchReason, requester: Requester) -> Flight {
        let key = (domain.clone(), requester);
        let flight = Arc::clone(self.state().flights.entry(key.clone()).or_default());
        if let Ok(flying) = Arc::clone(&flight).try_lock_owned() {
            let (cache, id) = (Arc::clone(self), id.to_owned());
            tokio::spawn(async move {
                cache.ask(&key.0, id, what, requester).await;
                cache.state().flights.remove(&key);
                drop(flying);
            });
        }
        flight
    }

    async fn ask(&self, domain: &DomainName, id: String, what: FetchReason, requester: Requester) {
        let kept = self.kept(domain);
        // The previous fetch may have ended while this one was being prepared.
        let is_done = kept.is_some_and(|row| row.id == id && (what == FetchReason::New || self.is_fresh(&row)));
        if is_done || self.has_failed(domain, &id) {
            return;
        }
        let fetched = self.places.ask(requester, self.max_wait, self.hosts.sts_policy(domain, requester)).await;
        let read = fetched.unwrap_or(Err(Unfetched::Unasked)).and_then(|text| {
            let invalid = |why| StsFetchFailure { fault: TlsFault::StsPolicyInvalid, why: format!("{why}") };
            StsPolicy::read(&text).map_err(|why| Unfetched::Failed(invalid(why)))
        });
        match read {
            Ok(policy) => self.keep(KeepStsPolicy { domain: domain.clone(), id, policy }).await,
            Err(Unfetched::Failed(failure)) => {
                tracing::info!(%domain, why = %failure, "could not fetch an MTA-STS policy");
                self.note_failure(domain, id, failure);
            }
            Err(Unfetched::Unasked) => tracing::debug!(%domain, "no slot to fetch an MTA-STS policy"),
        }
    }

    async fn keep(&self, op: KeepStsPolicy) {
        match self.engine.store.commit(op).await {
            Ok(_) => {}
            Err(OpError::Refused(never)) => match never {},
            Err(OpError::Failed(error)) => {
                tracing::error!(%error, "could not store an MTA-STS policy; it is fetched again")
            }
        }
    }

    fn has_failed(&self, domain: &DomainName, id: &str) -> bool {
        let now = self.engine.clock.monotonic();
        self.state().failed.get(domain).is_some_and(|failed| failed.id == id && now < failed.until)
    }

    /// Returns a failed fetch that is not counted yet. Each failure is returned only once.
    fn uncounted(&self, domain: &DomainName) -> Option<StsFetchFailure> {
        self.state().failed.get_mut(domain).and_then(|failed| failed.uncounted.take())
    }

    fn note_failure(&self, domain: &DomainName, id: String, failure: StsFetchFailure) {
        let now = self.engine.clock.monotonic();
        let failed = &mut self.state().failed;
        if failed.len() >= FAILED_MAX {
            failed.retain(|_, failed| now < failed.until);
        }
        if failed.len() >= FAILED_MAX {
            let soonest = failed.iter().min_by_key(|(_, failed)| failed.until).map(|(domain, _)| domain.clone());
            soonest.and_then(|domain| failed.remove(&domain));
        }
        failed.insert(domain.clone(), Failed { id, until: now + AGAIN, uncounted: Some(failure) });
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change is complete before anything can panic, so the state is valid even if the lock is poisoned.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request was impossible, because too many lookups are in flight.
struct TooManyLookups;

/// Reason for fetching a policy.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FetchReason {
    /// No policy with this identifier is stored.
    New,
    /// The stored policy is a day old.
    Renewed,
}

fn known(row: Option<StsPolicyRow>, failure: Option<StsFetchFailure>) -> KnownPolicy {
    KnownPolicy { policy: row.and_then(|row| in_force(row.policy)), failure, is_unasked: false }
}

/// Returns the applicable policy while a domain can't be queried: the stored one, or else unknown.
fn unasked(kept: Option<StsPolicyRow>) -> KnownPolicy {
    let is_unasked = kept.is_none();
    KnownPolicy { is_unasked, ..known(kept, None) }
}

/// A domain withdraws its policy with the mode "none" (RFC 8461 8.3).
fn in_force(policy: StsPolicy) -> Option<Arc<StsPolicy>> {
    match policy.mode {
        StsMode::Enforce | StsMode::Testing => Some(Arc::new(policy)),
        StsMode::None => None,
    }
}
