//! Routes of domains: the site of a domain is looked up before a message joins a destination queue, once for all
//! waiting messages.
//!
//! A message that waits for a look-up is a timer and an entry here, never a task. The number of entries is limited.
//! Domains with transactional mail are looked up first, and marketing mail never uses all places. Accounts share the
//! look-ups as they share connections. A slow look-up gives its permit to others, so a silent name server delays no
//! other mail. An outdated site is looked up again while its mail continues.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::site::Site;
use super::unassigned;
use crate::base::id::AccountId;
use crate::domain::hostname::DomainName;
use crate::domain::stream::Stream;
use crate::engine::Engine;
use crate::engine::caught_panic::caught;
use crate::engine::ports::{BoxFuture, RouteFailure};
use crate::machine::budget::{Budget, Claim, ClaimId};
use crate::smtp::shaping::Shaping;
use crate::store::timer::Timer;

/// Maximum number of concurrent look-ups.
const PROMPT_MAX: u32 = 128;
/// Time after which a look-up counts as slow and gives its permit to the next one.
const PROMPT: Duration = Duration::from_secs(2);
/// Maximum number of slow look-ups. Beyond that, a slow one is abandoned and repeated later.
const SLOW_MAX: u32 = 1024;
/// Maximum number of messages that wait for look-ups, as timers in memory. Accounts share these places as they share
/// connections. Other messages stay only in the store. Tests use a smaller limit.
pub(super) const WAITING_MAX: u32 = if cfg!(test) { 2_048 } else { 65_536 };
/// Time for which a domain's site is cached. The servers themselves are looked up for every connection, by their TTL.
const SITE_LIFETIME: Duration = Duration::from_secs(60);
/// Further time for which an outdated site is used while it is looked up again.
const STALE_LIFETIME: Duration = Duration::from_secs(600);
/// Time for which a failure is cached: long enough to report it to all waiting messages.
const FAILURE_LIFETIME: Duration = Duration::from_secs(1);
/// Memory for domains' sites: 6 MiB of the 32 MiB that all caches of names share. Beyond that, the least recently used
/// domains are removed.
const BYTES_MAX: usize = 6 * 1024 * 1024;
/// Memory of an entry, without its domain's name and its site's.
const ENTRY_BYTES: usize = 256;

/// Route of a domain's mail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Route {
    /// The mail goes to this site.
    To(Site),
    /// The mail can't be sent anywhere.
    Failed(RouteFailure),
    /// The look-up runs. The timer is given back when it ends.
    Asked,
    /// Too many messages wait for look-ups.
    Full,
}

enum Entry {
    Asked(Asked),
    Known(Known),
}

impl Entry {
    /// Returns the memory of the site's name.
    fn bytes(&self) -> usize {
        let site = match self {
            Self::Known(known) => known.found.as_ref().ok(),
            Self::Asked(asked) => asked.stale.as_ref().and_then(|stale| stale.found.as_ref().ok()),
        };
        site.map_or(0, |site| site.name().len())
    }
}

/// Last known state of a domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Seen {
    /// Its mail goes to this site.
    At(Site),
    /// It has been looked up for this long.
    Asked(Duration),
    /// Nothing is known about it.
    Nothing,
}

/// A domain whose look-up runs or waits.
struct Asked {
    /// Time at which it began to wait.
    since: Duration,
    /// Its claim to a look-up; `None` once the look-up has begun.
    claim: Option<(ClaimId, Claim)>,
    waiting: Vec<(Timer, Stream)>,
    /// The outdated site that is used meanwhile.
    stale: Option<Known>,
}

/// Cached result of a look-up.
struct Known {
    found: Result<Site, RouteFailure>,
    until: Duration,
    used: Duration,
}

impl Known {
    fn route(&self) -> Route {
        self.found.clone().map_or_else(Route::Failed, Route::To)
    }

    fn is_fresh(&self, now: Duration) -> bool {
        now < self.until
    }

    /// Whether it is still used while it is looked up again.
    fn may_serve(&self, now: Duration) -> bool {
        self.found.is_ok() && now < self.until + STALE_LIFETIME
    }
}

/// All domains' routes.
pub(super) struct Routes {
    engine: Arc<Engine>,
    shaping: Arc<Shaping>,
    state: Mutex<State>,
}

struct State {
    entries: HashMap<DomainName, Entry>,
    /// Number of bytes at which domains are removed.
    prune_at: usize,
    /// Memory of all entries added since domains were last removed, and of those that remained then.
    bytes: usize,
    /// Domains whose look-up has not begun.
    queued: HashMap<ClaimId, DomainName>,
    /// Waiting messages.
    waiting: Budget,
    prompt: Budget,
    slow: Budget,
}

impl Default for State {
    fn default() -> Self {
        let [waiting, prompt, slow] = [WAITING_MAX, PROMPT_MAX, SLOW_MAX].map(Budget::new);
        Self { entries: HashMap::new(), prune_at: 0, bytes: 0, queued: HashMap::new(), waiting, prompt, slow }
    }
}

impl State {
    fn enqueue(&mut self, domain: &DomainName, claim: Claim) -> (ClaimId, Claim) {
        let id = self.prompt.request(claim);
        self.queued.insert(id, domain.clone());
        (id, claim)
    }

    /// Lets another message wait for `domain`, which is unknown. The first message of a stream queues the domain.
    fn wait(&mut self, domain: &DomainName, timer: Timer, stream: Stream, since: Duration) -> Route {
        let claim = claim(timer.account, stream);
        if !self.waiting.take_now(claim) {
            return Route::Full;
        }
        let before = match self.entries.get_mut(domain) {
            Some(Entry::Asked(asked)) => {
                asked.waiting.push((timer, stream));
                asked.claim
            }
            Some(Entry::Known(_)) | None => {
                let claim = Some(self.enqueue(domain, claim));
                let asked = Asked { since, claim, waiting: vec![(timer, stream)], stale: None };
                self.entries.insert(domain.clone(), Entry::Asked(asked));
                claim
            }
        };
        if let (Some((id, before @ Claim { stream: Stream::Marketing, .. })), Stream::Transactional) = (before, stream)
        {
            self.prompt.withdraw(id, &before);
            self.queued.remove(&id);
            let claim = self.enqueue(domain, claim);
            if let Some(Entry::Asked(asked)) = self.entries.get_mut(domain) {
                asked.claim = Some(claim);
            }
        }
        Route::Asked
    }

    /// Returns the cached route that is valid at `now`. An outdated one is queued for another look-up.
    fn known(&mut self, domain: &DomainName, claim: Claim, now: Duration) -> Option<Route> {
        let route = match self.entries.get_mut(domain)? {
            Entry::Known(known) if known.is_fresh(now) => {
                known.used = now;
                return Some(known.route());
            }
            Entry::Known(known) => known.may_serve(now).then(|| known.route())?,
            Entry::Asked(asked) => {
                return asked.stale.as_ref().filter(|stale| stale.may_serve(now)).map(Known::route);
            }
        };
        let claim = Some(self.enqueue(domain, claim));
        if let Some(Entry::Known(known)) = self.entries.remove(domain) {
            let asked = Asked { since: now, claim, waiting: Vec::new(), stale: Some(known) };
            self.entries.insert(domain.clone(), Entry::Asked(asked));
        }
        Some(route)
    }

    /// If the cache is full, removes the least recently used domains, down to half of the memory.
    fn prune(&mut self) {
        if self.bytes < self.prune_at.max(BYTES_MAX) {
            return;
        }
        let size = |(domain, entry): (&DomainName, &Entry)| ENTRY_BYTES + domain.as_str().len() + entry.bytes();
        let mut known: Vec<_> = self
            .entries
            .iter()
            .filter_map(|(domain, entry)| match entry {
                Entry::Known(known) => Some((known.used, domain.clone(), size((domain, entry)))),
                Entry::Asked(_) => None,
            })
            .collect();
        known.sort();
        self.bytes = self.entries.iter().map(size).sum();
        for (_, domain, bytes) in known {
            if self.bytes <= BYTES_MAX / 2 {
                break;
            }
            self.entries.remove(&domain);
            self.bytes -= bytes;
        }
        // Domains whose look-up runs stay, so more may remain.
        self.prune_at = self.bytes * 2;
    }

    /// Returns the next domain to look up, and its granted claim.
    fn next(&mut self) -> Option<(DomainName, Claim)> {
        let (id, claim) = self.prompt.grant()?;
        let domain = self.queued.remove(&id)?;
        if let Some(Entry::Asked(asked)) = self.entries.get_mut(&domain) {
            asked.claim = None;
        }
        Some((domain, claim))
    }
}

/// A message's claim to one look-up.
const fn claim(account: AccountId, stream: Stream) -> Claim {
    Claim { stream, account, site: None, network: None, units: 1 }
}

impl Routes {
    pub(super) fn new(engine: Arc<Engine>, shaping: Arc<Shaping>) -> Self {
        Self { engine, shaping, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the route of `domain` for the message of `timer`. The timer fires again after [`Route::Asked`].
    pub(super) fn get(self: &Arc<Self>, domain: &DomainName, timer: Timer, stream: Stream) -> Route {
        let now = self.engine.clock.monotonic();
        let mut state = self.state();
        state.prune();
        let known = state.known(domain, claim(timer.account, stream), now);
        let route = known.unwrap_or_else(|| state.wait(domain, timer, stream, now));
        drop(state);
        self.start();
        route
    }

    /// Whether another message may wait for a look-up.
    pub(super) fn has_room(&self, account: AccountId, stream: Stream) -> bool {
        self.state().waiting.would_fit(&claim(account, stream))
    }

    /// Whether almost no further message can wait for a look-up.
    pub(super) fn is_full(&self) -> bool {
        self.state().waiting.used() >= WAITING_MAX
    }

    /// Returns the last known site of `domain`, for the operator.
    pub(super) fn last_seen(&self, domain: &DomainName) -> Option<Site> {
        match self.seen(domain) {
            Seen::At(site) => Some(site),
            Seen::Asked(_) | Seen::Nothing => None,
        }
    }

    /// Returns the last known state of the domain.
    pub(super) fn seen(&self, domain: &DomainName) -> Seen {
        let now = self.engine.clock.monotonic();
        let state = self.state();
        let at = |known: &Known| known.found.clone().ok().map(Seen::At);
        match state.entries.get(domain) {
            Some(Entry::Known(known)) => at(known).unwrap_or(Seen::Nothing),
            Some(Entry::Asked(asked)) => {
                asked.stale.as_ref().and_then(at).unwrap_or_else(|| Seen::Asked(now.saturating_sub(asked.since)))
            }
            None => Seen::Nothing,
        }
    }

    /// Begins look-ups while permits are free.
    fn start(self: &Arc<Self>) {
        loop {
            let next = self.state().next();
            let Some((domain, claim)) = next else { return };
            // Boxed, because a look-up may start another one.
            let look_up: BoxFuture<'static, ()> = Box::pin(Arc::clone(self).serve(domain, claim));
            tokio::spawn(look_up);
        }
    }

    /// Looks up one domain, for which `claim` was granted.
    async fn serve(self: Arc<Self>, domain: DomainName, claim: Claim) {
        let mut looking = std::pin::pin!(self.looked_up(&domain));
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
        self.store_route(&domain, found);
    }

    /// Looks a domain up. A crash counts as a failed look-up, so that its waiters are served.
    async fn looked_up(&self, domain: &DomainName) -> Result<Site, RouteFailure> {
        let looked_up = caught(self.look_up(domain)).await;
        looked_up.unwrap_or_else(|crashed| Err(RouteFailure::Temporary(crashed.to_string())))
    }

    /// Looks up the servers, for the site, and also their addresses. So no worker waits for addresses while it holds a
    /// connection, and an unreachable domain never joins a destination queue.
    async fn look_up(&self, domain: &DomainName) -> Result<Site, RouteFailure> {
        let resolver = &self.engine.resolver;
        let servers = resolver.mail_exchanges(domain).await?;
        resolver.mail_hosts(domain).await?;
        Ok(Site::of_servers(&servers, &self.shaping))
    }

    /// Caches the result, and gives back the timers of messages that waited for it.
    fn store_route(&self, domain: &DomainName, found: Result<Site, RouteFailure>) {
        let lifetime = if found.is_ok() { SITE_LIFETIME } else { FAILURE_LIFETIME };
        let until = self.engine.clock.monotonic() + lifetime;
        let is_unasked = found == Err(RouteFailure::Unasked);
        let used = self.engine.clock.monotonic();
        let entry = Entry::Known(Known { found, until, used });
        let mut state = self.state();
        state.bytes += ENTRY_BYTES + domain.as_str().len() + entry.bytes();
        let before = state.entries.insert(domain.clone(), entry);
        let Some(Entry::Asked(asked)) = before else { return };
        let was_half_full = state.waiting.used() >= WAITING_MAX / 2;
        asked.waiting.iter().for_each(|(timer, stream)| state.waiting.release(&claim(timer.account, *stream)));
        let is_half_empty = was_half_full && state.waiting.used() < WAITING_MAX / 2;
        // The look-up gave no result: the earlier state stays in use.
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
