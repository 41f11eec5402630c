//! The dispatcher: takes due timers and hands each to its worker. Waiting messages and deliveries are rows, not tasks.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;

use super::alerts::notifier::Notifier;
use super::backlog::Backlog;
use super::deliver::Deliveries;
use super::ports::{PolicyHosts, Post, Transmit};
use super::queue::QueueView;
use super::stop_signal::StopSignal;
use super::sweep::Sweeper;
use super::tls_policy::TlsPolicies;
use super::transfer::Transfers;
use super::until_stopped::UntilStopped;
use super::{EgressRoutes, Engine, Tables};
use crate::store::error::StoreError;
use crate::store::timer::TimerKind;

/// Maximum number of timers handed out before the clock is read again.
const BATCH: usize = 512;
/// Interval between checks of a clock whose doubt is being settled.
const SETTLING: Duration = Duration::from_millis(20);

/// The dispatcher and its workers.
pub struct Dispatcher {
    engine: Arc<Engine>,
    /// Mail outcomes that are not recorded yet. Webhooks have their own backlog.
    backlog: Backlog,
    transfers: Arc<Transfers>,
    deliveries: Deliveries,
    sweeper: Sweeper,
    notifier: Arc<Notifier>,
    /// Sends the last notice of a deposed machine.
    _last: Arc<Notifier>,
    stop: StopSignal,
}

impl Dispatcher {
    /// Creates the dispatcher of `engine`, which sends through these ports, and classifies and throttles by these
    /// tables.
    pub fn new(
        engine: Arc<Engine>,
        transmit: Arc<dyn Transmit>,
        policy_hosts: Arc<dyn PolicyHosts>,
        post: Arc<dyn Post>,
        routes: EgressRoutes,
        tables: Tables,
    ) -> Self {
        let (backlog, stop) = (Backlog::default(), StopSignal::default());
        let notifier = |transmit, hosts, post| {
            let tls = TlsPolicies::new(Arc::clone(&engine), hosts, routes.port);
            Notifier::new(&engine, &routes, transmit, post, tls)
        };
        // A deposed machine sends its last notice while it stops.
        let last = notifier(Arc::clone(&transmit), Arc::clone(&policy_hosts), Arc::clone(&post));
        engine.alerts.last_notifier.get_or_init(|| Arc::downgrade(&last));
        let transmit: Arc<dyn Transmit> = Arc::new(UntilStopped::new(transmit, stop.clone()));
        let policy_hosts: Arc<dyn PolicyHosts> = Arc::new(UntilStopped::new(policy_hosts, stop.clone()));
        let post_of_service: Arc<dyn Post> = Arc::new(UntilStopped::new(Arc::clone(&post), stop.clone()));
        let notifier = notifier(Arc::clone(&transmit), Arc::clone(&policy_hosts), Arc::clone(&post_of_service));
        let on_transfers = (backlog.clone(), stop.clone());
        engine.alerts.notifier.get_or_init(|| Arc::downgrade(&notifier));
        let transfers = Transfers::new(Arc::clone(&engine), transmit, policy_hosts, routes, tables, on_transfers);
        let transfers = Arc::new(transfers);
        let view = Arc::downgrade(&transfers);
        engine.queue_view.get_or_init(|| view as std::sync::Weak<dyn QueueView>);
        let sweeper = Sweeper::new(Arc::clone(&engine), post_of_service);
        let deliveries = Deliveries::new(Arc::clone(&engine), post, sweeper.clone(), stop.clone());
        Self { engine, backlog, transfers, deliveries, sweeper, notifier, _last: last, stop }
    }

    /// Runs until `stop` is set. Then it starts no new work, and work in flight ends normally.
    ///
    /// # Errors
    /// The store's failure, which is fatal.
    pub async fn run(self, mut stop: watch::Receiver<bool>) -> Result<(), StoreError> {
        // The set is dropped with this function, which aborts its tasks.
        let mut watches = JoinSet::new();
        let watched = Arc::clone(&self.engine);
        watches.spawn(async move { watched.watch_clock().await });
        let watched = Arc::clone(&self.engine);
        watches.spawn(async move { watched.watch_alerts().await });
        let warmed = Arc::clone(&self.engine);
        watches.spawn(async move { warmed.watch_dmarc_sums().await });
        let watched = Arc::clone(&self.engine);
        watches.spawn(async move { watched.watch_stores_aside().await });
        while !*stop.borrow() {
            let changed = self.engine.store.timers().changed();
            let freed = self.backlog.freed();
            let free = self.backlog.free();
            let time = self.engine.clock.time();
            let now = time.now;
            self.engine.store.timers().freeze(time.is_frozen);
            if time.is_settling() {
                // Until deadlines follow the clock again, work is postponed even if its lifetime may be over.
                tokio::select! {
                    biased;
                    _ = stop.changed() => {}
                    () = self.engine.clock.sleep_until(now + SETTLING) => {}
                }
                continue;
            }
            let due = self.engine.store.timers().take_due(now, BATCH.min(free));
            for alarm in due.alarms {
                self.transfers.ring(alarm);
            }
            if due.needs_refill {
                self.engine.store.timers().refill(now, || self.engine.store.snapshot())?;
                self.hand_out(due.timers)?;
                continue;
            }
            if !due.timers.is_empty() {
                self.hand_out(due.timers)?;
                // Let the workers start the work that they were given.
                tokio::task::yield_now().await;
                continue;
            }
            tokio::select! {
                biased;
                _ = stop.changed() => {}
                () = changed => {}
                () = freed, if free == 0 => {}
                () = self.engine.clock.sleep_until(due.next), if free > 0 => {}
            }
        }
        self.stop.set();
        self.transfers.close();
        self.deliveries.close();
        tokio::join!(self.transfers.finish(), self.deliveries.finish());
        Ok(())
    }

    fn hand_out(&self, timers: Vec<crate::store::timer::Timer>) -> Result<(), StoreError> {
        if timers.is_empty() {
            return Ok(());
        }
        let snapshot = self.engine.store.snapshot()?;
        let mut deliveries = Vec::new();
        for timer in timers {
            let handed = match timer.kind {
                TimerKind::Transfer => self.transfers.take(timer, &snapshot),
                TimerKind::Delivery => {
                    deliveries.push(timer);
                    Ok(())
                }
                TimerKind::Unpark => {
                    self.deliveries.unpark(timer);
                    Ok(())
                }
                TimerKind::Notice => {
                    self.notifier.take(timer);
                    Ok(())
                }
                TimerKind::DomainCheck
                | TimerKind::DkimRotation
                | TimerKind::AlertAnnouncement
                | TimerKind::AlertReminder
                | TimerKind::AlertExpiry
                | TimerKind::Idempotency
                | TimerKind::Content
                | TimerKind::EventLog
                | TimerKind::Deliveries
                | TimerKind::StsPolicy
                | TimerKind::TlsReports
                | TimerKind::Reputation
                | TimerKind::MessageIndex
                | TimerKind::SuppressionImport
                | TimerKind::ViewEnd
                | TimerKind::TlsReport
                | TimerKind::EndpointEnd => {
                    self.sweeper.take(timer);
                    Ok(())
                }
            };
            match handed {
                // One damaged row must not stop all other rows. Its timer waits until the store is repaired.
                Err(error) if error.is_of_row() => {
                    tracing::error!(%error, "could not read a due row; its work waits until the store is repaired");
                    self.engine.store.timers().forget(&timer);
                }
                handed => handed?,
            }
        }
        self.deliveries.take(deliveries, &snapshot)
    }
}
