//! Webhook deliveries: from a due delivery to the recorded result of its attempt (contract 5).
//!
//! Each endpoint has its own queue, so that none blocks another, and at most eight attempts in flight. It starts with
//! two, until it is known to answer fast. While it fails, it gets one attempt at a time, so a dead endpoint gets
//! exactly ten requests. One attempt is one request.

mod endpoint_queue;
mod permits;
mod request;
mod slow_endpoints;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::task::JoinSet;

use super::Engine;
use super::backlog::{Backlog, BacklogItem};
use super::caught_panic::caught;
use super::ports::{Post, PostError, PostOutcome};
use super::stop_signal::StopSignal;
use super::sweep::Sweeper;
use crate::base::id::{AccountId, DeliveryId, EndpointId};
use crate::base::time::Timestamp;
use crate::machine::delivery::{Effect, Input};
use crate::store::error::{OpError, StoreError};
use crate::store::op::settle_delivery::{Attempt, DeliveryEnd, EndpointChange, SettleDelivery};
use crate::store::op::suspension::{accepts_deliveries, suspension};
use crate::store::read::Read;
use crate::store::row::delivery::DeliveryRow;
use crate::store::row::endpoint::EndpointRow;
use crate::store::schema::{self, Table};
use crate::store::snapshot::Snapshot;
use crate::store::timer::Timer;
use endpoint_queue::{EndpointQueue, FinishedAttempt, Memory};
use permits::{EndpointHealth, Permits};
use request::AttemptInput;
use slow_endpoints::{PROMPT, SlowEndpoints};

/// Time for which shutdown waits for attempts in flight: longer than any attempt.
const GRACE: Duration = Duration::from_secs(15);
type Key = (AccountId, EndpointId);

/// A delivery whose timer is due.
struct Job {
    timer: Timer,
    row: DeliveryRow,
    _held: BacklogItem,
}

/// The queues of all endpoints.
pub(super) struct Deliveries {
    shared: Arc<Shared>,
}

struct Shared {
    engine: Arc<Engine>,
    post: Arc<dyn Post>,
    sweeper: Sweeper,
    backlog: Backlog,
    queues: Mutex<BTreeMap<Key, EndpointQueue>>,
    /// Endpoints that answered slowly. They share a small number of permits.
    slow: SlowEndpoints,
    permits: Permits,
    stop: StopSignal,
    running: Mutex<JoinSet<()>>,
}

impl Deliveries {
    pub(super) fn new(engine: Arc<Engine>, post: Arc<dyn Post>, sweeper: Sweeper, stop: StopSignal) -> Self {
        let permits = Permits::new(stop.clone());
        let (queues, running, slow) = (Mutex::default(), Mutex::default(), SlowEndpoints::default());
        let backlog = Backlog::default();
        Self { shared: Arc::new(Shared { engine, post, sweeper, backlog, queues, slow, permits, stop, running }) }
    }

    /// Adds the deliveries of `timers` to their endpoints' queues, and starts attempts.
    pub(super) fn take(&self, timers: Vec<Timer>, snapshot: &Snapshot) -> Result<(), StoreError> {
        let mut keys = BTreeSet::new();
        for timer in timers {
            match snapshot.row::<DeliveryRow>(&schema::delivery(timer.account, DeliveryId(timer.id))) {
                Ok(Some(row)) => {
                    keys.insert((timer.account, row.endpoint));
                    self.shared.push(timer, row);
                }
                Ok(None) => self.shared.engine.store.timers().forget(&timer),
                // One damaged row must not stop all others. Its timer waits until the store is repaired.
                Err(error) if error.is_of_row() => {
                    tracing::error!(%error, "could not read a due webhook delivery; it waits for a repair");
                    self.shared.engine.store.timers().forget(&timer);
                }
                Err(error) => return Err(error),
            }
        }
        keys.into_iter().try_for_each(|key| self.shared.start(key))
    }

    /// Serves the timer of an endpoint's parked deliveries, now or when its queue has room.
    pub(super) fn unpark(&self, timer: Timer) {
        let memory = self.shared.memory();
        let mut queues = self.shared.queues();
        let queue = queues.entry((timer.account, EndpointId(timer.id))).or_default();
        if let Some(timer) = queue.unpark(timer, memory) {
            self.shared.sweeper.take(timer);
        }
    }

    /// Closes the queues after the stop signal. Waiting deliveries stay in the store.
    pub(super) fn close(&self) {
        for queue in self.shared.queues().values_mut() {
            queue.is_closed = true;
        }
    }

    /// Waits until the attempts in flight have ended.
    pub(super) async fn finish(&self) {
        let mut running = std::mem::take(&mut *self.shared.running.lock().unwrap_or_else(PoisonError::into_inner));
        let all_done = async { while running.join_next().await.is_some() {} };
        if tokio::time::timeout(GRACE, all_done).await.is_err() {
            tracing::warn!("webhook attempts aborted after the grace period; they are repeated after the restart");
        }
    }
}

impl Shared {
    fn queues(&self) -> std::sync::MutexGuard<'_, BTreeMap<Key, EndpointQueue>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn memory(&self) -> Memory {
        if self.backlog.is_half_full() { Memory::Tight } else { Memory::Roomy }
    }

    /// Adds a delivery to its endpoint's queue, or parks it if the queue is full.
    fn push(self: &Arc<Self>, timer: Timer, row: DeliveryRow) {
        let memory = self.memory();
        let key = (timer.account, row.endpoint);
        let job = Job { timer, row, _held: self.backlog.hold() };
        let mut queues = self.queues();
        let queue = queues.entry(key).or_default();
        if queue.is_full(memory) || self.backlog.free() == 0 {
            let end = DeliveryEnd::Overflowed(queue.overflow());
            drop(queues);
            self.settle(job, end, None);
        } else {
            queue.waiting.push_back(job);
        }
    }

    /// Starts as many attempts as the endpoint's status allows, or settles deliveries that can't be attempted.
    fn start(self: &Arc<Self>, key: Key) -> Result<(), StoreError> {
        // The endpoint is read under the queues' lock: a failure is committed before its attempt stops counting as in
        // flight.
        let mut queues = self.queues();
        let Some(queue) = queues.get_mut(&key) else { return Ok(()) };
        let snapshot = self.engine.store.snapshot()?;
        let endpoint = snapshot.row::<EndpointRow>(&schema::endpoint(key.0, key.1))?;
        let is_enabled = accepts_deliveries(&snapshot, key.0, endpoint.as_ref())?;
        while !queue.is_closed {
            let may_start = endpoint.as_ref().is_some_and(|endpoint| endpoint.state.may_start(queue.in_flight));
            if is_enabled && !(may_start && queue.has_window()) {
                break;
            }
            let Some(job) = queue.waiting.pop_front() else { break };
            match &endpoint {
                Some(endpoint) if is_enabled => {
                    queue.in_flight += 1;
                    self.spawn(key, job, self.health(key, endpoint));
                }
                Some(_) => self.settle(job, DeliveryEnd::Parked, None),
                None => self.settle(job, DeliveryEnd::Abandoned, None),
            }
        }
        if let Some(timer) = queue.take_held(self.memory()) {
            self.sweeper.take(timer);
        }
        if queue.is_idle() {
            queues.remove(&key);
        }
        Ok(())
    }

    fn health(&self, key: Key, endpoint: &EndpointRow) -> EndpointHealth {
        if self.slow.contains(key, self.engine.clock.monotonic()) {
            EndpointHealth::Slow
        } else {
            EndpointHealth::of(endpoint)
        }
    }

    fn spawn(self: &Arc<Self>, key: Key, job: Job, health: EndpointHealth) {
        let shared = Arc::clone(self);
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        while running.try_join_next().is_some() {}
        running.spawn(async move {
            let end = match caught(shared.attempt(key, &job, health)).await {
                Ok(Ok(Some(end))) => end,
                // The timer becomes due again after the restart.
                Ok(Ok(None)) => return,
                Ok(Err(error)) => shared.failed(&error.to_string()),
                Err(crashed) => shared.failed(&crashed.to_string()),
            };
            shared.settle(job, end, Some(key));
        });
    }

    /// Returns the result for an internal error: an attempt without a request.
    fn failed(&self, fault: &str) -> DeliveryEnd {
        tracing::error!(%fault, "webhook attempt failed because of an internal error; it counts as a failed attempt");
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

    /// Makes one attempt. Returns `None` if the service is stopping and no request was started.
    async fn attempt(
        &self,
        (account, endpoint): Key,
        job: &Job,
        health: EndpointHealth,
    ) -> Result<Option<DeliveryEnd>, StoreError> {
        let due_at = job.row.state.due_at(&self.engine.clock.time());
        let next = job.row.state.step(Input::CameDue, due_at);
        let number = match next.effects.first() {
            Some(Effect::StartAttempt(number)) => *number,
            // The delivery is not due yet, because the clock stepped back. Parking with an enabled endpoint arms the
            // timer again.
            Some(Effect::Schedule(_)) => return Ok(Some(DeliveryEnd::Parked)),
            Some(Effect::Settle) | None => return Ok(Some(DeliveryEnd::Abandoned)),
        };
        let Some(_permit) = self.permits.take(account, health).await else { return Ok(None) };
        if !self.engine.wait_to_send().await {
            return Ok(None);
        }
        let delivery = DeliveryId(job.timer.id);
        // Deliveries of an account that is being erased are dropped.
        let blocked = &self.engine.blocked_accounts;
        let _posting = blocked.post_when_unblocked(account).await;
        let snapshot = self.engine.store.snapshot()?;
        if blocked.has_erased() && !snapshot.has(Table::Deliveries, &schema::delivery(account, delivery))? {
            return Ok(Some(DeliveryEnd::Abandoned));
        }
        // The account may have been suspended during the wait for a permit.
        if suspension(&snapshot, account)?.is_some() {
            return Ok(Some(DeliveryEnd::Parked));
        }
        drop(snapshot);
        // The signature has the time of the attempt, so the time is read after the wait for a permit.
        let time = self.engine.clock.time();
        let attempting = AttemptInput { account, endpoint, delivery, row: &job.row, number, at: time.wall };
        let request = attempting.request(&self.engine.store)?;
        // The store is checked last: after a failure of the store the outcome could not be recorded, and the request
        // would be repeated.
        self.engine.store.health().check()?;
        let begun = AtomicBool::new(false);
        let stopped = async {
            self.stop.wait().await;
            // The result of a request that has begun is recorded.
            if begun.load(Ordering::Acquire) {
                std::future::pending().await
            }
        };
        let outcome = tokio::select! {
            biased;
            () = stopped => return Ok(None),
            outcome = self.post.post(request, &begun) => outcome,
            () = blocked.until_blocked(account) => return Ok(Some(DeliveryEnd::Abandoned)),
        };
        self.engine.meters.posted(&outcome);
        self.slow.answered((account, endpoint), outcome.duration, self.engine.clock.monotonic());
        Ok(Some(DeliveryEnd::Attempted(record(time.now, self.engine.clock.now(), outcome))))
    }

    /// Commits the result of a timer; `queue` is the queue whose attempt it ends. A failed attempt counts as in flight
    /// until its result is recorded; otherwise a dead endpoint would get more than ten requests. A successful one stops
    /// counting at once, so that delivery speed does not depend on the disk.
    fn settle(self: &Arc<Self>, job: Job, end: DeliveryEnd, queue: Option<Key>) {
        let ended = match &end {
            DeliveryEnd::Attempted(Attempt { error: None, duration_ms, .. }) => {
                if u128::from(*duration_ms) <= PROMPT.as_millis() {
                    FinishedAttempt::Acknowledged
                } else {
                    FinishedAttempt::Slowly
                }
            }
            DeliveryEnd::Attempted(_) => FinishedAttempt::Failed,
            DeliveryEnd::Overflowed(_) | DeliveryEnd::Parked | DeliveryEnd::Abandoned => FinishedAttempt::Unmade,
        };
        let op =
            SettleDelivery { account: job.timer.account, delivery: DeliveryId(job.timer.id), due: job.timer.due, end };
        let is_acknowledged = matches!(ended, FinishedAttempt::Acknowledged | FinishedAttempt::Slowly);
        let (before, after) = if is_acknowledged { (queue, None) } else { (None, queue) };
        let shared = Arc::clone(self);
        let runtime = tokio::runtime::Handle::current();
        self.engine.store.post(op, move |answer| {
            shared.settled(&job, answer);
            drop(job);
            // Requests are not started on the writer's thread, to keep it free for commits.
            if let Some(key) = after {
                runtime.spawn(async move { shared.give_back(key, ended) });
            }
        });
        if let Some(key) = before {
            self.give_back(key, ended);
        }
    }

    /// Ends an attempt in flight, and starts the next ones.
    fn give_back(self: &Arc<Self>, key: Key, ended: FinishedAttempt) {
        if let Some(queue) = self.queues().get_mut(&key) {
            queue.ended(ended);
        }
        if let Err(error) = self.start(key) {
            tracing::error!(%error, "could not start webhook deliveries; they start with the endpoint's next event");
        }
    }

    fn settled(&self, job: &Job, answer: Result<EndpointChange, OpError<crate::store::op::Infallible>>) {
        match answer {
            Ok(EndpointChange::Disabled(endpoint)) => {
                self.engine.meters.endpoints_disabled.count();
                let account = job.timer.account;
                tracing::warn!(
                    %account, %endpoint,
                    "webhook endpoint disabled after ten failures in a row: its deliveries are on hold; check its \
                     deliveries for the cause, then enable it in the panel or with `postrider webhook set {endpoint} \
                     --enabled true --account {account}`"
                );
            }
            Ok(EndpointChange::None) | Err(OpError::Refused(_)) => {}
            Err(OpError::Failed(error)) => {
                tracing::error!(%error, "could not record a webhook's outcome; its attempt is repeated");
                self.engine.store.timers().forget(&job.timer);
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
