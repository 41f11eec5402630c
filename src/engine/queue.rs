//! The queue: waiting mail by site and relay. The operator sees all of it (contract 8 `queue list`). An account sees
//! only its own part, which reveals nothing about other accounts' mail.

use std::sync::Arc;
use std::time::Duration;

use super::Engine;
use super::blocking::OPERATOR;
use super::messages::MessageRecord;
use super::pauses::pauses;
use super::wait_reason::{Wait, WaitReason};
use crate::base::id::{AccountId, MessageId};
use crate::base::time::Timestamp;
use crate::domain::hostname::DomainName;
use crate::domain::site_name::SiteName;
use crate::store::error::StoreError;

/// Queue of one relay for one site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteQueue {
    /// The site: a provider's name, the names of its mail servers, or the domain if they are unknown.
    pub site: String,
    /// The relay's name.
    pub relay: String,
    /// Number of waiting messages, due or not.
    pub waiting: u64,
    /// Number of messages in flight.
    pub in_flight: u64,
    /// Time of the next attempt for a waiting message.
    pub next_at: Option<Timestamp>,
    /// End of the site's throttling or backoff.
    pub held_until: Option<Timestamp>,
    /// The site's last answer as received, or the failure if there was none.
    pub last_answer: Option<String>,
    /// Reason for the wait of the message that is due next. `None` if no message waits.
    pub reason: Option<WaitReason>,
}

/// Names of a site and of the relay that takes mail to it.
pub type SiteKey = (String, String);

/// A page of the queue, in the order of the sites and relays.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueuePage {
    /// The queues.
    pub sites: Vec<SiteQueue>,
    /// The last site, if there are more.
    pub next: Option<SiteKey>,
}

/// Queue of one account for one site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccountSite {
    /// The site, named as in [`SiteQueue::site`].
    pub site: String,
    /// The relay's name.
    pub relay: String,
    /// Number of waiting messages, due or not.
    pub waiting: u64,
    /// Number of messages in flight.
    pub in_flight: u64,
    /// Domains of the recipients, in alphabetical order.
    pub domains: Vec<DomainName>,
    /// Time at which the oldest of the messages was accepted.
    pub oldest_at: Option<Timestamp>,
    /// Time of the next attempt for a waiting message.
    pub next_at: Option<Timestamp>,
    /// End of the site's throttling or backoff.
    pub held_until: Option<Timestamp>,
    /// Message with the last attempt; a waiting one if there was no attempt.
    pub last_tried: MessageId,
    /// Start of the account's pause for this site.
    pub paused_since: Option<Timestamp>,
    /// The account's pauses for domains of recipients whose mail waits here.
    pub paused_domains: Vec<PausedDomain>,
}

impl AccountSite {
    /// Returns the queue of this many messages that wait for a site.
    #[cfg(test)]
    pub(crate) fn of_waiting(site: &str, waiting: u64) -> Self {
        Self {
            site: site.to_owned(),
            relay: "direct".to_owned(),
            waiting,
            in_flight: 0,
            domains: Vec::new(),
            oldest_at: None,
            next_at: None,
            held_until: None,
            last_tried: MessageId::default(),
            paused_since: None,
            paused_domains: Vec::new(),
        }
    }

    /// Returns whether pauses stop all waiting mail for the site.
    pub fn is_paused(&self) -> bool {
        let paused = self.paused_domains.iter().map(|domain| domain.waiting).sum::<u64>();
        self.paused_since.is_some() || (paused > 0 && paused == self.waiting)
    }
}

/// A pause for a domain of recipients, with the mail that waits for it at one site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PausedDomain {
    /// The domain.
    pub name: SiteName,
    /// Start of the pause.
    pub since: Timestamp,
    /// Number of waiting messages.
    pub waiting: u64,
}

/// Queue of one account.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AccountQueue {
    /// Queues by site and relay.
    pub sites: Vec<AccountSite>,
    /// Further pauses of the account, for sites and domains without waiting mail.
    pub pauses: Vec<(SiteName, Timestamp)>,
    /// Whether the account has more waiting messages than were read.
    pub is_cut: bool,
}

/// The queued mail of an account for a site.
#[derive(Debug, Default)]
pub(super) struct MailAtSite {
    /// The messages that wait for a later attempt.
    pub(super) waiting: Vec<MessageId>,
    /// Whether there may be more messages.
    pub(super) is_cut: bool,
    /// Whether any message is queued, due or not.
    pub(super) has_mail: bool,
}

/// Source of the queue's contents.
pub(super) trait QueueView: Send + Sync {
    /// Returns a page of the queue, by site and relay, after the given site.
    ///
    /// # Errors
    /// Fails if the store fails.
    fn sites(&self, after: Option<&SiteKey>) -> Result<QueuePage, StoreError>;

    /// Returns the queue of one account, from at most `most` of its messages.
    ///
    /// # Errors
    /// Fails if the store fails.
    fn of_account(&self, account: AccountId, most: usize) -> Result<AccountQueue, StoreError>;

    /// Returns the reason for the wait of a message with the timer `due`, except for its account's pauses and a
    /// restored store's hold. Reads memory only.
    fn wait(&self, account: AccountId, record: &MessageRecord, due: Timestamp) -> Wait;

    /// Returns the site of a message, or its recipient's domain if the site is unknown.
    fn site_of(&self, record: &MessageRecord) -> String;

    /// Finds at most `most` messages of the account that wait for a later attempt at the site, or for recipients of
    /// that domain.
    ///
    /// # Errors
    /// Fails if the store fails.
    fn waiting_at(&self, account: AccountId, site: &SiteName, most: usize) -> Result<MailAtSite, StoreError>;

    /// Probes a throttled site now, for all accounts.
    fn hurry(&self, site: &str);

    /// Checks the pauses of the account's waiting mail again.
    fn wake(&self, account: AccountId);

    /// Moves the times of all backoffs, because the service's time was set back.
    fn set_back(&self, by: Duration);
}

impl Engine {
    /// Returns the dispatcher's view of the queue, while a dispatcher runs.
    pub(super) fn queue_view(&self) -> Option<Arc<dyn QueueView>> {
        self.queue_view.get().and_then(std::sync::Weak::upgrade)
    }

    /// Returns a page of waiting and in-flight mail by site and relay, after the given site. It reads every waiting
    /// message's row on its own thread, so it is meant for an operator and not for polling.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn queue(self: &Arc<Self>, after: Option<SiteKey>) -> Result<QueuePage, StoreError> {
        let Some(view) = self.queue_view() else { return Ok(QueuePage::default()) };
        self.blocking(OPERATOR, move || view.sites(after.as_ref())).await?
    }

    /// Returns the queue of an account. Reads at most `most` of its messages, so that the cost of a long queue is
    /// bounded.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn queue_of(self: &Arc<Self>, account: AccountId, most: usize) -> Result<AccountQueue, StoreError> {
        let view = self.queue_view.get().and_then(std::sync::Weak::upgrade);
        let Some(view) = view else {
            let pauses = pauses(&self.store.snapshot()?, account)?;
            return Ok(AccountQueue { pauses, ..AccountQueue::default() });
        };
        self.blocking(account, move || view.of_account(account, most)).await?
    }
}
