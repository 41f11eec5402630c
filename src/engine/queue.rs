//! The queue as its operator sees it (contract 8 `queue list`): what waits, by site and relay.

use std::sync::Arc;

use super::Engine;
use super::messages::MessageRecord;
use crate::base::time::Timestamp;
use crate::store::error::StoreError;

/// What one relay has to bring to one site.
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
    /// What the site said last, as received, or what was met in place of an answer.
    pub last_answer: Option<String>,
}

/// Whoever can tell what the queue holds.
pub(super) trait QueueView: Send + Sync {
    /// All of it, by site and relay.
    ///
    /// # Errors
    /// Those of the store.
    fn sites(&self) -> Result<Vec<SiteQueue>, StoreError>;

    /// Until when a message that is due waits behind a site or relay that is held back, as far as that is known. Costs
    /// a look into memory.
    fn held_until(&self, record: &MessageRecord) -> Option<Timestamp>;
}

impl Engine {
    /// The pump's knowledge of the queue, while there is a pump.
    pub(super) fn queue_view(&self) -> Option<Arc<dyn QueueView>> {
        self.queue_view.get().and_then(std::sync::Weak::upgrade)
    }

    /// What waits and what is on the wire, by site and relay. It reads every waiting message's row, on a thread of its
    /// own: this is for an operator's eyes, not for a loop.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn queue(self: &Arc<Self>) -> Result<Vec<SiteQueue>, StoreError> {
        let Some(view) = self.queue_view() else { return Ok(Vec::new()) };
        tokio::task::spawn_blocking(move || view.sites()).await.unwrap_or(Err(StoreError::Panicked))
    }
}
