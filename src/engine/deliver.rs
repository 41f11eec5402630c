//! From an owed event to a settled webhook attempt (contract 5).
//!
//! Each endpoint has its own lane, so that none holds up another, and at most eight attempts at once; while it fails
//! they are fewer, so that a dead endpoint sees exactly ten requests. One attempt is one request.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::Engine;
use super::backlog::{Backlog, Held};
use super::crash::caught;
use super::ports::{Post, PostError, PostOutcome, WebhookRequest};
use crate::base::id::{AccountId, DeliveryId, EndpointId};
use crate::base::signature::{service_signature, standard_signature};
use crate::base::time::Timestamp;
use crate::machine::delivery::{Effect, Input};
use crate::store::error::{Stop, StoreError};
use crate::store::op::settle_delivery::{Attempt, DeliveryEnd, EndpointChange, SettleDelivery};
use crate::store::read::Read;
use crate::store::row::delivery::{DeliveryRow, Owed};
use crate::store::row::endpoint::EndpointRow;
use crate::store::schema::{self, Table};
use crate::store::snapshot::Snapshot;
use crate::store::timer::Timer;

/// Requests of all endpoints at once.
const REQUESTS_MAX: usize = 512;
/// How long stopping waits for what is on the wire: longer than any attempt.
const GRACE: Duration = Duration::from_secs(15);
const USER_AGENT: &str = concat!("Postrider/", env!("CARGO_PKG_VERSION"));

type Key = (AccountId, EndpointId);

/// A delivery whose timer has fired.
struct Job {
    timer: Timer,
    row: DeliveryRow,
    _held: Held,
}

/// All endpoints' lanes.
pub(super) struct Deliveries {
    shared: Arc<Shared>,
    backlog: Backlog,
}

struct Shared {
    engine: Arc<Engine>,
    post: Arc<dyn Post>,
    lanes: Mutex<HashMap<Key, Lane>>,
    requests: Arc<Semaphore>,
    running: Mutex<JoinSet<()>>,
}

#[derive(Default)]
struct Lane {
    waiting: VecDeque<Job>,
    in_flight: usize,
    is_closed: bool,
}

impl Deliveries {
    pub(super) fn new(engine: Arc<Engine>, post: Arc<dyn Post>, backlog: Backlog) -> Self {
        let requests = Arc::new(Semaphore::new(REQUESTS_MAX));
        let shared = Shared { engine, post, lanes: Mutex::default(), requests, running: Mutex::default() };
        Self { shared: Arc::new(shared), backlog }
    }

    /// Puts the delivery of `timer` into its endpoint's lane.
    pub(super) fn take(&self, timer: Timer, snapshot: &Snapshot) -> Result<(), StoreError> {
        let key = schema::delivery(timer.account, DeliveryId(timer.id));
        let Some(row) = snapshot.row::<DeliveryRow>(&key)? else {
            self.shared.engine.store.near().forget(&timer);
            return Ok(());
        };
        let lane = (timer.account, row.endpoint);
        let job = Job { timer, row, _held: self.backlog.hold() };
        self.shared.lanes().entry(lane).or_default().waiting.push_back(job);
        self.shared.start(lane)
    }

    /// Lets nothing new begin; what waits stays in the store.
    pub(super) fn close(&self) {
        for lane in self.shared.lanes().values_mut() {
            lane.is_closed = true;
        }
    }

    /// Waits until what is on the wire has ended.
    pub(super) async fn finish(&self) {
        let mut running = std::mem::take(&mut *self.shared.running.lock().unwrap_or_else(PoisonError::into_inner));
        let all_done = async { while running.join_next().await.is_some() {} };
        if tokio::time::timeout(GRACE, all_done).await.is_err() {
            tracing::warn!("webhook attempts were cut off after the grace period");
        }
    }
}

impl Shared {
    fn lanes(&self) -> std::sync::MutexGuard<'_, HashMap<Key, Lane>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts as many attempts as the endpoint's standing allows, or settles what can't be attempted.
    fn start(self: &Arc<Self>, key: Key) -> Result<(), StoreError> {
        // Read under the lanes' lock: an outcome is committed before its place in flight is given back.
        let mut lanes = self.lanes();
        let Some(lane) = lanes.get_mut(&key) else { return Ok(()) };
        let endpoint = self.engine.store.snapshot()?.row::<EndpointRow>(&schema::endpoint(key.0, key.1))?;
        while !lane.is_closed {
            let may_start = endpoint.as_ref().is_some_and(|endpoint| endpoint.state.may_start(lane.in_flight));
            let is_enabled = endpoint.as_ref().is_some_and(|endpoint| endpoint.state.is_enabled());
            if is_enabled && !may_start {
                break;
            }
            let Some(job) = lane.waiting.pop_front() else { break };
            match &endpoint {
                Some(endpoint) if is_enabled => {
                    lane.in_flight += 1;
                    self.spawn(key, endpoint.clone(), job);
                }
                Some(_) => self.settle(job, DeliveryEnd::Parked, None),
                None => self.settle(job, DeliveryEnd::Abandoned, None),
            }
        }
        if lane.in_flight == 0 && lane.waiting.is_empty() {
            lanes.remove(&key);
        }
        Ok(())
    }

    fn spawn(self: &Arc<Self>, key: Key, endpoint: EndpointRow, job: Job) {
        let shared = Arc::clone(self);
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        while running.try_join_next().is_some() {}
        running.spawn(async move {
            let end = match caught(shared.attempt(key, &endpoint, &job)).await {
                Ok(Ok(end)) => end,
                Ok(Err(error)) => shared.failed(&error.to_string()),
                Err(crashed) => shared.failed(&crashed.to_string()),
            };
            shared.settle(job, end, Some(key));
        });
    }

    /// What a defect of ours counts as: an attempt that made no request.
    fn failed(&self, fault: &str) -> DeliveryEnd {
        tracing::error!(%fault, "a webhook attempt could not be made");
        let now = self.engine.clock.now();
        let outcome = PostOutcome {
            status: None,
            error: Some(PostError::Protocol),
            duration: Duration::ZERO,
            peer: None,
            body: None,
        };
        DeliveryEnd::Attempted(record(now, now, outcome))
    }

    async fn attempt(&self, (account, id): Key, endpoint: &EndpointRow, job: &Job) -> Result<DeliveryEnd, StoreError> {
        // What is told now could not be recorded, and would be told again.
        if let Some(failure) = self.engine.store.health().failure() {
            return Err(failure.clone());
        }
        let next = job.row.state.step(Input::CameDue, self.engine.clock.now());
        let number = match next.effects.first() {
            Some(Effect::StartAttempt(number)) => *number,
            // Not due yet, because the clock stepped back: parking with an enabled endpoint arms its timer again.
            Some(Effect::Schedule(_)) => return Ok(DeliveryEnd::Parked),
            Some(Effect::Settle) | None => return Ok(DeliveryEnd::Abandoned),
        };
        let Ok(_permit) = self.requests.acquire().await else { return Ok(DeliveryEnd::Parked) };
        // The signature's time is the attempt's own, so it is taken after the wait for a permit.
        let at = self.engine.clock.now();
        let request = self.request(account, id, endpoint, job, number, at)?;
        let outcome = self.post.post(request).await;
        Ok(DeliveryEnd::Attempted(record(at, self.engine.clock.now(), outcome)))
    }

    fn request(
        &self,
        account: AccountId,
        id: EndpointId,
        endpoint: &EndpointRow,
        job: &Job,
        number: u8,
        at: Timestamp,
    ) -> Result<WebhookRequest, StoreError> {
        let damaged = |fault: String| StoreError::Row { table: Table::Endpoints, fault };
        let snapshot = self.engine.store.snapshot()?;
        // The secret is the current one: it may have been rotated while this attempt waited for a permit.
        let current = snapshot.row::<EndpointRow>(&schema::endpoint(account, id))?;
        let endpoint = current.as_ref().unwrap_or(endpoint);
        let master = self.engine.store.master_key();
        let secret = master
            .open(&EndpointRow::secret_context(id), &endpoint.secret.0)
            .map_err(|error| damaged(error.to_string()))?;
        let url = url::Url::parse(&endpoint.url).map_err(|error| damaged(error.to_string()))?;
        let body = match &job.row.owed {
            Owed::Test { body } => body.clone(),
            Owed::Event { message, .. } => {
                let gone = || StoreError::Row { table: Table::Timeline, fault: "an owed event is not there".into() };
                let key = schema::timeline(account, *message, job.row.event);
                snapshot.get(Table::Timeline, &key)?.ok_or_else(gone)?
            }
        };
        let event = job.row.event.to_string();
        let headers = vec![
            ("content-type", "application/json".to_owned()),
            ("user-agent", USER_AGENT.to_owned()),
            ("x-service-signature", service_signature(&secret, at, &body)),
            ("x-service-event", job.row.owed.event_type().to_owned()),
            ("x-service-delivery", DeliveryId(job.timer.id).to_string()),
            ("x-service-attempt", number.to_string()),
            ("webhook-signature", standard_signature(&secret, &event, at, &body)),
            ("webhook-timestamp", at.as_secs().to_string()),
            ("webhook-id", event),
        ];
        Ok(WebhookRequest { url, headers, body: Bytes::from(body) })
    }

    /// Commits how a timer was served; `lane` names the lane whose place in flight it gives back.
    fn settle(self: &Arc<Self>, job: Job, end: DeliveryEnd, lane: Option<Key>) {
        let op =
            SettleDelivery { account: job.timer.account, delivery: DeliveryId(job.timer.id), due: job.timer.due, end };
        let shared = Arc::clone(self);
        let runtime = tokio::runtime::Handle::current();
        self.engine.store.post(op, move |answer| {
            shared.settled(&job, answer);
            drop(job);
            let Some(key) = lane else { return };
            // The writer has more to do than to start requests.
            runtime.spawn(async move {
                if let Some(lane) = shared.lanes().get_mut(&key) {
                    lane.in_flight -= 1;
                }
                if let Err(error) = shared.start(key) {
                    tracing::error!(%error, "webhook deliveries could not be started");
                }
            });
        });
    }

    fn settled(&self, job: &Job, answer: Result<EndpointChange, Stop<crate::store::op::Never>>) {
        match answer {
            Ok(EndpointChange::Disabled(endpoint)) => {
                tracing::warn!(%endpoint, "a webhook endpoint was disabled after ten failures in a row");
            }
            Ok(EndpointChange::None) | Err(Stop::Refused(_)) => {}
            Err(Stop::Failed(error)) => {
                tracing::error!(%error, "a webhook's outcome could not be recorded; its attempt will be repeated");
                self.engine.store.near().forget(&job.timer);
            }
        }
    }
}

fn record(at: Timestamp, ended_at: Timestamp, outcome: PostOutcome) -> Attempt {
    let error = outcome.error.map(|error| error.as_str().to_owned());
    Attempt {
        at,
        ended_at,
        status: outcome.status,
        error,
        duration_ms: u64::try_from(outcome.duration.as_millis()).unwrap_or(u64::MAX),
        peer: outcome.peer.map(|peer| peer.to_string()),
        response_body: outcome.body,
    }
}
