//! A test of alerts: sends a mail to each of the operator's addresses and a request to the webhook at once, and returns
//! the results.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::announce::WebhookBody;
use super::record::AlertRecord;
use crate::base::id::{AlertId, NoticeId};
use crate::domain::address::Address;
use crate::domain::alert::{Condition, NoticeKind, Severity};
use crate::engine::Engine;
use crate::store::error::StoreError;
use crate::store::row::alert::{AlertRow, Channel, NoticeStatus};

/// Time limit for the answer to one test. It is less than the wait of the command.
const PATIENCE: Duration = Duration::from_secs(45);

/// Result of one test.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TestResult {
    /// Mail or webhook.
    pub channel: Channel,
    /// The address, or the webhook's URL.
    pub to: String,
    /// Whether it was accepted.
    pub status: NoticeStatus,
    /// The relay that accepted it.
    pub relay: Option<String>,
    /// The answer or the failure; and whether the mail is signed.
    pub detail: String,
}

impl Engine {
    /// Sends the test without writing to the store.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn test_alerts(self: &Arc<Self>) -> Result<Vec<TestResult>, StoreError> {
        let signs = self.signs_alerts()?;
        let mut running = JoinSet::new();
        for (place, to) in self.settings.alerts.email.iter().cloned().enumerate() {
            let engine = Arc::clone(self);
            running.spawn(async move { (place, engine.test_mail(to, signs).await) });
        }
        if self.settings.alerts.webhook.is_some() {
            let engine = Arc::clone(self);
            running.spawn(async move { (usize::MAX, engine.test_webhook().await) });
        }
        let mut results = Vec::new();
        while let Some(ended) = running.join_next().await {
            results.push(ended.map_err(|_| StoreError::Panicked)?);
        }
        results.sort_by_key(|(place, _)| *place);
        Ok(results.into_iter().map(|(_, result)| result).collect())
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

    async fn test_mail(&self, to: Address, signs: bool) -> TestResult {
        let id: NoticeId = self.store.reserve_id(self.clock.now());
        let words = self.settings.test_mail(AlertId(id.0));
        let sent = match self.alerts.notifier() {
            Some(notifier) => timeout(PATIENCE, async { notifier.send_mail(id, &to, &words).await }).await,
            None => Ok(Ok(Err("the service does not send mail now".to_owned()))),
        };
        let (status, relay, mut detail) = match sent {
            Ok(Ok(Ok(taken))) => (NoticeStatus::Sent, Some(taken.relay), taken.answer),
            Ok(Ok(Err(why))) => (NoticeStatus::Failed, None, why),
            Ok(Err(error)) => (NoticeStatus::Failed, None, error.to_string()),
            Err(_) => (NoticeStatus::Failed, None, format!("no answer within {} s", PATIENCE.as_secs())),
        };
        if !signs {
            let domain = self.settings.alerts.from.domain();
            detail.push_str(&format!(
                " (not signed: the domain {domain} of alerts.from is not verified here, so receivers may refuse it)"
            ));
        }
        TestResult { channel: Channel::Email, to: to.as_given().to_owned(), status, relay, detail }
    }

    async fn test_webhook(&self) -> TestResult {
        let id: NoticeId = self.store.reserve_id(self.clock.now());
        let now = self.clock.now();
        let row = AlertRow {
            condition: Condition::UncleanStop,
            severity: Severity::Info,
            worst: Severity::Info,
            subject: None,
            summary: "Test of alerts".to_owned(),
            seen: "Nothing is wrong: this is a test.".to_owned(),
            opened_at: now,
            resolved_at: Some(now),
            announcements: Vec::new(),
            notices: Vec::new(),
        };
        let kind = NoticeKind::Test.webhook_type();
        let remedy = "There is nothing to do.".to_owned();
        let alert = AlertRecord { remedy, ..self.alert_record(AlertId(id.0), &row) };
        let body = WebhookBody { kind, alert }.bytes();
        let to = self.settings.alerts.webhook.as_ref().map(|webhook| webhook.url.to_string()).unwrap_or_default();
        let request = self.alert_request(id, kind, &body, 1);
        let (status, detail) = match self.alerts.notifier().zip(request) {
            Some((notifier, request)) => {
                let outcome = notifier.post.post(request).await;
                let answer = outcome.status.map(|status| format!("status {status}"));
                match outcome.error {
                    None => (NoticeStatus::Sent, answer.unwrap_or_default()),
                    Some(error) => (NoticeStatus::Failed, answer.unwrap_or_else(|| error.as_str().to_owned())),
                }
            }
            None => (NoticeStatus::Failed, "the service does not send mail now".to_owned()),
        };
        TestResult { channel: Channel::Webhook, to, status, relay: None, detail }
    }
}
