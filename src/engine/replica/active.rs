//! The tasks of an active machine: it ships batches, creates bases, and removes the keys of expired content.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::base::{BaseMaker, BasePolicy};
use super::error::ReplicaError;
use super::join::ClaimedLog;
use super::keys;
use super::shared::{ModeWords, Shared};
use super::shipper::{Shipper, ShipperEnd};
use super::status::ReplicaStatus;
use crate::base::time::Timestamp;
use crate::store::Store;

/// A running active machine.
pub struct Active {
    shared: Arc<Shared>,
    drain: watch::Sender<bool>,
    shipper: JoinHandle<ShipperEnd>,
    bases: JoinHandle<()>,
    sweeper: JoinHandle<()>,
    watch: JoinHandle<()>,
}

/// The pace of slots, and the configured mode for the status.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// Minimum time between two slots. Zero if each batch waits for its slot.
    pub interval: Duration,
    /// The configured mode and failover.
    pub words: ModeWords,
}

impl Active {
    /// Starts the tasks for `store`, which was opened after the log was claimed. A migrated store gets its base first.
    ///
    /// # Errors
    /// The store does not replicate, or the base of a migrated store could not be made.
    pub async fn start(
        joined: ClaimedLog,
        store: &Arc<Store>,
        pace: Pace,
        policy: BasePolicy,
    ) -> Result<Self, ReplicaError> {
        let lease = Arc::new(joined.begin_lease());
        let ClaimedLog { objects, claim, was_migrated, .. } = joined;
        let outbox = store.outbox().map(Arc::clone).ok_or(ReplicaError::NoBase)?;
        let holder = objects.holder.to_string();
        let shared = Arc::new(Shared::new(outbox, claim, lease, pace.words, holder, objects.clock.now()));
        let (drain, draining) = watch::channel(false);
        let shipper = Shipper::new(objects.clone(), Arc::clone(store), Arc::clone(&shared), pace.interval);
        let shipper = tokio::spawn(shipper.run(draining));
        let mut maker = BaseMaker::new(objects.clone(), Arc::clone(store), Arc::clone(&shared), policy);
        if was_migrated {
            maker.make().await?;
        }
        let bases = tokio::spawn(maker.run());
        let watch = tokio::spawn(Arc::clone(&shared.lease).watch(Arc::clone(&shared.outbox)));
        let sweeper = tokio::spawn(keys::sweep(objects, Arc::clone(store), Arc::clone(&shared)));
        Ok(Self { shared, drain, shipper, bases, sweeper, watch })
    }

    /// Returns the shared state, for status and commands.
    pub const fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Returns the status at `now`.
    pub fn status(&self, now: Timestamp) -> ReplicaStatus {
        self.shared.status(now)
    }

    /// Ends all waits for permission to send. Called when the service starts to stop.
    pub fn begin_stop(&self) {
        self.shared.lease.end_waits();
    }

    /// Waits until mail may be sent: the previous holder's lease is over, and the bucket has everything that was
    /// committed before a crash. In synchronous mode no mail is sent before that.
    pub async fn may_mail(shared: Arc<Shared>) {
        let committed = shared.outbox.last();
        let mut slots = shared.slots();
        if let Some(rule) = shared.outbox.sync() {
            let landed = slots.wait_for(|_| shared.position().sequence >= committed);
            if rule.stops {
                drop(landed.await);
            } else if timeout(rule.timeout, landed).await.is_err() {
                tracing::error!(
                    "the bucket has not confirmed the changes before this start; sending mail without its confirmation"
                );
            }
        }
        shared.lease.wait_to_send().await;
    }

    /// Sends the remaining records and releases the log, within `grace`. Called once the store is closed. Returns
    /// whether the log was released; unsent records stay in the backlog.
    pub async fn stop(self, grace: Duration) -> bool {
        let Self { shared, drain, mut shipper, bases, sweeper, watch } = self;
        drain.send_replace(true);
        let ended = timeout(grace, &mut shipper).await;
        let is_released = matches!(ended, Ok(Ok(ShipperEnd::Released)));
        // Each task holds the store, and the next opening waits for the store's lock. An aborted task has no result.
        for task in [bases, sweeper, watch] {
            task.abort();
            drop(task.await);
        }
        if ended.is_err() {
            shipper.abort();
            drop(shipper.await);
        }
        if !is_released {
            tracing::warn!(
                records = shared.outbox.unconfirmed().records,
                "the log was not released; the next start sends the rest"
            );
        }
        is_released
    }
}
