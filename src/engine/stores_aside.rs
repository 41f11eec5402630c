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
            let (store, expiry) = (Arc::clone(&self.store), self.clock.time().expiry);
            let destroyed = self.settings.executor.run(move || store.destroy_aside(expiry)).await;
            if let Ok(Err(error)) = destroyed {
                tracing::warn!(%error, "could not destroy expired content set aside; trying again in an hour");
            }
            let next = self.clock.monotonic() + EVERY;
            while let Some(left) = next.checked_sub(self.clock.monotonic()).filter(|left| !left.is_zero()) {
                self.clock.sleep_until(self.clock.now() + left).await;
            }
        }
    }
}
