//! The alert of a deposed machine. Another machine has claimed its log, so it can't record the alert, and the process
//! ends: the notices are sent at once, each a single time, while the service stops.

use std::sync::Arc;

use super::announce::WebhookBody;
use super::notifier::SERVICE;
use super::record::Alert;
use crate::base::id::AlertId;
use crate::domain::alert::{Condition, NoticeKind, Severity, Sighting};
use crate::engine::Engine;
use crate::engine::replica::Role;
use crate::store::row::alert::{AlertRow, NoticeStatus};
use crate::store::row::notice::NoticeItem;

/// Returns the sighting of a machine whose log `holder` has claimed.
pub(super) fn sighting(holder: &str) -> Sighting {
    let summary = format!("Replication is {}", Role::Deposed.as_str());
    let seen = format!("Another machine claimed the log: {holder}. This machine stopped.");
    Sighting::new(Condition::Replica, Severity::Critical, summary, seen)
}

impl Engine {
    /// Notifies the operator that `holder` has claimed the log of this machine.
    pub async fn announce_deposition(self: &Arc<Self>, holder: &str) {
        let now = self.clock.now();
        let id: AlertId = self.store.reserve_id(now);
        let row = AlertRow::opened(&sighting(holder), now);
        let kind = NoticeKind::Opened;
        let body = WebhookBody { kind: kind.webhook_type(), alert: self.alert_record(id, &row) };
        let item = NoticeItem { account: SERVICE, alert: id, kind, at: now };
        let alert = Alert { account: SERVICE, id, row: row.clone() };
        let words = self.settings.alert_mail(vec![(item, alert)]);
        match self.notify_at_once(self.alerts.last_notifier(), words, body).await {
            Ok(results) => {
                for failed in results.iter().filter(|result| result.status != NoticeStatus::Sent) {
                    let channel = failed.channel.as_str();
                    tracing::warn!(
                        channel,
                        "could not send the notice that this machine was deposed; it is not repeated"
                    );
                    tracing::debug!(channel, detail = failed.detail, "a notice of the deposition failed");
                }
            }
            Err(error) => {
                tracing::warn!(
                    %error,
                    "could not send the notices that this machine was deposed; they are not repeated"
                )
            }
        }
    }
}
