//! Whether the store can still be trusted. Any I/O error of the database, and any failed fsync, is the end of
//! this process: it is said loudly once, every waiting caller is told, and whoever runs the process ends it.

use std::sync::OnceLock;

use tokio::sync::Notify;

use super::error::StoreError;

/// Shared by the store's threads and whoever watches over the process.
#[derive(Default)]
pub struct Health {
    failure: OnceLock<StoreError>,
    failed: Notify,
}

impl Health {
    /// Notes a fatal failure and hands it back, so that callers can be told.
    pub(super) fn fail(&self, error: &StoreError) -> StoreError {
        if self.failure.set(error.clone()).is_ok() {
            tracing::error!(%error, "the store failed; the process ends so that its supervisor starts it again");
        }
        self.failed.notify_waiters();
        error.clone()
    }

    /// The failure, if there was one.
    pub fn failure(&self) -> Option<&StoreError> {
        self.failure.get()
    }

    /// Resolves when the store has failed.
    pub async fn failed(&self) -> StoreError {
        loop {
            let failed = self.failed.notified();
            if let Some(error) = self.failure.get() {
                return error.clone();
            }
            failed.await;
        }
    }
}
