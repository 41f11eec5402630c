//! Turns of notices: the number of them that are sent concurrently, so that a silent mail server delays only notices to
//! its own domain.
//!
//! Webhook requests never wait for mail. Mail to a domain waits for other mail of the same payer to this domain only.
//! Mail to users of accounts also needs one of the permits for which accounts take turns; mail to the operator does
//! not, because the configuration has few addresses.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::base::id::AccountId;
use crate::domain::hostname::DomainName;
use crate::engine::turn_permits::{TurnPermit, TurnPermits};

/// Maximum webhook requests sent concurrently.
const WEBHOOKS_AT_ONCE: usize = 8;
/// Maximum mails to users of accounts sent concurrently. No account has more than half of them.
const USERS_AT_ONCE: usize = 16;
/// Maximum mails to one domain, of one payer, sent concurrently.
const OF_DOMAIN_AT_ONCE: usize = 2;

/// The party for whom a mail is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Payer {
    /// The operator, whose addresses are in the configuration.
    Operator,
    /// An account, whose user gets the mail.
    Account(AccountId),
}

/// All permits.
pub(super) struct Turns {
    webhooks: Arc<Semaphore>,
    users: TurnPermits,
    /// Permits of the domains with a mail in flight or waiting.
    domains: Mutex<HashMap<(Payer, DomainName), Arc<Semaphore>>>,
}

/// The right to send one notice. Dropping it releases the permits.
pub(super) struct Turn {
    _one: Option<OwnedSemaphorePermit>,
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
        Turn { _one: Arc::clone(&self.webhooks).acquire_owned().await.ok(), _user: None }
    }

    /// Waits for the turn of a mail to `domain`.
    pub(super) async fn mail(&self, payer: Payer, domain: &DomainName) -> Turn {
        // A mail that waits for its domain holds no permit of its account.
        let one = self.domain(payer, domain).acquire_owned().await.ok();
        let user = match payer {
            Payer::Operator => None,
            Payer::Account(account) => self.users.take(account).await,
        };
        Turn { _one: one, _user: user }
    }

    fn domain(&self, payer: Payer, domain: &DomainName) -> Arc<Semaphore> {
        let mut domains = self.domains.lock().unwrap_or_else(PoisonError::into_inner);
        // Waiters and permits hold a reference.
        domains.retain(|_, permits| Arc::strong_count(permits) > 1);
        let permits = domains.entry((payer, domain.clone()));
        Arc::clone(permits.or_insert_with(|| Arc::new(Semaphore::new(OF_DOMAIN_AT_ONCE))))
    }
}
