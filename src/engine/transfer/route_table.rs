//! The table of domains' routes: known sites, lookups that run or wait, and the messages that wait for them. It has no
//! task and no lock; `routes` runs the lookups.

use std::collections::HashMap;
use std::time::Duration;

use super::site::Site;
use crate::domain::hostname::DomainName;
use crate::domain::stream::Stream;
use crate::engine::ports::RouteFailure;
use crate::machine::budget::{Budget, Claim, ClaimId};
use crate::store::timer::Timer;

/// Maximum number of concurrent lookups.
const PROMPT_MAX: u32 = 128;
/// Maximum number of slow lookups. Beyond that, a slow one is abandoned and repeated later.
const SLOW_MAX: u32 = 1024;
/// Maximum number of messages that wait for lookups, as timers in memory. Accounts share these places as they share
/// connections. Other messages stay only in the store. Tests use a smaller limit.
pub(super) const WAITING_MAX: u32 = if cfg!(test) { 2_048 } else { 65_536 };
/// Further time for which an outdated site is used while it is looked up again.
const STALE_LIFETIME: Duration = Duration::from_secs(600);
/// Memory for domains' sites: 6 MiB of the 32 MiB that all caches of names share. Beyond that, the least recently used
/// domains are removed.
const BYTES_MAX: usize = 6 * 1024 * 1024;
/// Memory of an entry, without its domain's name and its site's.
pub(super) const ENTRY_BYTES: usize = 256;

/// Route of a domain's mail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Route {
    /// The mail goes to this site.
    To(Site),
    /// The mail can't be sent anywhere.
    Failed(RouteFailure),
    /// The lookup runs. The timer is given back when it ends.
    Asked,
    /// Too many messages wait for lookups.
    Full,
}

/// State of a domain.
pub(super) enum Entry {
    Asked(DomainLookup),
    Known(CachedRoute),
}

impl Entry {
    /// Returns the memory of the site's name.
    pub(super) fn bytes(&self) -> usize {
        let site = match self {
            Self::Known(known) => known.found.as_ref().ok(),
            Self::Asked(asked) => asked.stale.as_ref().and_then(|stale| stale.found.as_ref().ok()),
        };
        site.map_or(0, |site| site.name().len())
    }
}

/// Last known state of a domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DomainState {
    /// The domain's mail goes to this site.
    At(Site),
    /// The domain has been looked up for this long.
    Asked(Duration),
    /// The domain is unknown.
    Nothing,
}

/// A domain whose lookup runs or waits.
pub(super) struct DomainLookup {
    /// Time at which the lookup began to wait.
    pub(super) since: Duration,
    /// One lookup for each account that needs it. The first result serves all.
    pub(super) lookups: Vec<Lookup>,
    pub(super) waiting: Vec<(Timer, Stream)>,
    /// The outdated site that is used meanwhile.
    pub(super) stale: Option<CachedRoute>,
}

/// One account's lookup of a domain.
pub(super) struct Lookup {
    claim: Claim,
    /// Place in the queue; `None` once it has begun.
    queued: Option<ClaimId>,
}

/// Cached result of a lookup.
pub(super) struct CachedRoute {
    pub(super) found: Result<Site, RouteFailure>,
    pub(super) until: Duration,
    pub(super) used: Duration,
}

impl CachedRoute {
    fn route(&self) -> Route {
        self.found.clone().map_or_else(Route::Failed, Route::To)
    }

    fn is_fresh(&self, now: Duration) -> bool {
        now < self.until
    }

    /// Returns whether the outdated site is still used while it is looked up again.
    fn may_serve(&self, now: Duration) -> bool {
        self.found.is_ok() && now < self.until + STALE_LIFETIME
    }
}

/// The domains' routes and lookups.
pub(super) struct RouteTable {
    pub(super) entries: HashMap<DomainName, Entry>,
    /// Number of bytes at which domains are removed.
    prune_at: usize,
    /// Memory of all entries added since domains were last removed, and of those that remained then.
    pub(super) bytes: usize,
    /// Domains whose lookup has not begun.
    queued: HashMap<ClaimId, DomainName>,
    /// Waiting messages.
    pub(super) waiting: Budget,
    pub(super) prompt: Budget,
    pub(super) slow: Budget,
}

impl Default for RouteTable {
    fn default() -> Self {
        let [waiting, prompt, slow] = [WAITING_MAX, PROMPT_MAX, SLOW_MAX].map(Budget::new);
        Self { entries: HashMap::new(), prune_at: 0, bytes: 0, queued: HashMap::new(), waiting, prompt, slow }
    }
}

impl RouteTable {
    /// Queues the account's lookup of `domain`, unless it has one. Transactional mail replaces a marketing claim.
    fn enqueue(&mut self, domain: &DomainName, claim: Claim) {
        let Some(Entry::Asked(asked)) = self.entries.get_mut(domain) else { return };
        let own = asked.lookups.iter().position(|one| one.claim.account == claim.account);
        if let Some(own) = own {
            let Lookup { claim: before, queued: Some(id) } = asked.lookups[own] else { return };
            if (before.stream, claim.stream) != (Stream::Marketing, Stream::Transactional) {
                return;
            }
            asked.lookups.swap_remove(own);
            self.prompt.withdraw(id, &before);
            self.queued.remove(&id);
        }
        let id = self.prompt.request(claim);
        self.queued.insert(id, domain.clone());
        asked.lookups.push(Lookup { claim, queued: Some(id) });
    }

    /// Lets another message wait for `domain`, which is unknown.
    pub(super) fn wait(&mut self, domain: &DomainName, timer: Timer, stream: Stream, since: Duration) -> Route {
        let claim = Claim::single(timer.account, stream);
        if !self.waiting.take_now(claim) {
            return Route::Full;
        }
        match self.entries.get_mut(domain) {
            Some(Entry::Asked(asked)) => asked.waiting.push((timer, stream)),
            Some(Entry::Known(_)) | None => {
                let asked = DomainLookup { since, lookups: Vec::new(), waiting: vec![(timer, stream)], stale: None };
                self.entries.insert(domain.clone(), Entry::Asked(asked));
            }
        }
        self.enqueue(domain, claim);
        Route::Asked
    }

    /// Returns the cached route that is valid at `now`. An outdated one is queued for another lookup.
    pub(super) fn known(&mut self, domain: &DomainName, claim: Claim, now: Duration) -> Option<Route> {
        let route = match self.entries.get_mut(domain)? {
            Entry::Known(known) if known.is_fresh(now) => {
                known.used = now;
                return Some(known.route());
            }
            Entry::Known(known) => known.may_serve(now).then(|| known.route())?,
            Entry::Asked(asked) => {
                return asked.stale.as_ref().filter(|stale| stale.may_serve(now)).map(CachedRoute::route);
            }
        };
        if let Some(Entry::Known(known)) = self.entries.remove(domain) {
            let asked = DomainLookup { since: now, lookups: Vec::new(), waiting: Vec::new(), stale: Some(known) };
            self.entries.insert(domain.clone(), Entry::Asked(asked));
        }
        self.enqueue(domain, claim);
        Some(route)
    }

    /// If the cache is full, removes the least recently used domains, down to half of the memory.
    pub(super) fn prune(&mut self) {
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
        // Domains whose lookup runs stay, so more may remain.
        self.prune_at = self.bytes * 2;
    }

    /// Returns the next domain to look up, and its granted claim.
    pub(super) fn next(&mut self) -> Option<(DomainName, Claim)> {
        let (id, claim) = self.prompt.grant()?;
        let domain = self.queued.remove(&id)?;
        if let Some(Entry::Asked(asked)) = self.entries.get_mut(&domain) {
            let own = asked.lookups.iter_mut().filter(|one| one.queued == Some(id));
            own.for_each(|own| own.queued = None);
        }
        Some((domain, claim))
    }

    /// Returns whether the result of an account's lookup becomes the domain's. A lookup that was impossible decides
    /// nothing while other accounts have theirs, and a late one does not replace a result.
    pub(super) fn decides(&mut self, domain: &DomainName, claim: &Claim, found: &Result<Site, RouteFailure>) -> bool {
        match self.entries.get_mut(domain) {
            Some(Entry::Asked(asked)) => {
                asked.lookups.retain(|one| one.queued.is_some() || one.claim.account != claim.account);
                *found != Err(RouteFailure::Unasked) || asked.lookups.is_empty()
            }
            Some(Entry::Known(_)) => found.is_ok(),
            None => true,
        }
    }

    /// Removes the domain's lookups that have not begun.
    pub(super) fn withdraw(&mut self, lookups: &[Lookup]) {
        for Lookup { claim, queued } in lookups {
            if let Some(id) = queued {
                self.prompt.withdraw(*id, claim);
                self.queued.remove(id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::{AccountId, Ulid};
    use crate::base::time::Timestamp;
    use crate::store::timer::TimerKind;

    #[test]
    fn an_impossible_lookup_decides_nothing_while_another_account_has_one() {
        let (mut table, domain) = (RouteTable::default(), "a.test".parse().unwrap());
        let mut claims = [1, 2].map(|number| {
            let timer = Timer::of_store(Timestamp::ZERO, TimerKind::Transfer);
            let timer = Timer { account: AccountId(Ulid([number; 16])), ..timer };
            assert_eq!(table.wait(&domain, timer, Stream::Transactional, Duration::ZERO), Route::Asked);
            table.next().unwrap().1
        });
        claims.sort_by_key(|claim| claim.account);
        let [first, second] = claims;
        let unasked = Err(RouteFailure::Unasked);
        assert!(!table.decides(&domain, &first, &unasked));
        assert!(table.decides(&domain, &second, &unasked), "it was the last");
    }
}
