//! The queue: what waits, by site and relay. Its operator sees all of it (contract 8 `queue list`), an account its own
//! part, in which nothing tells of another's mail.

use std::sync::Arc;

use super::Engine;
use super::blocking::OPERATOR;
use super::messages::MessageRecord;
use super::pauses::pauses;
use super::wait::{Wait, WaitReason};
use crate::base::id::{AccountId, MessageId};
use crate::base::time::Timestamp;
use crate::domain::site_name::SiteName;
use crate::store::error::StoreError;

/// Queue of one relay for one site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteQueue {
    /// The site: a provider's name, the names of its mail servers, or the domain where they are not known.
    pub site: String,
    /// The relay's name.
    pub relay: String,
    /// Messages that wait, whether they are due or not.
    pub waiting: u64,
    /// Messages that are on the wire.
    pub in_flight: u64,
    /// When the next of those that wait is tried.
    pub next_at: Option<Timestamp>,
    /// Until when the site is held back.
    pub held_until: Option<Timestamp>,
    /// Last answer of the site as received, or the failure in place of an answer.
    pub last_answer: Option<String>,
    /// Why the message waits that is due next. None where none waits.
    pub reason: Option<WaitReason>,
}

/// Queue of one account for one site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccountSite {
    /// The site, as [`SiteQueue::site`] names it.
    pub site: String,
    /// The relay's name.
    pub relay: String,
    /// Messages that wait, whether they are due or not.
    pub waiting: u64,
    /// Messages that are on the wire.
    pub in_flight: u64,
    /// When the next of those that wait is tried.
    pub next_at: Option<Timestamp>,
    /// Until when the site is held back.
    pub held_until: Option<Timestamp>,
    /// The message that was tried last; where none was, one that waits.
    pub last_tried: MessageId,
    /// Since when the account's mail for it is paused.
    pub paused_since: Option<Timestamp>,
}

/// Queue of one account.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AccountQueue {
    /// By site and relay.
    pub sites: Vec<AccountSite>,
    /// Further pauses of the account: sites for which nothing waits, and domains.
    pub pauses: Vec<(SiteName, Timestamp)>,
    /// Whether more waits than was looked at.
    pub is_cut: bool,
}

/// Source of the queue's contents.
pub(super) trait QueueView: Send + Sync {
    /// All of it, by site and relay.
    ///
    /// # Errors
    /// Those of the store.
    fn sites(&self) -> Result<Vec<SiteQueue>, StoreError>;

    /// Returns the queue of one account, from at most `most` of its messages.
    ///
    /// # Errors
    /// Those of the store.
    fn of_account(&self, account: AccountId, most: usize) -> Result<AccountQueue, StoreError>;

    /// Why a message with the timer `due` waits, as far as its account's pauses and a restored store's hold are not the
    /// reason. Costs a look into memory.
    fn wait(&self, record: &MessageRecord, due: Timestamp) -> Wait;

    /// The site of a message, as far as it is known; else its recipient's domain.
    fn site_of(&self, record: &MessageRecord) -> String;

    /// Messages of the account that wait for a later attempt at the site, or for recipients of that domain: `most` of
    /// them at most, and whether there may be more.
    ///
    /// # Errors
    /// Those of the store.
    fn waiting_at(
        &self,
        account: AccountId,
        site: &SiteName,
        most: usize,
    ) -> Result<(Vec<MessageId>, bool), StoreError>;

    /// Has a site that is held back probed now.
    fn hurry(&self, site: &str);

    /// Has what the account had paused look again whether it still is.
    fn wake(&self, account: AccountId);
}

impl Engine {
    /// The pump's knowledge of the queue, while there is a pump.
    pub(super) fn queue_view(&self) -> Option<Arc<dyn QueueView>> {
        self.queue_view.get().and_then(std::sync::Weak::upgrade)
    }

    /// Returns waiting and in-flight mail by site and relay. It reads every waiting message's row, on a thread of its
    /// own: this is for an operator's eyes, not for a loop.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn queue(self: &Arc<Self>) -> Result<Vec<SiteQueue>, StoreError> {
        let Some(view) = self.queue_view() else { return Ok(Vec::new()) };
        self.blocking(OPERATOR, move || view.sites()).await?
    }

    /// Returns the queue of an account. At most `most` of its messages are read, so that a long queue costs no
    /// more than a short one.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn queue_of(self: &Arc<Self>, account: AccountId, most: usize) -> Result<AccountQueue, StoreError> {
        let view = self.queue_view.get().and_then(std::sync::Weak::upgrade);
        let Some(view) = view else {
            let pauses = pauses(&self.store.snapshot()?, account)?;
            return Ok(AccountQueue { pauses, ..AccountQueue::default() });
        };
        self.blocking(account, move || view.of_account(account, most)).await?
    }
}
