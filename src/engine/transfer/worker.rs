//! A worker of a lane: one kept connection, one message after the other. It goes on to the next message while the
//! last one's outcome is being committed; its lease lasts until then.

use std::sync::Arc;
use std::time::Duration;

use super::attempt::{Attempt, Kept, attempt};
use super::lane::{Lane, Next};
use super::{Job, Shared};
use crate::base::entropy;
use crate::domain::event::{AttemptFacts, BounceSource};
use crate::engine::crash::caught;
use crate::engine::lease::Lease;
use crate::engine::waiting::Leased;
use crate::smtp::finding;
use crate::store::error::{Stop, StoreError};
use crate::store::op::settle_transfer::{SettleTransfer, TransferEnd};
use crate::store::op::suppression;
use crate::store::read::Read;
use crate::store::row::message::TransferRow;
use crate::store::schema;

/// How long a connection is kept without a message.
const IDLE: Duration = Duration::from_secs(5);
/// When a message is looked at again that could not be read.
const UNREADABLE: Duration = Duration::from_secs(60);

/// Serves `lane` until nothing is due.
pub(super) async fn run(shared: Arc<Shared>, lane: Arc<Lane>) {
    loop {
        serve(&shared, &lane).await;
        if !lane.leave() {
            return;
        }
    }
}

async fn serve(shared: &Arc<Shared>, lane: &Arc<Lane>) {
    let Ok(_connection) = Arc::clone(&shared.connections).acquire_owned().await else { return };
    let mut kept = None;
    loop {
        match lane.next(shared.engine.clock.now()) {
            Next::Job(job) => {
                let (back, end) = transfer(shared, lane, *job, kept.take()).await;
                kept = back;
                if matches!(end, Progress::Succeeded) {
                    lane.succeeded();
                    if lane.grow() {
                        shared.start_worker(Arc::clone(lane));
                    }
                }
            }
            Next::Held(job, until) => {
                let end = TransferEnd::Postponed { until };
                settle(shared, *job, None, end, AttemptFacts::default());
            }
            Next::Nothing => {
                if kept.is_none() || tokio::time::timeout(IDLE, lane.wait()).await.is_err() {
                    break;
                }
            }
            Next::Stop => break,
        }
    }
    if let Some(Kept { session, .. }) = kept {
        session.quit().await;
    }
}

/// Whether the site took a message, for the window.
enum Progress {
    Succeeded,
    Other,
}

async fn transfer(shared: &Arc<Shared>, lane: &Arc<Lane>, job: Job, kept: Option<Kept>) -> (Option<Kept>, Progress) {
    let _room = shared.body_room(job.message.size_octets).await;
    let Some(lease) = shared.leases.take(job.id()) else {
        // Whoever has it is about to give it back: the last attempt's commit, a cancel or a suppression.
        shared.engine.store.near().give_back(job.timer);
        return (kept, Progress::Other);
    };
    let ready = caught(async { before_the_wire(shared, &job) }).await;
    match ready.unwrap_or(Err(StoreError::Panicked)) {
        Ok(Ready::Send(message)) => {
            let tried = caught(attempt(shared, lane, &job.message, message, kept)).await;
            let Attempt { kept, end, facts } = tried.unwrap_or_else(|crashed| {
                tracing::error!(message = %job.id(), %crashed, "an attempt crashed");
                Attempt { kept: None, end: TransferEnd::Crashed, facts: AttemptFacts::default() }
            });
            shared.engine.meters.attempted(&end, facts.duration_ms.unwrap_or_default());
            let progress = match &end {
                TransferEnd::Delivered => Progress::Succeeded,
                TransferEnd::Bounced(bounce) if bounce.source == BounceSource::Smtp => {
                    lane.answered();
                    Progress::Other
                }
                _ => Progress::Other,
            };
            settle(shared, job, Some(lease), end, facts);
            (kept, progress)
        }
        Ok(Ready::Settle(end)) => {
            settle(shared, job, Some(lease), end, AttemptFacts::default());
            (kept, Progress::Other)
        }
        Ok(Ready::Stale) => {
            shared.engine.store.near().forget(&job.timer);
            (kept, Progress::Other)
        }
        // A damaged row stays damaged; anything else may pass, and is no attempt.
        Err(error @ (StoreError::Row { .. } | StoreError::Panicked)) => {
            tracing::error!(message = %job.id(), %error, "a message could not be read");
            settle(shared, job, Some(lease), TransferEnd::Crashed, AttemptFacts::default());
            (kept, Progress::Other)
        }
        Err(error) => {
            tracing::error!(message = %job.id(), %error, "a message could not be read now; a minute later again");
            drop(lease);
            postpone(shared, job, UNREADABLE);
            (kept, Progress::Other)
        }
    }
}

enum Ready {
    /// The signed message.
    Send(Vec<u8>),
    /// It ends without an attempt.
    Settle(TransferEnd),
    /// The timer serves nothing any more.
    Stale,
}

/// What the rows say now that the message is leased: whether there is still something to send.
fn before_the_wire(shared: &Shared, job: &Job) -> Result<Ready, StoreError> {
    let engine = &shared.engine;
    // What is sent now could not be recorded, and would be sent again.
    if let Some(failure) = engine.store.health().failure() {
        return Err(failure.clone());
    }
    let snapshot = engine.store.snapshot()?;
    let transfer = snapshot.row::<TransferRow>(&schema::message(job.account(), job.id()))?;
    if transfer.is_none_or(|transfer| transfer.due != Some(job.timer.due)) {
        return Ok(Ready::Stale);
    }
    if suppression::is_suppressed(&snapshot, job.account(), &job.message.to)? {
        return Ok(Ready::Settle(TransferEnd::Suppressed));
    }
    if engine.clock.now() >= job.message.give_up_at {
        return Ok(Ready::Settle(TransferEnd::GaveUp(finding::expired())));
    }
    match engine.store.content().read(job.message.place, job.id()) {
        Ok(message) => Ok(Ready::Send(message)),
        Err(crate::store::content::Unreadable::Gone) => Ok(Ready::Settle(TransferEnd::GaveUp(finding::expired()))),
        Err(crate::store::content::Unreadable::Failed(error)) => Err(error),
    }
}

/// Has the message looked at again after `wait`, without an attempt.
pub(super) fn postpone(shared: &Arc<Shared>, job: Job, wait: Duration) {
    let until = shared.engine.clock.now() + wait;
    settle(shared, job, None, TransferEnd::Postponed { until }, AttemptFacts::default());
}

/// Commits the outcome without waiting for it; the lease lasts until it is committed.
fn settle(shared: &Arc<Shared>, job: Job, lease: Option<Lease>, end: TransferEnd, facts: AttemptFacts) {
    let store = &shared.engine.store;
    let others = others(shared, &job, &end);
    let op = SettleTransfer {
        account: job.account(),
        message: job.id(),
        due: job.timer.due,
        end,
        facts,
        chance: entropy::bytes(&*shared.engine.entropy),
        others: others.messages,
    };
    let leases = (lease, others.leases);
    let engine = Arc::clone(&shared.engine);
    let timer = job.timer;
    store.post(op, move |answer| {
        if let Err(Stop::Failed(error)) = answer {
            tracing::error!(%error, "an outcome could not be recorded; its attempt will be repeated");
            engine.store.near().forget(&timer);
        }
        drop((job, leases));
    });
}

/// What else waits for the address, where this outcome suppresses it.
fn others(shared: &Arc<Shared>, job: &Job, end: &TransferEnd) -> Leased {
    if !matches!(end, TransferEnd::Bounced(bounce) if bounce.suppressed) {
        return Leased::default();
    }
    let (account, address) = (job.account(), job.message.to.clone());
    let leased = shared.engine.lease_waiting(account, [&address]).unwrap_or_else(|error| {
        // They end all the same, each before its next attempt.
        tracing::error!(%error, "what else waits for a suppressed address could not be looked up");
        Leased::default()
    });
    if leased.is_full {
        let engine = Arc::clone(&shared.engine);
        // Its operations come to the writer behind the one that suppresses.
        tokio::spawn(async move { engine.end_waiting(account, &[address]).await });
    }
    leased
}
