//! Which site a domain belongs to: looked up before a message joins a destination queue, once however many wait for it.
//!
//! What waits for a name waits as a timer and an entry here, never as a task, and so many at most. Names that
//! transactional mail waits for are asked for first, and marketing never takes all places. Accounts share the places
//! for look-ups as they share connections. A look-up that is slow makes way for others, so that one name server that
//! does not answer holds up nobody else's mail. A site that was seen a while ago is looked up again behind the mail,
//! which goes on.

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

/// Look-ups that are served as they come.
const PROMPT_MAX: u32 = 128;
/// After so long a look-up is slow, and its place goes to the next.
const PROMPT: Duration = Duration::from_secs(2);
/// Slow look-ups on their way. Beyond that a slow one is given up, and whoever waits for it asks again later.
const SLOW_MAX: u32 = 1024;
/// Messages that wait for names, as timers in memory. Accounts share them as they share connections. Others stay in the
/// store alone. Tests get there sooner.
pub(super) const WAITING_MAX: u32 = if cfg!(test) { 2_048 } else { 65_536 };
/// Time for which a domain's site is cached. The servers themselves are looked up at every connection, by their TTL.
const SITE_LIFETIME: Duration = Duration::from_secs(60);
/// For how much longer it serves while it is looked up again.
const STALE_LIFETIME: Duration = Duration::from_secs(600);
/// Time for which a failure is cached: long enough to report it to all that waited.
const FAILURE_LIFETIME: Duration = Duration::from_secs(1);
/// Memory for domains' sites: 6 MiB of the 32 MiB that all caches of names share. Beyond that, the domains that were
/// used least recently are forgotten.
const BYTES_MAX: usize = 6 * 1024 * 1024;
/// Memory of a domain beside its name and its site's.
const ENTRY_BYTES: usize = 256;

/// Route of a domain's mail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Route {
    /// It goes to this site.
    To(Site),
    /// It goes nowhere.
    Failed(RouteFailure),
    /// It is being looked up; whoever asked is given back when it is known.
    Asked,
    /// So many wait for names that nobody else can.
    Full,
}

enum Entry {
    Asked(Asked),
    Known(Known),
}

impl Entry {
    /// The memory of its site's name.
    fn bytes(&self) -> usize {
        let site = match self {
            Self::Known(known) => known.found.as_ref().ok(),
            Self::Asked(asked) => asked.stale.as_ref().and_then(|stale| stale.found.as_ref().ok()),
        };
        site.map_or(0, |site| site.name().len())
    }
}

/// A domain as it was last seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Seen {
    /// Its mail goes to this site.
    At(Site),
    /// It is being looked up, for so long already.
    Asked(Duration),
    /// Nothing is known of it.
    Nothing,
}

/// A domain that is being looked up, or waits for it.
struct Asked {
    /// When it began to wait.
    since: Duration,
    /// Its claim to a look-up. None once that has begun.
    claim: Option<(ClaimId, Claim)>,
    waiting: Vec<(Timer, Stream)>,
    /// The site that serves meanwhile.
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

    /// Whether it still serves while it is looked up again.
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
    /// At how many bytes domains are forgotten.
    prune_at: usize,
    /// The memory of all that was added since domains were last forgotten, and of what was left then.
    bytes: usize,
    /// Domains whose look-up has not begun.
    queued: HashMap<ClaimId, DomainName>,
    /// Messages that wait.
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

    /// Has another message wait for `domain`, which nobody knows: the first of a stream brings it into its queue.
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

    /// Returns the cached route that serves at `now`; an outdated one is queued for another look-up.
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

    /// Forgets the domains that were used least recently, down to half of the memory, once it is full.
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
        // Domains that are being looked up stay, so there may be more left than that.
        self.prune_at = self.bytes * 2;
    }

    /// The next domain to look up, and the claim that was granted for it.
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

    /// The route of `domain` for the message of `timer`, which fires again where the answer is [`Route::Asked`].
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

    /// Whether another message may wait for a name.
    pub(super) fn has_room(&self, account: AccountId, stream: Stream) -> bool {
        self.state().waiting.would_fit(&claim(account, stream))
    }

    /// Whether so many messages wait for names that hardly another can.
    pub(super) fn is_full(&self) -> bool {
        self.state().waiting.used() >= WAITING_MAX
    }

    /// The site of `domain` as it was last seen, for the operator.
    pub(super) fn last_seen(&self, domain: &DomainName) -> Option<Site> {
        match self.seen(domain) {
            Seen::At(site) => Some(site),
            Seen::Asked(_) | Seen::Nothing => None,
        }
    }

    /// The domain as it was last seen.
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

    /// Begins look-ups while there are places for them.
    fn start(self: &Arc<Self>) {
        loop {
            let next = self.state().next();
            let Some((domain, claim)) = next else { return };
            // Boxed, for a look-up may start another.
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
        self.tell(&domain, found);
    }

    /// A look-up that crashes is one that failed: whoever waits for it is told.
    async fn looked_up(&self, domain: &DomainName) -> Result<Site, RouteFailure> {
        let looked_up = caught(self.look_up(domain)).await;
        looked_up.unwrap_or_else(|crashed| Err(RouteFailure::Temporary(crashed.to_string())))
    }

    /// Both the set of servers, for the site, and their addresses: so that no worker waits for them with a connection
    /// in hand, and what can't be reached never joins a destination queue.
    async fn look_up(&self, domain: &DomainName) -> Result<Site, RouteFailure> {
        let resolver = &self.engine.resolver;
        let servers = resolver.mail_exchanges(domain).await?;
        resolver.mail_hosts(domain).await?;
        Ok(Site::of_servers(&servers, &self.shaping))
    }

    /// Keeps what was found, and gives back who waited for it.
    fn tell(&self, domain: &DomainName, found: Result<Site, RouteFailure>) {
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
        // Nothing was learnt: what was known goes on to serve.
        if let Some(stale) = asked.stale.filter(|_| is_unasked) {
            state.entries.insert(domain.clone(), Entry::Known(stale));
        }
        drop(state);
        let near = self.engine.store.timers();
        near.give_back_all(asked.waiting.into_iter().map(|(timer, _)| timer));
        if is_half_empty {
            near.set_alarm((self.engine.clock.now(), unassigned::NUMBER));
        }
    }
}
