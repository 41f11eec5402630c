//! The quota alert after a refusal. The refused operation writes nothing, so another operation follows it.

use crate::base::id::AccountId;
use crate::domain::alert::{Condition, Severity};
use crate::engine::Engine;
use crate::machine::alert::{Open, State};
use crate::machine::quota::QuotaExhausted;
use crate::store::op::alert::RaiseAlert;
use crate::store::op::alert_quota;
use crate::store::read::Read as _;
use crate::store::row::alert::AlertStateRow;
use crate::store::schema;

impl Engine {
    /// Raises the alert of an account whose message exceeded its quota. If the alert is open already, nothing is
    /// written: further refusals cost only a read.
    pub(in crate::engine) fn quota_refused(&self, account: AccountId, exhausted: &QuotaExhausted) {
        let key = schema::alert_state(account, Condition::Quota, "");
        let state = self.store.snapshot().and_then(|snapshot| snapshot.sound_row::<AlertStateRow>(&key));
        let is_raised = state.is_ok_and(|row| {
            let critical = Severity::Critical;
            row.is_some_and(|row| matches!(row.state, State::Open(Open { severity, .. }) if severity == critical))
        });
        if !is_raised {
            let sighting = alert_quota::refused(exhausted);
            self.store.post(RaiseAlert { account, sighting, is_over: false }, |_raised| {});
        }
    }
}
