//! Destroys expired content of stores that were set aside in the data directory. They have no timers in the current
//! store.

use std::sync::Arc;
use std::time::Duration;

use super::Engine;

/// Interval between two runs. The first is at the start.
const EVERY: Duration = Duration::from_secs(3600);

impl Engine {
    /// Destroys expired content of stores that were set aside, as long as the future is polled.
    pub(super) async fn watch_stores_aside(&self) {
        loop {
            let (store, now) = (Arc::clone(&self.store), self.clock.now());
            let destroyed = self.settings.executor.run(move || store.destroy_aside(now)).await;
            if let Ok(Err(error)) = destroyed {
                let what = "expired content of a store that was set aside";
                tracing::warn!(%error, "could not destroy {what}; trying again in an hour");
            }
            self.clock.sleep_until(now + EVERY).await;
        }
    }
}
