//! The status of a standby: its position, and the failures after which it continues.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::Following;
use super::sight::LogView;
use crate::app::cli_error::CliError;
use crate::app::replication::cannot_join;
use crate::engine::replica::{OnRetry, ReplicaError, ReplicaStatus, Standby, State};

/// Delay from which a standby counts as lagging.
const LAG: Duration = Duration::from_secs(5);

impl Following<'_> {
    /// Shows the position after a turn. `has_more` is true if a slot was applied.
    pub(super) fn show(&self, standby: &Standby, has_more: bool, status: &watch::Sender<ReplicaStatus>) {
        let position = standby.position();
        let holder = standby.head().map(|head| head.holder.to_string());
        let missing = missing(standby.missing_keys());
        let now = self.clock.now();
        let lag = if has_more { now.since(standby.committed_at()) } else { Duration::ZERO };
        status.send_modify(|status| {
            status.state = if lag < LAG { State::Ok } else { State::Lagging };
            status.lag_seconds = lag.as_secs_f64();
            status.error = missing;
            status.store = Some(position.store.to_string());
            status.epoch = position.epoch;
            status.slot = position.slot;
            (status.sequence, status.confirmed_sequence) = (position.sequence, position.sequence);
            status.last_confirmed_at = Some(now);
            if holder.is_some() {
                status.holder = holder;
            }
        });
    }

    /// Continues after a failure that may be temporary.
    pub(super) fn survive(
        &self,
        error: ReplicaError,
        sight: &LogView,
        status: &watch::Sender<ReplicaStatus>,
    ) -> Result<(), CliError> {
        use crate::engine::ports::BucketErrorKind::{Forbidden, Refused};
        let state = match &error {
            // Credentials may be replaced while the standby runs. At its start they are an operator's mistake.
            ReplicaError::Bucket(of) if of.kind == Forbidden && self.is_ready.get() => State::Forbidden,
            ReplicaError::Bucket(of) if matches!(of.kind, Forbidden | Refused) => return Err(cannot_join(&error)),
            ReplicaError::Bucket(_) => State::Unreachable,
            ReplicaError::NoBase | ReplicaError::Emptied => State::Waiting,
            ReplicaError::Missing { .. } | ReplicaError::Object { .. } => State::Resync,
            error if error.is_disk_full() => State::DiskFull,
            _ => return Err(cannot_join(&error)),
        };
        if status.borrow().state != state {
            tracing::warn!(%error, "the standby failed; trying again");
        }
        status.send_modify(|status| {
            status.state = state;
            let lag = sight.looked_at.map_or(Duration::ZERO, |at| self.clock.now().since(at));
            status.lag_seconds = lag.as_secs_f64();
            status.error = Some(error.to_string());
        });
        Ok(())
    }
}

/// Returns the reports of a build from a base that waits for the bucket.
pub(super) fn on_retry(status: &watch::Sender<ReplicaStatus>) -> OnRetry {
    let status = status.clone();
    Arc::new(move |error| {
        let Some(error) = error else {
            return status.send_modify(|status| (status.state, status.error) = (State::Resync, None));
        };
        if status.borrow().state != State::Unreachable {
            tracing::warn!(%error, "the bucket does not answer while the store is built from a base; trying again");
        }
        status.send_modify(|status| (status.state, status.error) = (State::Unreachable, Some(error.to_string())));
    })
}

/// Returns the error for content keys that the bucket lacks; `None` if there are none.
fn missing(keys: &[String]) -> Option<String> {
    let first = keys.first()?;
    let count = keys.len();
    Some(format!("{count} content keys are missing before their deadline, the first is {first}; asking again"))
}
