//! Alerts about relays, raised by transfers: a relay needs its operator, or works again. A check ends the alerts of
//! relays that send no messages any more.

use std::sync::{Arc, PoisonError};

use super::notifier::SERVICE;
use crate::base::id::AccountId;
use crate::domain::alert::{Condition, Severity, Sighting, Subject, SubjectKind};
use crate::engine::Engine;
use crate::store::error::StoreError;
use crate::store::op::alert::{ClearAlert, Finding, RaiseAlert, known_subjects};
use crate::store::read::Read as _;
use crate::store::row::alert::AlertStateRow;
use crate::store::schema;
use crate::store::snapshot::Snapshot;

impl Engine {
    /// Raises the alert of a relay whose login is refused, or whose source address is not configured on this machine.
    pub(in crate::engine) fn relay_fails(&self, relay: &Arc<str>, why: &str) {
        self.alerts.working.lock().unwrap_or_else(PoisonError::into_inner).remove(relay);
        // The smarthost's own text may contain personal names.
        let kind = why.split(": ").next().unwrap_or_default();
        let summary = format!("The relay {relay} can't be used");
        let sighting = Sighting::new(Condition::RelayFailing, Severity::Critical, summary, kind);
        let sighting = sighting.of(Subject::named(SubjectKind::Relay, relay));
        self.store.post(RaiseAlert { account: AccountId::default(), sighting, is_over: false }, |_raised| {});
    }

    /// Ends the alert of a relay after an answer from a server. It searches the store for an open alert only once after
    /// a start or a failure.
    pub(in crate::engine) fn relay_works(&self, relay: &Arc<str>, is_direct: bool) {
        if is_direct {
            let now = self.clock.now();
            *self.alerts.reached_directly.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
        }
        if !self.alerts.working.lock().unwrap_or_else(PoisonError::into_inner).insert(Arc::clone(relay)) {
            return;
        }
        let key = schema::alert_state(AccountId::default(), Condition::RelayFailing, relay);
        let state = self.store.snapshot().and_then(|snapshot| snapshot.sound_row::<AlertStateRow>(&key));
        if state.is_ok_and(|state| state.is_some_and(|row| row.state.is_open())) {
            let (account, subject) = (AccountId::default(), relay.to_string());
            self.store.post(ClearAlert { account, condition: Condition::RelayFailing, subject }, |_ended| {});
        }
    }

    /// Returns the finding that ends the alerts of relays that the configuration no longer has, or has for alerts only:
    /// no transfer will show that they work. `None` if the relays are unknown.
    pub(super) fn removed_relays(&self, snapshot: &Snapshot) -> Result<Option<Finding>, StoreError> {
        let Some(notifier) = self.alerts.notifier() else { return Ok(None) };
        let condition = Condition::RelayFailing;
        let mut unknown = known_subjects(snapshot, SERVICE, condition)?;
        let relays = notifier.egress.relays();
        unknown.retain(|name| relays.iter().any(|relay| *relay.name == **name && !relay.streams.is_empty()));
        Ok(Some(Finding { unknown, ..Finding::of_service(condition, []) }))
    }
}
