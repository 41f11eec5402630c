//! Notices that are sent to the operator at once, without writing to the store: tests of alerts, and the alert of a
//! machine whose log another machine has claimed, so that it can't record anything.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use tokio::task::JoinSet;
use tokio::time::error::Elapsed;
use tokio::time::timeout;

use super::announce::WebhookBody;
use super::notifier::Notifier;
use super::text::MailText;
use crate::base::id::NoticeId;
use crate::domain::address::Address;
use crate::engine::Engine;
use crate::engine::ports::PostOutcome;
use crate::store::error::StoreError;
use crate::store::row::alert::{Channel, NoticeStatus};

/// Time limit for the answer to one notice. It is less than the wait of the command that tests alerts.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(45);

/// Error of a notice that got no answer.
fn not_answered() -> String {
    format!("no answer within {} s", ANSWER_WAIT_MAX.as_secs())
}

/// Error of a notice without a notifier, which the dispatcher owns.
const NO_NOTIFIER: &str = "the service does not send mail now";

/// Result of one notice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NoticeResult {
    /// Mail or webhook.
    pub channel: Channel,
    /// The address, or the webhook's URL.
    pub to: String,
    /// Whether the notice was accepted.
    pub status: NoticeStatus,
    /// The relay that accepted the notice.
    pub relay: Option<String>,
    /// The answer or the failure; and whether the mail is signed.
    pub detail: String,
}

impl Engine {
    /// Sends the mail to each of the operator's addresses and `body` to the webhook, once and in parallel. Returns the
    /// results in the order of the configuration.
    ///
    /// # Errors
    /// Fails if the store can't be read.
    pub(super) async fn notify_at_once(
        self: &Arc<Self>,
        notifier: Option<Arc<Notifier>>,
        words: MailText,
        body: WebhookBody<'_>,
    ) -> Result<Vec<NoticeResult>, StoreError> {
        let signs = self.signs_alerts()?;
        let words = Arc::new(words);
        let mut running = JoinSet::new();
        for (place, to) in self.settings.alerts.email.iter().cloned().enumerate() {
            let (engine, notifier, words) = (Arc::clone(self), notifier.clone(), Arc::clone(&words));
            running.spawn(async move { (place, engine.mail_at_once(notifier, to, &words, signs).await) });
        }
        if self.settings.alerts.webhook.is_some() {
            let (engine, kind, body) = (Arc::clone(self), body.kind, Bytes::from(body.bytes()));
            running.spawn(async move { (usize::MAX, engine.post_at_once(notifier, kind, &body).await) });
        }
        let mut results = Vec::new();
        while let Some(ended) = running.join_next().await {
            results.push(ended.map_err(|_| StoreError::Panicked)?);
        }
        results.sort_by_key(|(place, _)| *place);
        Ok(results.into_iter().map(|(_, result)| result).collect())
    }

    async fn mail_at_once(
        &self,
        notifier: Option<Arc<Notifier>>,
        to: Address,
        words: &MailText,
        signs: bool,
    ) -> NoticeResult {
        let id: NoticeId = self.store.reserve_id(self.clock.now());
        let sent = match notifier {
            Some(notifier) => timeout(ANSWER_WAIT_MAX, notifier.send_mail(id, &to, words)).await,
            None => Ok(Ok(Err(NO_NOTIFIER.to_owned()))),
        };
        let (status, relay, mut detail) = match sent {
            Ok(Ok(Ok(taken))) => (NoticeStatus::Sent, Some(taken.relay), taken.answer),
            Ok(Ok(Err(why))) => (NoticeStatus::Failed, None, why),
            Ok(Err(error)) => (NoticeStatus::Failed, None, error.to_string()),
            Err(_) => (NoticeStatus::Failed, None, not_answered()),
        };
        if !signs {
            let domain = self.settings.alerts.from.domain();
            detail.push_str(&format!(
                " (not signed: the domain {domain} of alerts.from is not verified here, so receivers may refuse it)"
            ));
        }
        NoticeResult { channel: Channel::Email, to: to.as_given().to_owned(), status, relay, detail }
    }

    async fn post_at_once(&self, notifier: Option<Arc<Notifier>>, kind: &str, body: &[u8]) -> NoticeResult {
        let id: NoticeId = self.store.reserve_id(self.clock.now());
        let to = self.settings.alerts.webhook.as_ref().map(|webhook| webhook.url.to_string()).unwrap_or_default();
        let request = self.alert_request(id, kind, body, 1);
        let (status, detail) = match notifier.zip(request) {
            Some((notifier, request)) => {
                let has_begun = AtomicBool::new(false);
                outcome_of(timeout(ANSWER_WAIT_MAX, notifier.post.post(request, &has_begun)).await)
            }
            None => (NoticeStatus::Failed, NO_NOTIFIER.to_owned()),
        };
        NoticeResult { channel: Channel::Webhook, to, status, relay: None, detail }
    }
}

/// Returns the status of a notice to the webhook, and the receiver's answer or the reason of the failure.
fn outcome_of(posted: Result<PostOutcome, Elapsed>) -> (NoticeStatus, String) {
    let Ok(PostOutcome { status, error, .. }) = posted else { return (NoticeStatus::Failed, not_answered()) };
    let answer = status.map(|status| format!("status {status}"));
    match error {
        None => (NoticeStatus::Sent, answer.unwrap_or_default()),
        Some(error) => (NoticeStatus::Failed, answer.unwrap_or_else(|| error.as_str().to_owned())),
    }
}
