//! From a due message to a settled attempt.
//!
//! Messages wait in lanes, one for each place that they go to; a lane has a window of workers, each with one kept
//! connection. A lane whose server turned us away is held back: what waits in it is put off without an attempt.

mod attempt;
mod held;
mod lane;
pub(super) mod way;
mod worker;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

use super::Engine;
use super::backlog::{Backlog, Held};
use super::lease::Leases;
use super::ports::{PolicyHosts, Transmit};
use super::tls_policy::TlsPolicies;
use crate::base::id::{AccountId, MessageId};
use crate::smtp::rules::Rules;
use crate::store::error::StoreError;
use crate::store::read::Read;
use crate::store::row::message::MessageRow;
use crate::store::schema;
use crate::store::snapshot::Snapshot;
use crate::store::timer::Timer;
use lane::Lane;
use way::{Place, Ways};

/// Lanes remembered at most while they are idle: what is forgotten is only how fast a site may be served.
const LANES_MAX: usize = 10_000;
/// What the bodies on the wire may hold together: 256 MiB.
const BODIES_KIB: u32 = 256 * 1024;
/// When a message is looked at again whose lane was full.
const FULL_LANE: Duration = Duration::from_secs(60);
/// How long stopping waits for what is on the wire.
const GRACE: Duration = Duration::from_secs(30);

/// A message whose timer has fired.
pub(super) struct Job {
    pub(super) timer: Timer,
    pub(super) message: MessageRow,
    _held: Held,
}

impl Job {
    pub(super) const fn account(&self) -> AccountId {
        self.timer.account
    }

    pub(super) const fn id(&self) -> MessageId {
        MessageId(self.timer.id)
    }
}

/// What the workers share.
pub(super) struct Shared {
    pub(super) engine: Arc<Engine>,
    pub(super) transmit: Arc<dyn Transmit>,
    pub(super) ways: Ways,
    pub(super) rules: Arc<Rules>,
    pub(super) tls: TlsPolicies,
    pub(super) leases: Leases,
    /// Connections to mail servers in all.
    pub(super) connections: Arc<Semaphore>,
    /// Room for the bodies of what is on the wire, in KiB, so that slow servers hold bounded memory.
    bodies_kib: Arc<Semaphore>,
    workers: Mutex<JoinSet<()>>,
}

impl Shared {
    /// Waits for room for a body of `octets`, and holds it until the permit is dropped.
    pub(super) async fn body_room(&self, octets: u32) -> Option<OwnedSemaphorePermit> {
        let kib = (octets / 1024 + 1).min(BODIES_KIB);
        Arc::clone(&self.bodies_kib).acquire_many_owned(kib).await.ok()
    }

    /// Starts a worker that its lane has counted.
    fn start_worker(self: &Arc<Self>, lane: Arc<Lane>) {
        let mut workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
        while workers.try_join_next().is_some() {}
        workers.spawn(worker::run(Arc::clone(self), lane));
    }
}

/// All lanes.
pub(super) struct Transfers {
    shared: Arc<Shared>,
    lanes: Mutex<HashMap<Place, Arc<Lane>>>,
    backlog: Backlog,
}

impl Transfers {
    pub(super) fn new(
        engine: Arc<Engine>,
        transmit: Arc<dyn Transmit>,
        policy_hosts: Arc<dyn PolicyHosts>,
        ways: Ways,
        rules: Arc<Rules>,
        backlog: Backlog,
    ) -> Self {
        let connections = Arc::new(Semaphore::new(engine.settings.max_connections));
        let leases = engine.leases.clone();
        let workers = Mutex::default();
        let bodies_kib = Arc::new(Semaphore::new(BODIES_KIB as usize));
        let tls = TlsPolicies::new(Arc::clone(&engine), policy_hosts, ways.port);
        let shared = Arc::new(Shared { engine, transmit, ways, rules, tls, leases, connections, bodies_kib, workers });
        Self { shared, lanes: Mutex::default(), backlog }
    }

    /// Puts the message of `timer` into its lane.
    pub(super) fn take(&self, timer: Timer, snapshot: &Snapshot) -> Result<(), StoreError> {
        let message = MessageId(timer.id);
        let Some(row) = snapshot.row::<MessageRow>(&schema::message(timer.account, message))? else {
            tracing::error!(%message, "a timer names a message that is not there");
            self.shared.engine.store.near().forget(&timer);
            return Ok(());
        };
        let lane = self.lane(self.shared.ways.place_of(&row.to));
        // In the house nothing is slow, and a virtual clock would never come to the later time.
        if lane.is_full() && matches!(lane.place, Place::Domain(_)) {
            let job = Job { timer, message: row, _held: self.backlog.hold() };
            worker::postpone(&self.shared, job, FULL_LANE);
            return Ok(());
        }
        let wants_worker = lane.push(Job { timer, message: row, _held: self.backlog.hold() });
        if wants_worker {
            self.shared.start_worker(lane);
        }
        Ok(())
    }

    fn lane(&self, place: Place) -> Arc<Lane> {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        if lanes.len() >= LANES_MAX && !lanes.contains_key(&place) {
            let now = self.shared.engine.clock.now();
            lanes.retain(|_, lane| !lane.is_idle(now));
        }
        Arc::clone(lanes.entry(place.clone()).or_insert_with(|| Arc::new(Lane::new(place))))
    }

    /// Lets nothing new begin; what waits stays in the store.
    pub(super) fn close(&self) {
        for lane in self.lanes.lock().unwrap_or_else(PoisonError::into_inner).values() {
            lane.close();
        }
    }

    /// Waits until what is on the wire has ended, within the grace.
    pub(super) async fn finish(&self) {
        let mut workers = std::mem::take(&mut *self.shared.workers.lock().unwrap_or_else(PoisonError::into_inner));
        let all_done = async { while workers.join_next().await.is_some() {} };
        if tokio::time::timeout(GRACE, all_done).await.is_err() {
            tracing::warn!("connections to mail servers were cut off after the grace period");
        }
    }
}
