//! Routes of domains: the site of a domain is looked up before a message joins a destination queue, once for all
//! waiting messages.
//!
//! A message that waits for a lookup is a timer and an entry here, never a task. The number of entries is limited.
//! Domains with transactional mail are looked up first, and marketing mail never uses all places. Accounts share the
//! lookups as they share connections, and each account has lookups of its own: none waits for another's turn. A slow
//! lookup gives its permit to others, so a silent name server delays no other mail. An outdated site is looked up
//! again while its mail continues.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::route_table::{CachedRoute, ENTRY_BYTES, Entry, RouteTable};
pub(super) use super::route_table::{DomainState, Route, WAITING_MAX};
use super::site::Site;
use super::unassigned;
use crate::base::id::AccountId;
use crate::domain::hostname::DomainName;
use crate::domain::stream::Stream;
use crate::engine::Engine;
use crate::engine::caught_panic::caught;
use crate::engine::ports::{BoxFuture, Requester, RouteFailure};
use crate::machine::budget::Claim;
use crate::smtp::shaping::Shaping;
use crate::store::timer::Timer;

/// Time after which a lookup counts as slow and gives its permit to the next one.
const PROMPT: Duration = Duration::from_secs(2);
/// Time for which a domain's site is cached. The servers themselves are looked up for every connection, by their TTL.
const SITE_LIFETIME: Duration = Duration::from_secs(60);
/// Time for which a failure is cached: long enough to report it to all waiting messages.
const FAILURE_LIFETIME: Duration = Duration::from_secs(1);

/// All domains' routes.
pub(super) struct Routes {
    engine: Arc<Engine>,
    shaping: Arc<Shaping>,
    state: Mutex<RouteTable>,
}

impl Routes {
    pub(super) fn new(engine: Arc<Engine>, shaping: Arc<Shaping>) -> Self {
        Self { engine, shaping, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, RouteTable> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the route of `domain` for the message of `timer`. The timer fires again after [`Route::Asked`].
    pub(super) fn get(self: &Arc<Self>, domain: &DomainName, timer: Timer, stream: Stream) -> Route {
        let now = self.engine.clock.monotonic();
        let mut state = self.state();
        state.prune();
        let known = state.known(domain, Claim::single(timer.account, stream), now);
        let route = known.unwrap_or_else(|| state.wait(domain, timer, stream, now));
        drop(state);
        self.start();
        route
    }

    /// Forgets the site of `domain`, which has other servers now. The next message looks it up.
    pub(super) fn forget(&self, domain: &DomainName) {
        let entries = &mut self.state().entries;
        match entries.get_mut(domain) {
            Some(Entry::Asked(asked)) => asked.stale = None,
            Some(Entry::Known(_)) => drop(entries.remove(domain)),
            None => {}
        }
    }

    /// Returns whether another message may wait for a lookup.
    pub(super) fn has_room(&self, account: AccountId, stream: Stream) -> bool {
        self.state().waiting.would_fit(&Claim::single(account, stream))
    }

    /// Returns whether almost no further message can wait for a lookup.
    pub(super) fn is_full(&self) -> bool {
        self.state().waiting.used() >= WAITING_MAX
    }

    /// Returns the last known site of `domain`, for the operator.
    pub(super) fn last_seen(&self, domain: &DomainName) -> Option<Site> {
        match self.seen(domain) {
            DomainState::At(site) => Some(site),
            DomainState::Asked(_) | DomainState::Nothing => None,
        }
    }

    /// Returns the last known state of the domain.
    pub(super) fn seen(&self, domain: &DomainName) -> DomainState {
        let now = self.engine.clock.monotonic();
        let state = self.state();
        let at = |known: &CachedRoute| known.found.clone().ok().map(DomainState::At);
        match state.entries.get(domain) {
            Some(Entry::Known(known)) => at(known).unwrap_or(DomainState::Nothing),
            Some(Entry::Asked(asked)) => {
                asked.stale.as_ref().and_then(at).unwrap_or_else(|| DomainState::Asked(now.saturating_sub(asked.since)))
            }
            None => DomainState::Nothing,
        }
    }

    /// Begins lookups while permits are free.
    fn start(self: &Arc<Self>) {
        loop {
            let next = self.state().next();
            let Some((domain, claim)) = next else { return };
            // The future is boxed, because a lookup may start another one.
            let look_up: BoxFuture<'static, ()> = Box::pin(Arc::clone(self).serve(domain, claim));
            tokio::spawn(look_up);
        }
    }

    /// Looks up one domain, for which `claim` was granted.
    async fn serve(self: Arc<Self>, domain: DomainName, claim: Claim) {
        let mut looking =
            std::pin::pin!(self.looked_up(&domain, Requester { account: claim.account, stream: claim.stream }));
        let prompt = tokio::time::timeout(PROMPT, &mut looking).await;
        let goes_on = {
            let mut state = self.state();
            state.prompt.release(&claim);
            prompt.is_err() && state.slow.take_now(claim)
        };
        self.start();
        let found = match prompt {
            Ok(found) => found,
            Err(_slow) if goes_on => {
                let found = looking.await;
                self.state().slow.release(&claim);
                found
            }
            Err(_slow) => Err(RouteFailure::Unasked),
        };
        self.store_route(&domain, &claim, found);
    }

    /// Looks a domain up. A crash counts as a failed lookup, so that its waiters are served.
    async fn looked_up(&self, domain: &DomainName, requester: Requester) -> Result<Site, RouteFailure> {
        let looked_up = caught(self.look_up(domain, requester)).await;
        looked_up.unwrap_or_else(|crashed| Err(RouteFailure::Temporary(crashed.to_string())))
    }

    /// Looks up the servers, for the site, and also their addresses. So no worker waits for addresses while it holds a
    /// connection, and an unreachable domain never joins a destination queue.
    async fn look_up(&self, domain: &DomainName, requester: Requester) -> Result<Site, RouteFailure> {
        let resolver = &self.engine.resolver;
        let servers = resolver.mail_exchanges(domain, requester).await?;
        resolver.mail_hosts(domain, requester).await?;
        Ok(Site::of_servers(&servers, &self.shaping))
    }

    /// Caches the result, and gives back the timers of messages that waited for it.
    fn store_route(&self, domain: &DomainName, claim: &Claim, found: Result<Site, RouteFailure>) {
        let mut state = self.state();
        if !state.decides(domain, claim, &found) {
            return;
        }
        let lifetime = if found.is_ok() { SITE_LIFETIME } else { FAILURE_LIFETIME };
        let until = self.engine.clock.monotonic() + lifetime;
        let is_unasked = found == Err(RouteFailure::Unasked);
        let used = self.engine.clock.monotonic();
        let entry = Entry::Known(CachedRoute { found, until, used });
        state.bytes += ENTRY_BYTES + domain.as_str().len() + entry.bytes();
        let before = state.entries.insert(domain.clone(), entry);
        let Some(Entry::Asked(asked)) = before else { return };
        let was_half_full = state.waiting.used() >= WAITING_MAX / 2;
        asked.waiting.iter().for_each(|(timer, stream)| state.waiting.release(&Claim::single(timer.account, *stream)));
        state.withdraw(&asked.lookups);
        let is_half_empty = was_half_full && state.waiting.used() < WAITING_MAX / 2;
        // The lookup gave no result: the earlier state stays in use.
        if let Some(stale) = asked.stale.filter(|_| is_unasked) {
            state.entries.insert(domain.clone(), Entry::Known(stale));
        }
        drop(state);
        let timers = self.engine.store.timers();
        timers.give_back_all(asked.waiting.into_iter().map(|(timer, _)| timer));
        if is_half_empty {
            timers.set_alarm((self.engine.clock.now(), unassigned::NUMBER));
        }
    }
}
