//! A test of alerts: sends a mail to each of the operator's addresses and a request to the webhook at once, and returns
//! the results.

use std::sync::Arc;

use super::announce::WebhookBody;
use super::immediate::NoticeResult;
use super::record::AlertRecord;
use crate::base::id::AlertId;
use crate::domain::alert::{Condition, NoticeKind, Severity, Sighting};
use crate::engine::Engine;
use crate::store::error::StoreError;
use crate::store::row::alert::AlertRow;

impl Engine {
    /// Sends the test without writing to the store.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn test_alerts(self: &Arc<Self>) -> Result<Vec<NoticeResult>, StoreError> {
        let now = self.clock.now();
        let id: AlertId = self.store.reserve_id(now);
        let seen = "Nothing is wrong: this is a test.";
        let sighting = Sighting::new(Condition::UncleanStop, Severity::Info, "Test of alerts", seen);
        let row = AlertRow { resolved_at: Some(now), ..AlertRow::opened(&sighting, now) };
        let remedy = "There is nothing to do.".to_owned();
        let alert = AlertRecord { remedy, ..self.alert_record(id, &row) };
        let body = WebhookBody { kind: NoticeKind::Test.webhook_type(), alert };
        self.notify_at_once(self.alerts.notifier(), self.settings.test_mail(id), body).await
    }

    /// Returns a warning if owners get unsigned mails, which no test shows.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn owner_mail_warning(&self) -> Result<Option<String>, StoreError> {
        if !self.settings.alerts.tells_owners || self.signs_alerts()? {
            return Ok(None);
        }
        let domain = self.settings.alerts.from.domain();
        Ok(Some(format!(
            "Alerts to owners are not signed: the domain {domain} of alerts.from is not verified here, so receivers \
             may refuse them."
        )))
    }
}
