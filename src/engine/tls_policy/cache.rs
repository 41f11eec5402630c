//! The MTA-STS policies of receiving domains: believed from the store, fetched where they may have changed.
//!
//! A policy is looked at when it is used. Once a day, and whenever the domain announces another identifier, it is
//! fetched again, which starts its `max_age` anew; so a domain that is written to keeps its policy, whatever becomes of
//! its policy host meanwhile, and one that is not costs nobody a request. A fetch that fails leaves the policy that is
//! kept as it is, and is not repeated for a while. One fetch a domain at once, and a bounded number in all.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Semaphore;

use crate::base::time::Timestamp;
use crate::domain::hostname::DomainName;
use crate::engine::Engine;
use crate::engine::ports::{PolicyHosts, StsFetchFailure};
use crate::smtp::mta_sts::{StsMode, StsPolicy, announced_id};
use crate::smtp::tls_policy::TlsFault;
use crate::store::error::Stop;
use crate::store::op::tls_policy::{KeepStsPolicy, policy_of};
use crate::store::row::tls_policy::StsPolicyRow;

/// How old a policy may be before it is fetched again.
const FRESH: Duration = Duration::from_secs(24 * 3600);
/// How long a domain whose policy could not be fetched is left alone.
const AGAIN: Duration = Duration::from_secs(300);
/// Domains that are left alone at once; beyond that the one that is soonest asked again goes.
const FAILED_MAX: usize = 4096;
/// Fetches at once.
const FETCHES_MAX: usize = 16;

/// The cache.
pub(super) struct StsCache {
    engine: Arc<Engine>,
    hosts: Arc<dyn PolicyHosts>,
    fetches: Semaphore,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Who is being fetched from: one flight each, held by whoever fetches and awaited by the others.
    flights: HashMap<DomainName, Arc<tokio::sync::Mutex<()>>>,
    failed: HashMap<DomainName, Failed>,
}

/// A fetch that failed, of the policy with this identifier.
struct Failed {
    id: String,
    until: Timestamp,
    /// Why, where nobody who could count it was waiting.
    untold: Option<StsFetchFailure>,
}

/// What is known of a domain.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// The policy that holds; none where there is none, or where the domain has withdrawn it.
    pub(super) policy: Option<Arc<StsPolicy>>,
    /// A fetch that failed just now, to be counted.
    pub(super) failure: Option<StsFetchFailure>,
}

impl StsCache {
    pub(super) fn new(engine: Arc<Engine>, hosts: Arc<dyn PolicyHosts>) -> Self {
        Self { engine, hosts, fetches: Semaphore::new(FETCHES_MAX), state: Mutex::default() }
    }

    /// What holds for `domain` now.
    pub(super) async fn get(self: &Arc<Self>, domain: &DomainName) -> Known {
        let announced = self.announced(domain).await;
        let kept = self.kept(domain);
        // A record that is gone, or can't be seen, ends no policy: only its own time does (RFC 8461 3.1, 5).
        let Some(id) = announced else { return known(kept, None) };
        match kept {
            Some(row) if row.id == id => {
                if !self.is_fresh(&row) {
                    self.renew(domain, id);
                }
                known(Some(row), self.untold(domain))
            }
            _ => self.fetch(domain, id).await,
        }
    }

    /// The identifier of the policy that the domain announces, where it announces one.
    async fn announced(&self, domain: &DomainName) -> Option<String> {
        let texts = self.engine.resolver.txt(&format!("_mta-sts.{domain}")).await.ok()?;
        announced_id(&texts)
    }

    fn kept(&self, domain: &DomainName) -> Option<StsPolicyRow> {
        let now = self.engine.clock.now();
        let kept = self.engine.store.snapshot().and_then(|snapshot| policy_of(&snapshot, domain, now));
        kept.unwrap_or_else(|error| {
            tracing::error!(%error, "a receiving domain's MTA-STS policy could not be read");
            None
        })
    }

    fn is_fresh(&self, row: &StsPolicyRow) -> bool {
        self.engine.clock.now() < row.fetched_at + FRESH
    }

    /// How long ago the domain's policy was fetched.
    #[cfg(test)]
    pub(super) fn age_of(&self, domain: &DomainName) -> Option<Duration> {
        self.kept(domain).map(|row| self.engine.clock.now().since(row.fetched_at))
    }

    /// Fetches again behind the back of whoever asks: what is kept holds meanwhile.
    fn renew(self: &Arc<Self>, domain: &DomainName, id: String) {
        let is_under_way = self.state().flights.get(domain).is_some_and(|flight| flight.try_lock().is_err());
        if is_under_way || self.has_failed(domain, &id) {
            return;
        }
        let (cache, domain) = (Arc::clone(self), domain.clone());
        tokio::spawn(async move { cache.fly(&domain, id, What::Renewed).await });
    }

    /// Fetches the policy `id`, or waits for who does.
    async fn fetch(&self, domain: &DomainName, id: String) -> Known {
        if self.has_failed(domain, &id) {
            return known(self.kept(domain), None);
        }
        self.fly(domain, id, What::New).await
    }

    async fn fly(&self, domain: &DomainName, id: String, what: What) -> Known {
        let flight = Arc::clone(self.state().flights.entry(domain.clone()).or_default());
        let landed = {
            let _mine = flight.lock().await;
            let kept = self.kept(domain);
            // Whoever waited finds what the one before has brought, or that it brought nothing.
            let is_done = kept.as_ref().is_some_and(|row| row.id == id && (what == What::New || self.is_fresh(row)));
            if is_done || self.has_failed(domain, &id) {
                known(kept, None)
            } else {
                self.ask(domain, id, kept, what).await
            }
        };
        // The others that wait have it in hand; the last one's map entry goes with it.
        if Arc::strong_count(&flight) <= 2 {
            self.state().flights.remove(domain);
        }
        landed
    }

    async fn ask(&self, domain: &DomainName, id: String, kept: Option<StsPolicyRow>, what: What) -> Known {
        let _place = self.fetches.acquire().await;
        let fetched = self.hosts.sts_policy(domain).await.and_then(|text| {
            let invalid = |why| StsFetchFailure { fault: TlsFault::StsPolicyInvalid, why: format!("{why}") };
            StsPolicy::read(&text).map_err(invalid)
        });
        match fetched {
            Ok(policy) => {
                let op = KeepStsPolicy { domain: domain.clone(), id, policy: policy.clone() };
                match self.engine.store.commit(op).await {
                    Ok(_) => {}
                    Err(Stop::Refused(never)) => match never {},
                    // It holds all the same, for as long as the process lives with a store that has failed.
                    Err(Stop::Failed(error)) => tracing::error!(%error, "an MTA-STS policy could not be kept"),
                }
                Known { policy: in_force(policy), failure: None }
            }
            Err(failure) => {
                tracing::info!(%domain, why = %failure, "an MTA-STS policy could not be fetched");
                let (told, untold) = match what {
                    What::New => (Some(failure), None),
                    What::Renewed => (None, Some(failure)),
                };
                self.note_failure(domain, id, untold);
                known(kept, told)
            }
        }
    }

    fn has_failed(&self, domain: &DomainName, id: &str) -> bool {
        let now = self.engine.clock.now();
        self.state().failed.get(domain).is_some_and(|failed| failed.id == id && now < failed.until)
    }

    /// A fetch that failed behind the back of whoever asked, once.
    fn untold(&self, domain: &DomainName) -> Option<StsFetchFailure> {
        self.state().failed.get_mut(domain).and_then(|failed| failed.untold.take())
    }

    fn note_failure(&self, domain: &DomainName, id: String, untold: Option<StsFetchFailure>) {
        let now = self.engine.clock.now();
        let failed = &mut self.state().failed;
        if failed.len() >= FAILED_MAX {
            failed.retain(|_, failed| now < failed.until);
        }
        if failed.len() >= FAILED_MAX {
            let soonest = failed.iter().min_by_key(|(_, failed)| failed.until).map(|(domain, _)| domain.clone());
            soonest.and_then(|domain| failed.remove(&domain));
        }
        failed.insert(domain.clone(), Failed { id, until: now + AGAIN, untold });
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change is whole before anything can panic, so a poisoned lock still holds a sound state.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why a policy is fetched.
#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    /// None is known by this identifier.
    New,
    /// The one that is kept is a day old.
    Renewed,
}

fn known(row: Option<StsPolicyRow>, failure: Option<StsFetchFailure>) -> Known {
    Known { policy: row.and_then(|row| in_force(row.policy)), failure }
}

/// A policy of mode "none" is how a domain withdraws the one before (RFC 8461 8.3).
fn in_force(policy: StsPolicy) -> Option<Arc<StsPolicy>> {
    match policy.mode {
        StsMode::Enforce | StsMode::Testing => Some(Arc::new(policy)),
        StsMode::None => None,
    }
}
