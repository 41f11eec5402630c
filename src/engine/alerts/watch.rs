//! Runs the checks of alerts every 5 minutes; those that use the network, or read a week of counts, every hour. The
//! schedule is not stored. After a start, all run within a minute. With a virtual clock, checks do not run.

use std::sync::Arc;
use std::time::Duration;

use super::notifier::SERVICE;
use super::{network, rates};
use crate::domain::alert::{Condition, Severity, Sighting};
use crate::engine::Engine;
use crate::engine::caught_panic::caught;
use crate::store::error::{OpError, StoreError};
use crate::store::op::alert::RaiseAlert;

/// Delay of the first checks.
const FIRST: Duration = Duration::from_secs(60);
/// Interval between two runs.
const EVERY: Duration = Duration::from_secs(300);
/// Number of runs after which the hourly checks run too.
const HOURLY: u32 = 12;

impl Engine {
    /// Runs the checks as long as the future is polled.
    pub(in crate::engine) async fn watch_alerts(self: &Arc<Self>) {
        if !self.settings.alerts.runs_checks {
            return;
        }
        tokio::time::sleep(FIRST).await;
        let mut run = 0_u32;
        loop {
            let is_hour = run.is_multiple_of(HOURLY);
            match caught(self.run_checks(is_hour)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    tracing::error!(%error, "could not record alert checks; repeating them in five minutes")
                }
                Err(crashed) => {
                    tracing::error!(%crashed, "an alert check panicked; repeating the checks in five minutes")
                }
            }
            run = run.wrapping_add(1);
            tokio::time::sleep(EVERY).await;
        }
    }

    async fn run_checks(self: &Arc<Self>, is_hour: bool) -> Result<(), StoreError> {
        self.check_locally().await?;
        if is_hour {
            let mut findings = network::findings(self).await;
            findings.extend(rates::findings(self).await?);
            self.record_findings(findings).await?;
        }
        Ok(())
    }

    /// Raises the alert that the last run of the service was not stopped cleanly.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn note_unclean_stop(&self, seen: &str) -> Result<(), StoreError> {
        let summary = "The service was not stopped cleanly";
        let sighting = Sighting::new(Condition::UncleanStop, Severity::Warning, summary, seen);
        match self.store.commit(RaiseAlert { account: SERVICE, sighting, is_over: true }).await {
            Ok(_) => Ok(()),
            Err(OpError::Failed(error)) => Err(error),
            Err(OpError::Refused(never)) => match never {},
        }
    }
}
