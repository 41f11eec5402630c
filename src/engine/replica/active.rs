//! The tasks of an active: it ships batches, makes bases, and removes the keys of content that is over.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::base::{BaseMaker, BasePolicy};
use super::error::ReplicaError;
use super::join::Joined;
use super::keys;
use super::shared::Shared;
use super::shipper::{Shipper, ShipperEnd};
use super::status::ReplicaStatus;
use crate::base::time::Timestamp;
use crate::store::Store;

/// A running active.
pub struct Active {
    shared: Arc<Shared>,
    drain: watch::Sender<bool>,
    shipper: JoinHandle<ShipperEnd>,
    bases: JoinHandle<()>,
    sweeper: JoinHandle<()>,
}

impl Active {
    /// Starts the tasks for `store`, which was opened after the log was claimed. A store that was migrated gets its
    /// base first.
    ///
    /// # Errors
    /// The store does not replicate; the base of a migrated store could not be made.
    pub async fn start(
        joined: Joined,
        store: &Arc<Store>,
        interval: Duration,
        policy: BasePolicy,
    ) -> Result<Self, ReplicaError> {
        let Joined { objects, claim, was_migrated, .. } = joined;
        let outbox = store.outbox().map(Arc::clone).ok_or(ReplicaError::NoBase)?;
        let shared = Arc::new(Shared::new(outbox, claim, objects.holder.to_string()));
        let (drain, draining) = watch::channel(false);
        let shipper = Shipper::new(objects.clone(), Arc::clone(store), Arc::clone(&shared), interval);
        let shipper = tokio::spawn(shipper.run(draining));
        let mut maker = BaseMaker::new(objects.clone(), Arc::clone(store), Arc::clone(&shared), policy);
        if was_migrated {
            maker.make().await?;
        }
        let bases = tokio::spawn(maker.run());
        let sweeper = tokio::spawn(keys::sweep(objects, Arc::clone(store), Arc::clone(&shared)));
        Ok(Self { shared, drain, shipper, bases, sweeper })
    }

    /// The shared state, for status and commands.
    pub const fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The status at `now`.
    pub fn status(&self, now: Timestamp) -> ReplicaStatus {
        self.shared.status(now)
    }

    /// Sends what is left and releases the log, within `grace`. Called once the store is closed. Returns whether the
    /// log was released; what could not be sent stays in the backlog.
    pub async fn stop(self, grace: Duration) -> bool {
        let Self { shared, drain, mut shipper, bases, sweeper } = self;
        drain.send_replace(true);
        let ended = timeout(grace, &mut shipper).await;
        let is_released = matches!(ended, Ok(Ok(ShipperEnd::Released)));
        // Each holds the store, whose lock the next opening waits for. An aborted task has no result to look at.
        for task in [bases, sweeper] {
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
