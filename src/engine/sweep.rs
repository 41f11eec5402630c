//! Housekeeping timers: domain checks, TLS reports, parked deliveries, and deletion of expired data.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

use super::Engine;
use super::audit::Behalf;
use super::caught_panic::caught;
use super::ports::Post;
use crate::base::id::{DomainId, EndpointId};
use crate::domain::audit::Actor;
use crate::store::error::OpError;
use crate::store::op::alert_time::{ExpireAlert, RemindAlert};
use crate::store::op::domain::PostponeDomainCheck;
use crate::store::op::domain_change::PostponeRotation;
use crate::store::op::endpoint_end::EndDeliveries;
use crate::store::op::message_index::IndexMessages;
use crate::store::op::settle_delivery::Unpark;
use crate::store::op::sweep::{ContentDestroyed, ContentExpires, DropTimer, SweepEvents, SweepIdempotency};
use crate::store::op::sweep_deliveries::SweepDeliveries;
use crate::store::op::tls_policy::ExpireStsPolicy;
use crate::store::op::tls_report::SweepTlsReports;
use crate::store::op::view::ExpireView;
use crate::store::timer::{Timer, TimerKind};

/// Maximum number of concurrent domain checks, which wait for DNS.
const AT_ONCE: usize = 8;
/// Maximum number of concurrent TLS reports, which wait for DNS and their receivers.
const REPORTS_AT_ONCE: usize = 4;
/// Maximum number of concurrent operations that process rows page by page. Each occupies the writer for some
/// milliseconds, and thousands may be due together. If all of them joined one batch, every message in it would wait for
/// them.
const SLICES_AT_ONCE: usize = 1;

/// Time before a failed sweep is retried, in real time.
const AGAIN: Duration = Duration::from_secs(60);

/// Serves housekeeping timers.
#[derive(Clone)]
pub(super) struct Sweeper {
    engine: Arc<Engine>,
    post: Arc<dyn Post>,
    checks: Arc<Semaphore>,
    reports: Arc<Semaphore>,
    slices: Arc<Semaphore>,
}

impl Sweeper {
    pub(super) fn new(engine: Arc<Engine>, post: Arc<dyn Post>) -> Self {
        let [checks, reports, slices] =
            [AT_ONCE, REPORTS_AT_ONCE, SLICES_AT_ONCE].map(|most| Arc::new(Semaphore::new(most)));
        Self { engine, post, checks, reports, slices }
    }

    /// Serves `timer`, which stays taken until its operation is committed.
    pub(super) fn take(&self, timer: Timer) {
        let engine = Arc::clone(&self.engine);
        let post = Arc::clone(&self.post);
        let turns = self.turns(timer.kind).map(Arc::clone);
        tokio::spawn(async move {
            let turn = match turns {
                Some(turns) => turns.acquire_owned().await.ok(),
                None => None,
            };
            // The future is boxed, so that a task that waits for its turn uses little memory.
            let served = Box::pin(caught(serve(&engine, &*post, timer))).await;
            let fault = match served {
                Ok(Ok(())) => return,
                Ok(Err(fault)) => fault,
                Err(crashed) => crashed.to_string(),
            };
            // A failure must not delay other accounts.
            drop(turn);
            tracing::error!(kind = ?timer.kind, %fault, "housekeeping failed; retrying in a minute");
            tokio::time::sleep(AGAIN).await;
            engine.store.timers().give_back(timer);
        });
    }

    /// Returns the semaphore for timers of `kind`. `None` if the timer needs only a single small operation, or does not
    /// wait for the database.
    const fn turns(&self, kind: TimerKind) -> Option<&Arc<Semaphore>> {
        match kind {
            TimerKind::DomainCheck | TimerKind::DkimRotation => Some(&self.checks),
            TimerKind::TlsReport => Some(&self.reports),
            TimerKind::MessageIndex
            | TimerKind::EventLog
            | TimerKind::Idempotency
            | TimerKind::Deliveries
            | TimerKind::TlsReports
            | TimerKind::Unpark
            | TimerKind::EndpointEnd => Some(&self.slices),
            TimerKind::Content
            | TimerKind::SuppressionImport
            | TimerKind::ViewEnd
            | TimerKind::AlertAnnouncement
            | TimerKind::AlertReminder
            | TimerKind::AlertExpiry
            | TimerKind::Notice
            | TimerKind::StsPolicy
            | TimerKind::Reputation
            | TimerKind::Transfer
            | TimerKind::Delivery => None,
        }
    }
}

async fn serve(engine: &Arc<Engine>, post: &dyn Post, timer: Timer) -> Result<(), String> {
    let store = &engine.store;
    let due = timer.due;
    match timer.kind {
        TimerKind::Idempotency => swept(store.commit(SweepIdempotency { due }).await),
        TimerKind::EventLog => swept(store.commit(SweepEvents { due }).await),
        TimerKind::Deliveries => swept(store.commit(SweepDeliveries { timer }).await),
        TimerKind::Unpark => {
            swept(store.commit(Unpark { account: timer.account, endpoint: EndpointId(timer.id), due }).await)
        }
        TimerKind::EndpointEnd => {
            swept(store.commit(EndDeliveries { account: timer.account, endpoint: EndpointId(timer.id), due }).await)
        }
        TimerKind::Content => destroy_content(engine, timer).await,
        TimerKind::DomainCheck => check_domain(engine, timer).await,
        TimerKind::DkimRotation => rotate_dkim(engine, timer).await,
        TimerKind::StsPolicy => swept(store.commit(ExpireStsPolicy { timer }).await),
        TimerKind::ViewEnd => swept(store.commit(ExpireView { timer }).await),
        TimerKind::TlsReports => swept(store.commit(SweepTlsReports { due }).await),
        TimerKind::MessageIndex => swept(store.commit(IndexMessages { timer }).await),
        TimerKind::SuppressionImport => engine.settle_import(timer).await.map_err(|error| error.to_string()),
        TimerKind::Reputation => swept(engine.judge_reputation(timer).await),
        TimerKind::TlsReport => swept(engine.report_tls(post, timer).await),
        TimerKind::AlertAnnouncement => swept(engine.announce_alert(timer).await),
        TimerKind::AlertReminder => swept(store.commit(RemindAlert { timer }).await),
        TimerKind::AlertExpiry => swept(store.commit(ExpireAlert { timer }).await),
        TimerKind::Transfer | TimerKind::Delivery | TimerKind::Notice => Err("is not housekeeping".to_owned()),
    }
}

fn swept<T, R>(answer: Result<T, OpError<R>>) -> Result<(), String> {
    match answer {
        Ok(_) => Ok(()),
        Err(OpError::Refused(_)) => Err("the operation was refused".to_owned()),
        Err(OpError::Failed(error)) => Err(error.to_string()),
    }
}

/// Records the end of the content, destroys its bytes, and then removes the timer. After a crash in between, the
/// repetition finds no bytes to destroy.
async fn destroy_content(engine: &Arc<Engine>, timer: Timer) -> Result<(), String> {
    let sweeping = Arc::clone(engine);
    let bucket = timer.due;
    swept(engine.store.commit(ContentExpires { until: bucket }).await)?;
    let destroy = move || {
        let content = sweeping.store.content();
        let over = sweeping.store.buckets_over(bucket).map_err(|error| error.to_string())?;
        over.into_iter().try_for_each(|over| content.destroy(over)).map_err(|error| error.to_string())?;
        sweeping.on_content_destroyed.get().map_or(Ok(()), |also| also()).map_err(|error| error.to_string())
    };
    engine.settings.executor.run(destroy).await.map_err(|error| error.to_string())??;
    swept(engine.store.commit(ContentDestroyed { bucket }).await)
}

async fn check_domain(engine: &Arc<Engine>, timer: Timer) -> Result<(), String> {
    let (account, domain) = (timer.account, DomainId(timer.id));
    match engine.check_domain(Behalf::new(account, Actor::Service), domain).await {
        // If the check moved the timer, this timer is gone already. A stale one is removed now.
        Ok(row) if row.next_check_at == Some(timer.due) => Err("the domain's timer did not move".to_owned()),
        Ok(_) => swept(engine.store.commit(DropTimer { timer }).await),
        Err(OpError::Refused(_)) => {
            swept(engine.store.commit(PostponeDomainCheck { account, domain, due: timer.due }).await)
        }
        Err(OpError::Failed(error)) => Err(error.to_string()),
    }
}

/// Checks the records of a domain whose rotation is due. The operation that records the check also rotates.
async fn rotate_dkim(engine: &Arc<Engine>, timer: Timer) -> Result<(), String> {
    let (account, domain) = (timer.account, DomainId(timer.id));
    match engine.check_domain(Behalf::new(account, Actor::Service), domain).await {
        Ok(row) if row.rotation.timer != Some(timer.due) => swept(engine.store.commit(DropTimer { timer }).await),
        Ok(_) | Err(OpError::Refused(_)) => {
            swept(engine.store.commit(PostponeRotation { account, domain, due: timer.due }).await)
        }
        Err(OpError::Failed(error)) => Err(error.to_string()),
    }
}
