//! From a due message to a settled attempt.
//!
//! A due message chooses its relay, finds its site, and waits in the lane of both, in memory as a timer alone. A lane
//! has a window of workers and its kept connections. A lane whose site turned us away is held back: what waits in it
//! rests, without an attempt and without a write, until an alarm has one message probe the site.

mod attempt;
mod before_mail;
mod body;
mod candidates;
mod connecting;
mod destination_queue;
pub(super) mod egress_routes;
mod failed_attempt;
mod keeper;
mod listing;
mod overflow;
mod paused;
mod pool;
mod relays;
mod routes;
mod settle;
mod site;
#[cfg(test)]
mod tests;
mod tls_requirements;
mod unassigned;
mod wait_reason;
mod worker;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::Engine;
use super::backlog::Backlog;
use super::fair_semaphore::FairSemaphore;
use super::lease::Leases;
use super::ports::{PolicyHosts, Transmit};
use super::relay::{RelayWay, next_day};
use super::tls_policy::TlsPolicies;
use crate::base::id::MessageId;
use crate::base::time::Timestamp;
use crate::machine::destination::{Input, Moment, QueuedMessage};
use crate::smtp::rules::Rules;
use crate::smtp::shaping::Shaping;
use crate::store::error::StoreError;
use crate::store::read::Read;
use crate::store::row::message::{MessageRow, TransferRow};
use crate::store::schema;
use crate::store::snapshot::Snapshot;
use crate::store::timer::Timer;
use crate::store::timer_cache::{Alarm, TimerCache};
use destination_queue::Lane;
use egress_routes::{InHouse, Ways};
use overflow::Reader;
use paused::Paused;
use relays::{Number, Relays};
use routes::{Route, Routes};
use settle::Unsent;
use site::Site;
use unassigned::Aside;

/// Lanes remembered at most while they are idle: what is forgotten is only how fast a site may be served.
const LANES_MAX: usize = 10_000;
/// Time for which stopping waits for attempts in flight.
const GRACE: Duration = Duration::from_secs(30);

/// Rules by which transfers are judged and paced.
#[derive(Clone)]
pub struct Tables {
    /// Meanings of answers.
    pub rules: Arc<Rules>,
    /// Paces and limits of sites.
    pub shaping: Arc<Shaping>,
}

/// State that the workers share.
pub(super) struct Shared {
    engine: Arc<Engine>,
    transmit: Arc<dyn Transmit>,
    relays: Relays,
    /// The port of receivers' servers.
    port: u16,
    in_house: Option<Arc<InHouse>>,
    rules: Arc<Rules>,
    shaping: Arc<Shaping>,
    tls: TlsPolicies,
    leases: Leases,
    /// Connections to mail servers in all.
    connections: FairSemaphore,
    /// The part of them for sites that have yet to take a message, or failed since: any number of servers that say
    /// nothing leave room to those that are known to answer.
    unproven: FairSemaphore,
    /// The few of those for sites that were silent.
    silent: FairSemaphore,
    /// Room for the bodies of what is on the wire, in KiB, so that slow servers hold bounded memory.
    bodies: FairSemaphore,
    backlog: Backlog,
    /// Messages whose accounts have paused them.
    paused: Paused,
    /// Messages of no destination queue that memory has no room for.
    aside: Aside,
    /// Messages that wait in lanes.
    queued: AtomicUsize,
    /// The beginning of the machine's time.
    started: Instant,
    stop: watch::Sender<bool>,
    workers: Mutex<JoinSet<()>>,
}

impl Shared {
    pub(super) fn now(&self) -> Timestamp {
        self.engine.clock.now()
    }

    /// The time by which deadlines are judged.
    pub(super) fn expiry(&self) -> Timestamp {
        self.engine.clock.time().expiry
    }

    pub(super) fn near(&self) -> &TimerCache {
        self.engine.store.timers()
    }

    /// The time on both clocks.
    pub(super) fn moment(&self) -> Moment {
        Moment { wall: self.now(), machine: self.started.elapsed() }
    }

    /// A destination queue has so many messages, where it had `before`.
    pub(super) fn queue_changed(&self, before: usize, now: usize) {
        self.queued.fetch_add(now.saturating_sub(before), Ordering::AcqRel);
        self.queued.fetch_sub(before.saturating_sub(now), Ordering::AcqRel);
    }

    /// The number of messages in destination queues.
    fn queued(&self) -> usize {
        self.queued.load(Ordering::Acquire)
    }

    /// Resolves when nothing new is to begin.
    pub(super) async fn closing(&self) {
        // An error says that nobody is left to stop us: the process is ending.
        drop(self.stop.subscribe().wait_for(|stops| *stops).await);
    }

    /// Whether nothing new may begin.
    fn is_stopping(&self) -> bool {
        *self.stop.borrow()
    }

    /// Starts a task that is waited for when the service stops.
    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let mut workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
        while workers.try_join_next().is_some() {}
        // Boxed, for a worker may start another.
        let work: super::ports::BoxFuture<'static, ()> = Box::pin(work);
        workers.spawn(work);
    }
}

/// All lanes.
pub(super) struct Transfers {
    shared: Arc<Shared>,
    routes: Arc<Routes>,
    lanes: Mutex<Lanes>,
}

#[derive(Default)]
struct Lanes {
    by_way: HashMap<(Number, Site), Arc<Lane>>,
    /// The same, by the numbers under which they set alarms.
    by_number: HashMap<u64, Arc<Lane>>,
    last_number: u64,
}

fn way_lanes(lanes: &Lanes) -> Vec<Arc<Lane>> {
    lanes.by_way.values().map(Arc::clone).collect()
}

impl Transfers {
    pub(super) fn new(
        engine: Arc<Engine>,
        transmit: Arc<dyn Transmit>,
        policy_hosts: Arc<dyn PolicyHosts>,
        ways: Ways,
        tables: Tables,
        backlog: Backlog,
    ) -> Self {
        let routes = Arc::new(Routes::new(Arc::clone(&engine), Arc::clone(&tables.shaping)));
        let tls = TlsPolicies::new(Arc::clone(&engine), policy_hosts, ways.port);
        let connections = u32::try_from(engine.settings.max_connections).unwrap_or(u32::MAX);
        let shared = Shared {
            transmit,
            relays: Relays::new(ways.relays),
            port: ways.port,
            in_house: ways.in_house,
            rules: tables.rules,
            shaping: tables.shaping,
            tls,
            leases: engine.leases.clone(),
            connections: FairSemaphore::new(connections),
            unproven: FairSemaphore::of_unproven(connections),
            silent: FairSemaphore::of_silent(connections),
            bodies: FairSemaphore::new(engine.settings.body_kib),
            backlog,
            paused: Paused::default(),
            aside: Aside::default(),
            queued: AtomicUsize::new(0),
            started: Instant::now(),
            stop: watch::Sender::new(false),
            workers: Mutex::default(),
            engine,
        };
        shared.near().suspend(paused::NUMBER);
        Self { shared: Arc::new(shared), routes, lanes: Mutex::default() }
    }

    fn lanes(&self) -> MutexGuard<'_, Lanes> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Finds the way of the message of `timer`.
    pub(super) fn take(&self, timer: Timer, snapshot: &Snapshot) -> Result<(), StoreError> {
        let shared = &self.shared;
        let message = MessageId(timer.id);
        let Some(row) = snapshot.row::<MessageRow>(&schema::message(timer.account, message))? else {
            tracing::error!(message_id = %message, "timer names a message that does not exist");
            shared.near().forget(&timer);
            return Ok(());
        };
        let time = shared.engine.clock.time();
        let (place, give_up_at) = (timer.place(), time.deadline(row.give_up_at));
        let queued = QueuedMessage { place, stream: row.stream, give_up_at };
        // A finished message needs no connection: it ends now, throttled or not.
        if row.give_up_at <= time.expiry {
            shared.settle_unsent(queued, Unsent::Late);
            return Ok(());
        }
        let order = self.order(&queued, snapshot)?;
        if let Some(address) = shared.in_house.as_ref().and_then(|route| route(&row.to)) {
            self.enter(order[0], Site::InHouse(address), queued);
            return Ok(());
        }
        self.choose(&order, &row, queued)
    }

    /// The relays that a message may take, the one of its last attempt first.
    fn order(&self, queued: &QueuedMessage, snapshot: &Snapshot) -> Result<Vec<Number>, StoreError> {
        let relays = &self.shared.relays;
        if relays.is_lone() {
            return Ok(relays.order(queued.stream, queued.place.id));
        }
        let key = schema::message(queued.place.account, queued.place.id);
        let last = snapshot.row::<TransferRow>(&key)?.and_then(|transfer| transfer.last.relay);
        Ok(relays.order_after(queued.stream, queued.place.id, last.as_deref()))
    }

    /// Has a message enter the lane of the first relay that may take it. Where all are held back it waits with the
    /// first of them; where all are used up, for the next day.
    fn choose(&self, order: &[Number], row: &MessageRow, queued: QueuedMessage) -> Result<(), StoreError> {
        let (shared, now) = (&self.shared, self.shared.now());
        let mut fallback = None;
        for &number in order {
            let relay = shared.relays.relay(number);
            let site = match &relay.way {
                RelayWay::Smarthost(smarthost) => Site::of_smarthost(smarthost),
                RelayWay::Mx => match self.routes.get(row.to.domain(), Timer::of_message(&queued), queued.stream) {
                    Route::To(site) => site,
                    Route::Asked => return Ok(()),
                    Route::Full => {
                        shared.aside.leave(&queued, shared.near());
                        if self.routes.has_room(queued.place.account, queued.stream) {
                            shared.aside.call_for_more(now, shared.near());
                        }
                        return Ok(());
                    }
                    Route::Failed(failure) => {
                        shared.settle_unsent(queued, Unsent::NoRoute(number, failure));
                        return Ok(());
                    }
                },
            };
            if shared.relays.is_used_up(number, &site.name(), now, &shared.engine.store)? {
                continue;
            }
            if shared.relays.held_until(number, now).is_none() {
                self.enter(number, site, queued);
                return Ok(());
            }
            fallback.get_or_insert((number, site));
        }
        match fallback {
            Some((number, site)) => self.enter(number, site, queued),
            None => shared.put_off(queued, next_day(now)),
        }
        Ok(())
    }

    fn enter(&self, relay: Number, site: Site, queued: QueuedMessage) {
        let (shared, now) = (&self.shared, self.shared.now());
        let lane = self.lane(relay, site);
        if let Some(until) = shared.relays.held_until(relay, now) {
            lane.handle(shared, Input::Throttle(until));
        }
        lane.handle(shared, Input::Due(queued));
        self.make_room();
    }

    fn lane(&self, relay: Number, site: Site) -> Arc<Lane> {
        let mut lanes = self.lanes();
        if let Some(lane) = lanes.by_way.get(&(relay, site.clone())) {
            return Arc::clone(lane);
        }
        if lanes.by_way.len() >= LANES_MAX {
            let now = self.shared.now();
            let idle = |lane: &Lane| lane.state().destination.is_idle(now).then_some(lane.number);
            let idle: HashSet<u64> = lanes.by_way.values().filter_map(|lane| idle(lane)).collect();
            lanes.by_way.retain(|_, lane| !idle.contains(&lane.number));
            lanes.by_number.retain(|number, _| !idle.contains(number));
            idle.into_iter().for_each(|number| self.shared.near().resume(number));
        }
        lanes.last_number += 1;
        let limits = self.shared.shaping.limits(site.provider());
        let is_shared = self.shared.relays.relay(relay).streams.len() > 1;
        // All relays' connections to a site count as one site's.
        let of_relay = |relay| lanes.by_way.get(&(relay, site.clone())).map(|lane| lane.site_key);
        let site_key = self.shared.relays.numbers().find_map(of_relay).unwrap_or(lanes.last_number);
        let names = (lanes.last_number, site_key);
        let lane = Arc::new(Lane::new(names, relay, site.clone(), limits, is_shared));
        lanes.by_way.insert((relay, site), Arc::clone(&lane));
        lanes.by_number.insert(lane.number, Arc::clone(&lane));
        lane
    }

    /// An alarm has come: the lane that set it may probe its site, or what is paused has come to its end.
    pub(super) fn ring(self: &Arc<Self>, alarm: Alarm) {
        if alarm.1 == paused::NUMBER {
            self.shared.end_paused();
        }
        if alarm.1 == unassigned::NUMBER {
            self.read_aside();
        }
        let lane = self.lanes().by_number.get(&alarm.1).map(Arc::clone);
        if let Some(lane) = lane
            && let Some(spill) = lane.wake(&self.shared)
        {
            self.read(Reader::Queue(lane), spill);
        }
        // Only now: until the probe has started, nothing may count as settled.
        self.shared.near().silence(&alarm);
    }

    /// Lets nothing new begin; what waits stays in the store.
    pub(super) fn close(&self) {
        self.shared.stop.send_replace(true);
        let lanes = way_lanes(&self.lanes());
        lanes.iter().for_each(|lane| lane.handle(&self.shared, Input::Stop));
    }

    /// Waits until what is on the wire has ended, within the grace.
    pub(super) async fn finish(&self) {
        let mut workers = std::mem::take(&mut *self.shared.workers.lock().unwrap_or_else(PoisonError::into_inner));
        let all_done = async { while workers.join_next().await.is_some() {} };
        if tokio::time::timeout(GRACE, all_done).await.is_err() {
            tracing::warn!("connections to mail servers aborted after the grace period");
        }
    }
}
