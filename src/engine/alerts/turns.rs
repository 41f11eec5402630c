//! Turns of notices: limits on the notices that are sent concurrently. A silent mail server delays only notices to its
//! own domain, and those to users of an account whose mails wait for many silent servers.
//!
//! Webhook requests never wait for mail. Mail to a domain has few permits, for which the operator and the accounts take
//! turns. Mail to users of accounts also needs one of the permits for which accounts take turns; mail to the operator
//! does not, because the configuration has few addresses.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub(super) use super::mail_permits::MailOwner;
use super::mail_permits::{MailPermit, MailPermits};
use crate::domain::hostname::DomainName;

/// Maximum number of webhook requests sent concurrently.
const WEBHOOKS_AT_ONCE: usize = 8;

/// The permits for sending notices.
pub(super) struct Turns {
    webhooks: Arc<Semaphore>,
    mails: MailPermits,
}

/// The right to send one notice. Dropping it releases the permits.
pub(super) struct Turn {
    _webhook: Option<OwnedSemaphorePermit>,
    _mail: Option<MailPermit>,
}

impl Turns {
    pub(super) fn new() -> Self {
        Self { webhooks: Arc::new(Semaphore::new(WEBHOOKS_AT_ONCE)), mails: MailPermits::default() }
    }

    /// Waits for the turn of a webhook request.
    pub(super) async fn webhook(&self) -> Turn {
        Turn { _webhook: Arc::clone(&self.webhooks).acquire_owned().await.ok(), _mail: None }
    }

    /// Waits for the turn of a mail to `domain`.
    pub(super) async fn mail(&self, payer: MailOwner, domain: &DomainName) -> Turn {
        Turn { _webhook: None, _mail: self.mails.take(payer, domain).await }
    }
}
