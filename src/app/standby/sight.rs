//! A standby's view of the log and the bases in the bucket.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::{Following, RoundResult};
use crate::app::replication;
use crate::base::time::Timestamp;
use crate::engine::replica::{ReplicaError, ReplicaStatus, Standby};
use crate::machine::replica_lease::{LeaseInput, LeaseRules, LeaseState};

/// Time between two checks of the bases.
const BASES: Duration = Duration::from_secs(60);

/// A standby's view of the log.
pub(super) struct LogView {
    /// Time of the last slot that was added after the end of the log was first reached.
    pub(super) moved_at: Option<Instant>,
    pub(super) is_at_end: bool,
    pub(super) looked_at: Option<Timestamp>,
    /// Whether the log has had no new slot for so long that its lease has expired.
    lease: LeaseState,
    /// Time of the last check of the bases, and the last slot at that time.
    bases: Option<(Instant, u64)>,
}

impl LogView {
    /// Creates an empty view.
    pub(super) const fn new() -> Self {
        let lease = LeaseState::Following { unchanged_since: None };
        Self { moved_at: None, is_at_end: false, looked_at: None, lease, bases: None }
    }

    /// Lets a log that was not claimed count as abandoned only after another two leases.
    pub(super) const fn begin_again(&mut self) {
        self.lease = LeaseState::Following { unchanged_since: None };
    }
}

impl Following<'_> {
    /// Returns whether the log had no new slot for two leases of its holder while the bucket answered.
    pub(super) fn is_abandoned(
        &self,
        turn: &Result<RoundResult, ReplicaError>,
        asked_at: Duration,
        sight: &mut LogView,
        standby: Option<&Standby>,
    ) -> bool {
        let own = replication::lease_rules(self.config);
        let lease = standby.map_or(own.lease, |standby| own.lease.max(standby.lease()));
        let input = match turn {
            Ok(RoundResult::End) => LeaseInput::Still(asked_at),
            Ok(RoundResult::Applied | RoundResult::Resynced | RoundResult::OwnLog) => LeaseInput::Moved,
            Err(_) => LeaseInput::Unanswered,
        };
        sight.lease = sight.lease.step(input, asked_at, &LeaseRules { lease, ..own });
        let mut is_abandoned = sight.lease == LeaseState::Claiming;
        if is_abandoned && self.world.replica.disk.lacks_room(&self.config.data_dir).is_some() {
            // A machine that can't serve must not depose one that may live.
            tracing::error!("the disk of this standby is full, so it does not claim the log; free space");
            sight.begin_again();
            is_abandoned = false;
        }
        if is_abandoned {
            tracing::warn!(lease_seconds = lease.as_secs(), "no new slot for two leases; claiming the log");
        }
        is_abandoned
    }

    /// Shows the bases in the bucket, once a minute if there are new slots.
    pub(super) async fn show_bases(
        &self,
        standby: &Standby,
        sight: &mut LogView,
        status: &watch::Sender<ReplicaStatus>,
    ) -> Result<(), ReplicaError> {
        let slot = standby.position().slot;
        if sight.bases.is_some_and(|(at, seen)| seen == slot || at.elapsed() < BASES) {
            return Ok(());
        }
        sight.bases = Some((Instant::now(), slot));
        let (base, restorable_from) = standby.bases().await?;
        status.send_modify(|status| (status.base, status.restorable_from) = (base, restorable_from));
        Ok(())
    }
}
