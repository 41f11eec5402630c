//! Health sections of the system page: open alerts of the service, and the state of replication.

use crate::base::id::AlertId;
use crate::domain::alert::{Scope, Severity};
use crate::engine::Engine;
use crate::engine::alerts::listing::{AlertFilter, AlertState, AlertsOf};
use crate::engine::alerts::record::Alert;
use crate::engine::listing::PageRequest;
use crate::engine::replica::{ReplicaStatus, Role, State};
use crate::panel::components::{Badge, byte_size, grouped};
use crate::panel::page_guard::Visit;
use crate::panel::prose::Prose;
use crate::panel::timestamp::{Moment, lasted};
use crate::panel::wording::{self, capitalized};
use crate::store::error::StoreError;

/// Maximum number of open alerts read, across all accounts.
const ALERTS_READ: usize = 500;
/// Maximum number of open service alerts shown.
const ALERTS_SHOWN: usize = 20;

/// An open alert of the service.
pub(super) struct SystemAlert {
    pub(super) id: AlertId,
    pub(super) badge: Badge,
    pub(super) condition: &'static str,
    pub(super) words: &'static str,
    pub(super) summary: String,
    pub(super) seen: Prose,
    pub(super) remedy: Prose,
    pub(super) opened_at: Moment,
}

/// Returns the open alerts of the service, newest first. Blocks.
///
/// # Errors
/// Store errors.
pub(super) fn open_alerts(engine: &Engine) -> Result<Vec<Alert>, StoreError> {
    let filter = AlertFilter { state: Some(AlertState::Open), ..AlertFilter::default() };
    let page = PageRequest { before: None, limit: ALERTS_READ };
    let found = engine.alerts_of(AlertsOf::All, filter, page)?.rows.into_iter();
    Ok(found.filter(|alert| alert.row.condition.scope() == Scope::System).take(ALERTS_SHOWN).collect())
}

impl SystemAlert {
    /// Converts an alert for the page.
    pub(super) fn new(visit: &Visit<'_>, alert: Alert) -> Self {
        let Alert { id, row, .. } = alert;
        Self {
            id,
            badge: match row.severity {
                Severity::Critical => Badge::new("Critical", "bad", "cross"),
                Severity::Warning => Badge::new("Warning", "wait", "warn"),
                Severity::Info => Badge::new("Info", "calm", "bell"),
            },
            condition: row.condition.as_str(),
            words: wording::condition(row.condition),
            summary: row.summary,
            seen: visit.prose(&row.seen),
            remedy: visit.prose(row.condition.remedy()),
            opened_at: visit.moment(row.opened_at),
        }
    }
}

/// State of replication.
pub(super) struct ReplicationState {
    pub(super) badge: Badge,
    pub(super) facts: Vec<(&'static str, String)>,
    pub(super) last_confirmed_at: Option<Moment>,
    pub(super) base_at: Option<Moment>,
    pub(super) error: Option<Prose>,
}

impl ReplicationState {
    /// Returns the current state. `None` if replication is not configured.
    pub(super) fn of(visit: &Visit<'_>) -> Option<Self> {
        let status = visit.api.engine.replication.get()?.status(visit.now);
        Some(Self {
            badge: badge(&status),
            facts: vec![
                ("Role", capitalized(status.role.as_str())),
                ("Mode", format!("{}, failover {}", capitalized(status.mode), status.failover)),
                ("Lag", lasted(std::time::Duration::try_from_secs_f64(status.lag_seconds).unwrap_or_default())),
                ("Not in the bucket yet", byte_size(status.backlog_bytes)),
                ("Last log object", format!("Number {}", grouped(status.slot))),
                ("Epoch of the writer", status.epoch.to_string()),
            ],
            last_confirmed_at: status.last_confirmed_at.map(|at| visit.detail(at)),
            base_at: status.base.map(|base| visit.detail(base.taken_at)),
            error: status.error.map(|error| visit.prose(&error)),
        })
    }
}

const fn badge(status: &ReplicaStatus) -> Badge {
    match (status.role, status.state) {
        (Role::Deposed, _) => Badge::new("Deposed", "bad", "cross"),
        (_, State::Ok) => Badge::new("OK", "good", "check"),
        (_, State::Waiting) => Badge::new("Waiting", "calm", "clock"),
        (_, State::Lagging) => Badge::new("Lagging", "wait", "warn"),
        (_, State::Unreachable) => Badge::new("Unreachable", "bad", "cross"),
        (_, State::Forbidden) => Badge::new("Forbidden", "bad", "lock"),
        (_, State::Degraded) => Badge::new("Degraded", "bad", "warn"),
        (_, State::Resync) => Badge::new("Resync", "bad", "again"),
        (_, State::DiskFull) => Badge::new("Disk full", "bad", "warn"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_replication_state_has_its_badge() {
        let of = |role, state| badge(&ReplicaStatus { role, state, ..ReplicaStatus::off() });
        let words: std::collections::BTreeSet<_> =
            State::ALL.iter().map(|state| of(Role::Active, *state).to_string()).collect();
        assert_eq!(words.len(), State::ALL.len());
        assert_eq!(of(Role::Active, State::Ok).tone(), "good");
        assert_eq!(of(Role::Deposed, State::Ok).tone(), "bad");
    }
}
