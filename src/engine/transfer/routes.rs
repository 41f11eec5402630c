//! Which site a domain belongs to: looked up before a message joins a lane, once however many wait for it.
//!
//! What waits for a name waits as a timer and an entry here, never as a task. A look-up that is slow makes way for
//! others, so that one name server that does not answer holds up nobody else's mail.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Semaphore;

use super::site::Site;
use crate::domain::hostname::DomainName;
use crate::engine::Engine;
use crate::engine::crash::caught;
use crate::engine::ports::{BoxFuture, RouteFailure};
use crate::smtp::shaping::Shaping;
use crate::store::timer::Timer;

/// Look-ups that are served as they come.
const PROMPT_MAX: usize = 128;
/// After so long a look-up is slow, and its place goes to the next.
const PROMPT: Duration = Duration::from_secs(2);
/// Slow look-ups on their way.
const SLOW_MAX: usize = 1024;
/// How long a domain's site is believed. The servers themselves are asked for again at every connection, by their TTL.
const SITE_LIFETIME: Duration = Duration::from_secs(60);
/// How long a failure is believed: as long as it takes to tell it to whoever waited.
const FAILURE_LIFETIME: Duration = Duration::from_secs(1);
/// Domains remembered at most; beyond that what has outlived its time is forgotten.
const DOMAINS_MAX: usize = 32_768;

/// What is known about a domain's mail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Route {
    /// It goes to this site.
    To(Site),
    /// It goes nowhere.
    Failed(RouteFailure),
    /// It is being looked up; whoever asked is given back when it is known.
    Asked,
}

enum Entry {
    Asked(Vec<Timer>),
    Known { route: Route, until: Duration },
}

/// All domains' routes.
pub(super) struct Routes {
    engine: Arc<Engine>,
    shaping: Arc<Shaping>,
    state: Mutex<State>,
    slow: Arc<Semaphore>,
}

#[derive(Default)]
struct State {
    entries: HashMap<DomainName, Entry>,
    /// Domains that nobody looks up yet.
    queue: VecDeque<DomainName>,
    /// Look-ups that are served as they come.
    prompt: usize,
}

impl Routes {
    pub(super) fn new(engine: Arc<Engine>, shaping: Arc<Shaping>) -> Self {
        Self { engine, shaping, state: Mutex::default(), slow: Arc::new(Semaphore::new(SLOW_MAX)) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The route of `domain` for the message of `timer`, which fires again where the answer is [`Route::Asked`].
    pub(super) fn get(self: &Arc<Self>, domain: &DomainName, timer: Timer) -> Route {
        let now = self.engine.clock.monotonic();
        let mut state = self.state();
        match state.entries.get_mut(domain) {
            Some(Entry::Asked(waiting)) => waiting.push(timer),
            Some(Entry::Known { route, until }) if *until > now => return route.clone(),
            Some(Entry::Known { .. }) | None => {
                if state.entries.len() >= DOMAINS_MAX {
                    state.entries.retain(|_, entry| matches!(entry, Entry::Asked(_)) || entry.is_known_at(now));
                }
                state.entries.insert(domain.clone(), Entry::Asked(vec![timer]));
                state.queue.push_back(domain.clone());
            }
        }
        let starts = state.prompt < PROMPT_MAX && !state.queue.is_empty();
        state.prompt += usize::from(starts);
        drop(state);
        if starts {
            tokio::spawn(Arc::clone(self).serve());
        }
        Route::Asked
    }

    /// The site of `domain` as it was last seen, for the operator.
    pub(super) fn last_seen(&self, domain: &DomainName) -> Option<Site> {
        match self.state().entries.get(domain)? {
            Entry::Known { route: Route::To(site), .. } => Some(site.clone()),
            Entry::Known { route: Route::Failed(_) | Route::Asked, .. } | Entry::Asked(_) => None,
        }
    }

    /// Looks up one domain after the other while there are some. Its place among the prompt ones is counted already.
    async fn serve(self: Arc<Self>) {
        while let Some(domain) = self.next() {
            let mut looking = std::pin::pin!(self.looked_up(&domain));
            let prompt = tokio::time::timeout(PROMPT, &mut looking).await;
            let Err(_slow) = prompt.map(|route| self.tell(&domain, route)) else { continue };
            let Ok(_place) = self.slow.try_acquire() else {
                // So many are slow that waiting is all there is to do.
                let route = looking.await;
                self.tell(&domain, route);
                continue;
            };
            self.give_way();
            let route = looking.await;
            self.tell(&domain, route);
            return;
        }
    }

    /// The next domain to look up; where there is none, a place is free.
    fn next(&self) -> Option<DomainName> {
        let mut state = self.state();
        let next = state.queue.pop_front();
        state.prompt -= usize::from(next.is_none());
        next
    }

    /// Lets another take the place of a slow look-up.
    fn give_way(self: &Arc<Self>) {
        let mut state = self.state();
        let goes_on = !state.queue.is_empty();
        state.prompt -= usize::from(!goes_on);
        drop(state);
        if goes_on {
            tokio::spawn(Box::pin(Arc::clone(self).serve()) as BoxFuture<'static, ()>);
        }
    }

    /// A look-up that crashes is one that failed: whoever waits for it is told.
    async fn looked_up(&self, domain: &DomainName) -> Route {
        let looked_up = caught(self.look_up(domain)).await;
        looked_up.unwrap_or_else(|crashed| Route::Failed(RouteFailure::Temporary(crashed.to_string())))
    }

    /// Both the set of servers, for the site, and their addresses: so that no worker waits for them with a connection
    /// in hand, and what can't be reached never joins a lane.
    async fn look_up(&self, domain: &DomainName) -> Route {
        let resolver = &self.engine.resolver;
        let servers = match resolver.mail_exchanges(domain).await {
            Ok(servers) => servers,
            Err(failure) => return Route::Failed(failure),
        };
        match resolver.mail_hosts(domain).await {
            Ok(_) => Route::To(Site::of_servers(&servers, &self.shaping)),
            Err(failure) => Route::Failed(failure),
        }
    }

    fn tell(&self, domain: &DomainName, route: Route) {
        let lifetime = match route {
            Route::To(_) => SITE_LIFETIME,
            Route::Failed(_) | Route::Asked => FAILURE_LIFETIME,
        };
        let until = self.engine.clock.monotonic() + lifetime;
        let before = self.state().entries.insert(domain.clone(), Entry::Known { route, until });
        if let Some(Entry::Asked(waiting)) = before {
            self.engine.store.near().give_back_all(waiting);
        }
    }
}

impl Entry {
    fn is_known_at(&self, now: Duration) -> bool {
        matches!(self, Self::Known { until, .. } if *until > now)
    }
}
