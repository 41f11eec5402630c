//! Turns of notices: the number of them that are sent concurrently, so that a silent mail server delays only notices to
//! its own domain.
//!
//! Webhook requests never wait for mail. Mail to a domain has few permits, for which the operator and the accounts take
//! turns. Mail to users of accounts also needs one of the permits for which accounts take turns; mail to the operator
//! does not, because the configuration has few addresses.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::base::id::AccountId;
use crate::domain::hostname::DomainName;
use crate::engine::turn_permits::{TurnPermit, TurnPermits};

/// Maximum webhook requests sent concurrently.
const WEBHOOKS_AT_ONCE: usize = 8;
/// Maximum mails to users of accounts sent concurrently. No account has more than half of them.
const USERS_AT_ONCE: usize = 64;
/// Maximum mails to one domain sent concurrently. No payer has more than half of them.
const OF_DOMAIN_AT_ONCE: usize = 4;

/// The party for whom a mail is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Payer {
    /// The operator, whose addresses are in the configuration.
    Operator,
    /// An account, whose user gets the mail.
    Account(AccountId),
}

/// The permits for sending notices.
pub(super) struct Turns {
    webhooks: Arc<Semaphore>,
    users: TurnPermits,
    /// Permits of the domains with a mail in flight or waiting.
    domains: Mutex<HashMap<DomainName, Arc<TurnPermits<Payer>>>>,
}

/// The right to send one notice. Dropping it releases the permits.
pub(super) struct Turn {
    _webhook: Option<OwnedSemaphorePermit>,
    _of_domain: Option<TurnPermit<Payer>>,
    _user: Option<TurnPermit>,
}

impl Turns {
    pub(super) fn new() -> Self {
        Self {
            webhooks: Arc::new(Semaphore::new(WEBHOOKS_AT_ONCE)),
            users: TurnPermits::new(USERS_AT_ONCE),
            domains: Mutex::default(),
        }
    }

    /// Waits for the turn of a webhook request.
    pub(super) async fn webhook(&self) -> Turn {
        let webhook = Arc::clone(&self.webhooks).acquire_owned().await.ok();
        Turn { _webhook: webhook, _of_domain: None, _user: None }
    }

    /// Waits for the turn of a mail to `domain`.
    pub(super) async fn mail(&self, payer: Payer, domain: &DomainName) -> Turn {
        // A mail that waits for its domain holds no permit of its account.
        let permits = self.domain(domain);
        let of_domain = permits.take(payer).await;
        let user = match payer {
            Payer::Operator => None,
            Payer::Account(account) => self.users.take(account).await,
        };
        Turn { _webhook: None, _of_domain: of_domain, _user: user }
    }

    fn domain(&self, domain: &DomainName) -> Arc<TurnPermits<Payer>> {
        let mut domains = self.domains.lock().unwrap_or_else(PoisonError::into_inner);
        domains.retain(|_, permits| Arc::strong_count(permits) > 1 || permits.is_used());
        let permits = domains.entry(domain.clone());
        Arc::clone(permits.or_insert_with(|| Arc::new(TurnPermits::new(OF_DOMAIN_AT_ONCE))))
    }
}
