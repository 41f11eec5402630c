//! Runs the checks of alerts while the service runs: those that ask no network every 5 minutes, the others every hour.
//! Nothing of their schedule is stored: after a start, both run within a minute. A virtual clock runs none of them.

use std::sync::Arc;
use std::time::Duration;

use super::network;
use super::notifier::SERVICE;
use crate::domain::alert::{Condition, Severity, Sighting};
use crate::engine::Engine;
use crate::engine::crash::caught;
use crate::store::error::{Stop, StoreError};
use crate::store::op::alert::RaiseAlert;

/// The pause before the first checks.
const FIRST: Duration = Duration::from_secs(60);
/// The pause between two runs.
const EVERY: Duration = Duration::from_secs(300);
/// Runs of which one asks the network too.
const NETWORK_EVERY: u32 = 12;

impl Engine {
    /// Runs the checks for as long as it is polled.
    pub(in crate::engine) async fn watch_alerts(self: &Arc<Self>) {
        if !self.settings.alerts.runs_checks {
            return;
        }
        tokio::time::sleep(FIRST).await;
        let mut run = 0_u32;
        loop {
            let asks_network = run.is_multiple_of(NETWORK_EVERY);
            match caught(self.run_checks(asks_network)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::error!(%error, "could not record the checks of alerts"),
                Err(crashed) => tracing::error!(%crashed, "a check of alerts crashed"),
            }
            run = run.wrapping_add(1);
            tokio::time::sleep(EVERY).await;
        }
    }

    async fn run_checks(self: &Arc<Self>, asks_network: bool) -> Result<(), StoreError> {
        self.check_locally().await?;
        if asks_network {
            let findings = network::findings(self).await;
            self.record_findings(findings).await?;
        }
        Ok(())
    }

    /// Raises the alert of a last run that did not end by itself.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn note_unclean_stop(&self, seen: &str) -> Result<(), StoreError> {
        let summary = "The service was not stopped cleanly";
        let sighting = Sighting::new(Condition::UncleanStop, Severity::Warning, summary, seen);
        match self.store.commit(RaiseAlert { account: SERVICE, sighting, is_over: true }).await {
            Ok(_) => Ok(()),
            Err(Stop::Failed(error)) => Err(error),
            Err(Stop::Refused(never)) => match never {},
        }
    }
}
