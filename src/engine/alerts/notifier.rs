//! Sends notices when their timers are due: mails over the routes of [`super::egress`], webhook requests by [`Post`].
//! One operation records the outcome. After a crash before that operation, the notice is sent again.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bytes::Bytes;

use super::egress::{AcceptedMail, Egress};
use super::record::Alert;
use super::text::MailText;
use super::turns::{MailOwner, Turn, Turns};
use crate::base::id::{AccountId, DeliveryId, DomainId, NoticeId, Ulid};
use crate::domain::address::Address;
use crate::engine::caught_panic::caught;
use crate::engine::ports::{Post, Requester, WebhookRequest};
use crate::engine::webhook::WebhookCall;
use crate::engine::{EgressRoutes, Engine};
use crate::mail::dkim;
use crate::mail::notice::Notice;
use crate::store::error::{OpError, StoreError};
use crate::store::op::Infallible;
use crate::store::op::notice::{NoticeEnd, SettleNotice};
use crate::store::read::Read;
use crate::store::row::alert::AlertRow;
use crate::store::row::domain::DomainRow;
use crate::store::row::notice::{NoticeContent, NoticeItem, NoticeRow};
use crate::store::schema::{self, Table};
use crate::store::timer::Timer;

/// Delay before a notice that could not be read or recorded is retried.
const AGAIN: Duration = Duration::from_secs(60);

/// The sender of notices.
pub(in crate::engine) struct Notifier {
    pub(super) egress: Egress,
    pub(super) post: Arc<dyn Post>,
    engine: Arc<Engine>,
    turns: Turns,
}

/// Result of one attempt to send a notice.
struct Attempt {
    end: NoticeEnd,
    /// Number of changes that the notice reported.
    items: usize,
}

impl Notifier {
    /// Creates the sender, over the egress routes for mail and webhooks.
    pub(in crate::engine) fn new(
        engine: &Arc<Engine>,
        routes: &EgressRoutes,
        transmit: Arc<dyn crate::engine::ports::Transmit>,
        post: Arc<dyn Post>,
        tls: crate::engine::tls_policy::TlsPolicies,
    ) -> Arc<Self> {
        let first = engine.settings.alerts.relay.as_deref();
        let egress = Egress::new(transmit, routes, first, tls);
        Arc::new(Self { egress, post, engine: Arc::clone(engine), turns: Turns::new() })
    }

    /// Serves the timer of a notice, which stays taken until its outcome is committed.
    pub(in crate::engine) fn take(self: &Arc<Self>, timer: Timer) {
        let notifier = Arc::clone(self);
        tokio::spawn(async move {
            let served = Box::pin(caught(notifier.serve(timer))).await;
            let fault = match served {
                Ok(Ok(())) => return,
                Ok(Err(OpError::Failed(error))) => error.to_string(),
                Ok(Err(OpError::Refused(never))) => match never {},
                Err(crashed) => crashed.to_string(),
            };
            tracing::error!(%fault, "could not serve a notice; trying again in a minute");
            tokio::time::sleep(AGAIN).await;
            notifier.engine.store.timers().give_back(timer);
        });
    }

    async fn serve(&self, timer: Timer) -> Result<(), OpError<Infallible>> {
        let id = NoticeId(timer.id);
        let _turn = self.turn(id).await?;
        let row = self.engine.store.snapshot()?.row::<NoticeRow>(id.as_bytes())?;
        let Some(row) = row.filter(|row| row.due == timer.due) else {
            let end = NoticeEnd::Dropped;
            return self.engine.store.commit(SettleNotice { notice: id, due: timer.due, end, items: 0 }).await;
        };
        // If the store has failed, the outcome of a notice could not be recorded.
        self.engine.store.health().check()?;
        let Attempt { end, items } = self.attempt(id, &row).await?;
        if matches!(end, NoticeEnd::NotTaken { .. }) {
            let (channel, attempts) = (row.content.channel().as_str(), row.attempts + 1);
            tracing::warn!(
                notice = %id,
                channel,
                attempts,
                "could not send a notice; trying again until its last attempt"
            );
        }
        self.engine.store.commit(SettleNotice { notice: id, due: timer.due, end, items }).await
    }

    /// Waits until the notice may be sent. `None` if it was removed.
    async fn turn(&self, id: NoticeId) -> Result<Option<Turn>, StoreError> {
        let Some(row) = self.engine.store.snapshot()?.row::<NoticeRow>(id.as_bytes())? else { return Ok(None) };
        let (to, payer) = match &row.content {
            NoticeContent::Webhook { .. } => return Ok(Some(self.turns.webhook().await)),
            NoticeContent::Alerts { to, items } => (to.clone(), self.payer(to, items)),
            NoticeContent::Invitation(invitation) => match self.engine.invitation_link(invitation)? {
                Some((to, _)) => (to, MailOwner::Account(invitation.account)),
                None => return Ok(None),
            },
        };
        Ok(Some(self.turns.mail(payer, to.domain()).await))
    }

    /// Returns the party for whom a mail with these changes is sent.
    fn payer(&self, to: &Address, items: &[NoticeItem]) -> MailOwner {
        let is_operator = self.engine.settings.alerts.email.iter().any(|known| known.match_key() == to.match_key());
        match items.first() {
            Some(item) if !is_operator => MailOwner::Account(item.account),
            _ => MailOwner::Operator,
        }
    }

    async fn attempt(&self, id: NoticeId, row: &NoticeRow) -> Result<Attempt, StoreError> {
        let items = row.content.items().len();
        let end = match &row.content {
            NoticeContent::Alerts { to, items } => {
                let changes = self.changes(to, items)?;
                if changes.is_empty() {
                    NoticeEnd::Dropped
                } else {
                    let words = self.engine.settings.alert_mail(changes);
                    self.mailed(id, to, &words).await?
                }
            }
            NoticeContent::Webhook { item, body, delivery } => {
                self.posted(id, *item, body, delivery.attempts + 1).await
            }
            NoticeContent::Invitation(invitation) => match self.engine.invitation_link(invitation)? {
                Some((to, link)) => {
                    let words = self.engine.settings.invitation_mail(&link, invitation.expires_at);
                    self.mailed(id, &to, &words).await?
                }
                None => NoticeEnd::Dropped,
            },
        };
        Ok(Attempt { end, items })
    }

    /// Returns the changes whose alerts still exist and still concern the recipient.
    fn changes(&self, to: &Address, items: &[NoticeItem]) -> Result<Vec<(NoticeItem, Alert)>, StoreError> {
        let snapshot = self.engine.store.snapshot()?;
        let mut changes = Vec::new();
        for item in items {
            let NoticeItem { account, alert: id, .. } = *item;
            let Some(row) = snapshot.sound_row::<AlertRow>(&schema::alert(account, id))? else { continue };
            // A user may have been removed since the change.
            let recipients = self.engine.notified_addresses(&snapshot, account, &row)?;
            if recipients.iter().any(|known| known.match_key() == to.match_key()) {
                changes.push((*item, Alert { account, id, row }));
            }
        }
        Ok(changes)
    }

    async fn mailed(&self, id: NoticeId, to: &Address, words: &MailText) -> Result<NoticeEnd, StoreError> {
        let sent = self.send_mail(id, to, words).await?;
        Ok(match sent {
            Ok(taken) => NoticeEnd::Sent(Some(taken.relay)),
            Err(why) => {
                tracing::debug!(notice = %id, why, "no relay accepted a notice");
                NoticeEnd::NotTaken { at: self.engine.clock.now() }
            }
        })
    }

    /// Composes, signs and sends a mail.
    pub(super) async fn send_mail(
        &self,
        id: NoticeId,
        to: &Address,
        words: &MailText,
    ) -> Result<Result<AcceptedMail, String>, StoreError> {
        let mail = self.engine.notice_mail(id, to, words)?;
        Ok(self.egress.send(&self.engine, to, &mail).await)
    }

    async fn posted(&self, id: NoticeId, item: NoticeItem, body: &[u8], number: u8) -> NoticeEnd {
        let kind = item.kind.webhook_type();
        match self.engine.alert_request(id, kind, body, number) {
            // The webhook is no longer configured.
            None => NoticeEnd::Dropped,
            Some(request) => match self.post.post(request, &AtomicBool::new(false)).await.error {
                None => NoticeEnd::Sent(None),
                Some(_) => NoticeEnd::NotTaken { at: self.engine.clock.now() },
            },
        }
    }
}

impl Engine {
    /// Returns a mail of the service, signed if the sender's domain is verified here.
    pub(super) fn notice_mail(&self, id: NoticeId, to: &Address, words: &MailText) -> Result<Bytes, StoreError> {
        let from = &self.settings.alerts.from;
        let at = self.clock.time().wall;
        let message_id = format!("{id}@{}", from.domain());
        let MailText { subject, text, alerts } = words;
        let message = Notice { from, to, subject, message_id: &message_id, at, alerts, text }.message();
        let Some((domain, row)) = self.alert_domain()? else { return Ok(Bytes::from(message)) };
        let keys = self.signing.keys().active(domain, &row, self.store.master_key());
        let keys = keys.map_err(StoreError::Content)?;
        let keys: Vec<_> = keys.iter().map(Arc::as_ref).collect();
        let mut signed = dkim::sign(&keys, &message, at).map_err(|error| StoreError::Content(error.to_string()))?;
        signed.extend_from_slice(&message);
        Ok(Bytes::from(signed))
    }

    /// Returns the verified domain of the alerts' sender, if it is registered here.
    pub(super) fn alert_domain(&self) -> Result<Option<(DomainId, DomainRow)>, StoreError> {
        let snapshot = self.store.snapshot()?;
        let name = self.settings.alerts.from.domain().as_str().as_bytes();
        let Some(key) = snapshot.get(Table::DomainOwners, name)? else { return Ok(None) };
        let row = snapshot.row::<DomainRow>(&key)?.filter(|row| row.status.may_send());
        let id = key.last_chunk::<16>().map(|id| DomainId(Ulid(*id)));
        Ok(id.zip(row))
    }

    /// Returns whether mails of the service are signed.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn signs_alerts(&self) -> Result<bool, StoreError> {
        Ok(self.alert_domain()?.is_some())
    }

    /// Returns the signed request of a webhook notice; `None` if no webhook is configured.
    pub(super) fn alert_request(&self, id: NoticeId, kind: &str, body: &[u8], number: u8) -> Option<WebhookRequest> {
        let webhook = self.settings.alerts.webhook.as_ref()?;
        let event = id.to_string();
        let at = self.clock.time().wall;
        let telling = WebhookCall { event: &event, kind, delivery: DeliveryId(id.0), number, at, body };
        let headers = telling.headers(&webhook.secret);
        let (url, body) = (webhook.url.clone(), Bytes::copy_from_slice(body));
        Some(WebhookRequest { url, headers, body, requester: Requester::SERVICE })
    }
}

/// The scope of alerts of the service.
pub(super) const SERVICE: AccountId = AccountId(Ulid([0; 16]));
