//! Transfers: from a due message to a recorded outcome.
//!
//! A due message gets a relay and a site, and waits in the destination queue of both. Only its timer is in memory. One
//! machine decides about all destinations ([`destinations`]). Each destination has a window of workers and its kept
//! connections. While its site is throttled, its messages are suspended without an attempt or a write. Then an alarm
//! starts one message as a probe.

mod account_parts;
mod attempt;
mod before_mail;
mod body;
mod candidates;
mod connecting;
mod destination_queue;
mod destinations;
pub(super) mod egress_routes;
mod failed_attempt;
mod keeper;
mod listed_sites;
mod listing;
mod overflow;
mod paused;
mod permit_classes;
mod pool;
mod relays;
mod route_table;
mod routes;
mod servers;
mod settle;
mod site;
#[cfg(test)]
mod tests;
mod tls_requirements;
mod unassigned;
mod wait_reason;
mod worker;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

use super::Engine;
use super::backlog::Backlog;
use super::fair_semaphore::FairSemaphore;
use super::lease::Leases;
use super::ports::{PolicyHosts, Transmit};
use super::relay::{RelayWay, next_day};
use super::stop_signal::StopSignal;
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
use destinations::{DeferredEffects, Destinations};
use egress_routes::{CaptureRoute, EgressRoutes};
use overflow::Reader;
use permit_classes::PermitClasses;
use relays::{Number, Relays};
use routes::{Route, Routes};
use servers::Servers;
use settle::Unsent;
use site::Site;

/// Time for which a stop waits for attempts in flight.
const GRACE: Duration = Duration::from_secs(30);
/// Number of attempts per permitted connection: as many as use their connections, and as many that look up servers or
/// wait for a connection.
const ATTEMPTS_PER_CONNECTION: u32 = 2;

/// Rules for the classification and the rates of transfers.
#[derive(Clone)]
pub struct Tables {
    /// Rules for the meaning of answers.
    pub rules: Arc<Rules>,
    /// Rates and limits of sites.
    pub shaping: Arc<Shaping>,
}

/// State shared by the workers.
pub(super) struct Shared {
    engine: Arc<Engine>,
    transmit: Arc<dyn Transmit>,
    relays: Relays,
    routes: Arc<Routes>,
    /// Port of the receivers' servers.
    port: u16,
    capture: Option<Arc<CaptureRoute>>,
    rules: Arc<Rules>,
    shaping: Arc<Shaping>,
    tls: TlsPolicies,
    leases: Leases,
    /// Permits for connections to each mail server.
    servers: Servers,
    /// Permits for attempts. Started messages that wait for one take little memory.
    attempts: PermitClasses,
    /// Permits for connections to mail servers.
    connections: PermitClasses,
    /// Memory for the bodies of messages in flight, in KiB, so that slow servers use a bounded amount.
    bodies: FairSemaphore,
    backlog: Backlog,
    /// The deciding machines, all behind one lock.
    destinations: Mutex<Destinations>,
    /// Start of the machine's time.
    started: Instant,
    stop: StopSignal,
    workers: Mutex<JoinSet<()>>,
}

impl Shared {
    pub(super) fn now(&self) -> Timestamp {
        self.engine.clock.now()
    }

    /// Returns the time by which deadlines are checked.
    pub(super) fn expiry(&self) -> Timestamp {
        self.engine.clock.time().expiry
    }

    pub(super) fn timers(&self) -> &TimerCache {
        self.engine.store.timers()
    }

    /// Returns whether a message waits for one of the service's connections.
    fn has_permit_waiters(&self) -> bool {
        self.connections.has_waiters() || self.attempts.has_waiters()
    }

    /// Returns the time of both clocks.
    pub(super) fn moment(&self) -> Moment {
        Moment { wall: self.now(), machine: self.started.elapsed() }
    }

    /// Resolves when no new work may start.
    pub(super) async fn closing(&self) {
        self.stop.wait().await;
    }

    /// Returns whether no new work may start.
    fn is_stopping(&self) -> bool {
        self.stop.is_set()
    }

    /// Starts a task that a stop waits for.
    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let mut workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
        while workers.try_join_next().is_some() {}
        // The future is boxed, because a worker may start another one.
        let work: super::ports::BoxFuture<'static, ()> = Box::pin(work);
        workers.spawn(work);
    }
}

/// All transfers.
pub(super) struct Transfers {
    shared: Arc<Shared>,
}

impl Transfers {
    pub(super) fn new(
        engine: Arc<Engine>,
        transmit: Arc<dyn Transmit>,
        policy_hosts: Arc<dyn PolicyHosts>,
        egress: EgressRoutes,
        tables: Tables,
        (backlog, stop): (Backlog, StopSignal),
    ) -> Self {
        let routes = Arc::new(Routes::new(Arc::clone(&engine), Arc::clone(&tables.shaping)));
        let tls = TlsPolicies::new(Arc::clone(&engine), policy_hosts, egress.port);
        let connections = u32::try_from(engine.settings.max_connections).unwrap_or(u32::MAX);
        let shared = Shared {
            transmit,
            relays: Relays::new(egress.relays),
            routes,
            port: egress.port,
            capture: egress.capture,
            rules: tables.rules,
            shaping: tables.shaping,
            tls,
            leases: engine.leases.clone(),
            servers: Servers::default(),
            attempts: PermitClasses::new(connections.saturating_mul(ATTEMPTS_PER_CONNECTION)),
            connections: PermitClasses::new(connections),
            bodies: FairSemaphore::new(engine.settings.body_kib),
            backlog,
            destinations: Mutex::default(),
            started: Instant::now(),
            stop,
            workers: Mutex::default(),
            engine,
        };
        shared.timers().suspend(paused::NUMBER);
        Self { shared: Arc::new(shared) }
    }

    /// Finds the route of the message of `timer`.
    pub(super) fn take(&self, timer: Timer, snapshot: &Snapshot) -> Result<(), StoreError> {
        let shared = &self.shared;
        let message = MessageId(timer.id);
        let Some(row) = snapshot.row::<MessageRow>(&schema::message(timer.account, message))? else {
            tracing::error!(message_id = %message, "timer names a message that does not exist; ignoring it");
            shared.timers().forget(&timer);
            return Ok(());
        };
        let time = shared.engine.clock.time();
        let (place, give_up_at) = (timer.place(), time.deadline(row.give_up_at));
        let queued = QueuedMessage { place, stream: row.stream, give_up_at };
        // A finished message needs no connection. It ends now, even if its site is throttled.
        if row.give_up_at <= time.expiry {
            shared.settle_unsent(queued, Unsent::Late);
            return Ok(());
        }
        let order = self.order(&queued, snapshot)?;
        if let Some(address) = shared.capture.as_ref().and_then(|route| route(&row.to)) {
            shared.enter(order[0], Site::Captured(address), queued);
            return Ok(());
        }
        self.choose(&order, &row, queued)
    }

    /// Returns the relays that a message may take, the one of its last attempt first.
    fn order(&self, queued: &QueuedMessage, snapshot: &Snapshot) -> Result<Vec<Number>, StoreError> {
        let relays = &self.shared.relays;
        if relays.is_lone() {
            return Ok(relays.order(queued.stream, queued.place.id));
        }
        let key = schema::message(queued.place.account, queued.place.id);
        let last = snapshot.row::<TransferRow>(&key)?.and_then(|transfer| transfer.last.relay);
        Ok(relays.order_after(queued.stream, queued.place.id, last.as_deref()))
    }

    /// Adds a message to the destination queue of the first relay that may take it. If all relays are backed off, the
    /// message waits for the first of them. If all have reached their daily cap, it waits for the next day.
    fn choose(&self, order: &[Number], row: &MessageRow, queued: QueuedMessage) -> Result<(), StoreError> {
        let (shared, now) = (&self.shared, self.shared.now());
        let mut fallback = None;
        for &number in order {
            let relay = shared.relays.relay(number);
            let site = match &relay.way {
                RelayWay::Smarthost(smarthost) => Site::of_smarthost(smarthost),
                RelayWay::Mx => {
                    match self.shared.routes.get(row.to.domain(), Timer::of_message(&queued), queued.stream) {
                        Route::To(site) => site,
                        Route::Asked => return Ok(()),
                        Route::Full => {
                            shared.leave_unassigned(&queued);
                            if self.shared.routes.has_room(queued.place.account, queued.stream) {
                                shared.read_unassigned_soon();
                            }
                            return Ok(());
                        }
                        Route::Failed(failure) => {
                            shared.settle_unsent(queued, Unsent::NoRoute(number, failure));
                            return Ok(());
                        }
                    }
                }
            };
            if shared.is_used_up(number, &site.name(), queued.place.account)? {
                continue;
            }
            if shared.held_until(number, queued.place.account, now).is_none() {
                shared.enter(number, site, queued);
                return Ok(());
            }
            fallback.get_or_insert((number, site));
        }
        match fallback {
            Some((number, site)) => shared.enter(number, site, queued),
            None => shared.postpone(queued, next_day(now)),
        }
        Ok(())
    }

    /// Handles an alarm. The destination that set it may probe its site or read spilled messages, or paused messages
    /// may have expired.
    pub(super) fn ring(self: &Arc<Self>, alarm: Alarm) {
        let shared = &self.shared;
        if alarm.1 == paused::NUMBER {
            shared.end_paused();
        }
        if alarm.1 == unassigned::NUMBER {
            self.read_unassigned();
        }
        let mut decided = DeferredEffects::default();
        shared.destinations().decide(shared, alarm.1, Input::Woken, &mut decided);
        let refill = decided.refill.take();
        shared.carry_out(decided);
        if let Some((queue, spill)) = refill {
            self.read(Reader::Queue(queue), spill);
        }
        // The alarm ends after the probe has started, so that the cache does not count as settled before.
        shared.timers().silence(&alarm);
    }

    /// Empties the queues after the stop signal; waiting messages stay in the store.
    pub(super) fn close(&self) {
        let shared = &self.shared;
        let decided = shared.destinations().stop(shared);
        shared.carry_out(decided);
    }

    /// Waits until the work in flight has ended, within the grace period.
    pub(super) async fn finish(&self) {
        let mut workers = std::mem::take(&mut *self.shared.workers.lock().unwrap_or_else(PoisonError::into_inner));
        let all_done = async { while workers.join_next().await.is_some() {} };
        if tokio::time::timeout(GRACE, all_done).await.is_err() {
            tracing::warn!(
                "connections to mail servers aborted after the grace period; messages are retried after the restart"
            );
        }
    }
}
