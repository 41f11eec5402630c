//! Paused messages: their account is suspended, or has paused its mail for their site. They are held in memory as
//! timers, without a write or an attempt, until the pause or their lifetime ends. The pause itself is a row, so due
//! messages are paused again after a restart.

use std::sync::Arc;

use super::Shared;
use super::settle::{LeasedRows, Unsent};
use super::site::Site;
use crate::base::id::AccountId;
use crate::domain::address::Address;
use crate::machine::destination::QueuedMessage;
use crate::machine::paused_messages::PausedMessages;
use crate::store::error::StoreError;
use crate::store::op::pause;
use crate::store::read::Read;
use crate::store::timer::Timer;
use crate::store::timer_cache::QueueNumber;

/// Number of the queue of paused messages and of its alarms; destination numbers start at one.
pub(super) const NUMBER: QueueNumber = 0;

/// Returns whether the account's mail for this site, or for this recipient's domain, is paused.
pub(super) fn is_paused(read: &impl Read, account: AccountId, site: &str, to: &Address) -> Result<bool, StoreError> {
    Ok(pause::is_paused(read, account, site)? || pause::is_paused(read, account, to.domain().as_str())?)
}

impl Shared {
    /// Holds a paused message. `site` is `None` if the message has no route.
    pub(super) fn hold_paused(self: &Arc<Self>, queued: QueuedMessage, site: Option<&Site>) {
        if !self.add_paused(queued) {
            self.leave_unassigned(&queued);
            // If the pause ended meanwhile, its end read only the messages that were spilled before.
            if !matches!(self.look(&queued, site), Ok(LeasedRows::Paused)) {
                self.read_unassigned_soon();
            }
            return;
        }
        // The pause may have ended since the check, after paused messages were resumed.
        if !matches!(self.look(&queued, site), Ok(LeasedRows::Paused)) {
            self.wake_paused(queued.place.account);
        }
    }

    fn add_paused(&self, queued: QueuedMessage) -> bool {
        let paused = &mut self.destinations().paused;
        let is_added = paused.add(queued);
        if is_added {
            // The alarm is set before the timer counts as settled, so that virtual time stops at the expiry.
            self.set_paused_alarm(paused);
            self.timers().enqueue(&Timer::of_message(&queued), NUMBER);
        }
        is_added
    }

    fn set_paused_alarm(&self, paused: &PausedMessages) {
        paused.first_end().into_iter().for_each(|end| self.timers().set_alarm((end, NUMBER)));
    }

    /// Sends all paused messages of an account back to routing.
    pub(super) fn wake_paused(&self, account: AccountId) {
        let woken = self.destinations().paused.take_of(account);
        self.timers().give_back_all(woken.iter().map(Timer::of_message));
        self.read_unassigned_soon();
    }

    /// Ends the paused messages that have expired. An alarm calls this.
    pub(super) fn end_paused(self: &Arc<Self>) {
        let mut destinations = self.destinations();
        let ended = destinations.paused.take_ended(self.now());
        self.set_paused_alarm(&destinations.paused);
        drop(destinations);
        self.timers().dequeue(ended.iter().map(Timer::of_message));
        ended.into_iter().for_each(|queued| self.settle_unsent(queued, Unsent::Late));
    }
}
