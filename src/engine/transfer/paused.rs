//! Messages whose account is suspended, or has paused its mail for their site. They are held in memory as timers,
//! without a write and without an attempt, until the pause or their lifetime ends. The pause itself is a row, so due
//! messages come here again after a restart.

use std::sync::Arc;

use super::Shared;
use super::settle::{Ready, Unsent};
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

/// The number of their queue and its alarms; destinations count from one.
pub(super) const NUMBER: QueueNumber = 0;

/// Whether the account's mail for this site, or for this recipient's domain, is paused.
pub(super) fn is_paused(read: &impl Read, account: AccountId, site: &str, to: &Address) -> Result<bool, StoreError> {
    Ok(pause::is_paused(read, account, site)? || pause::is_paused(read, account, to.domain().as_str())?)
}

impl Shared {
    /// Holds a message that was found to be paused; `site` is none where it has no way to one.
    pub(super) fn hold_paused(self: &Arc<Self>, queued: QueuedMessage, site: Option<&Site>) {
        if !self.add_paused(queued) {
            self.leave_unassigned(&queued);
            // A pause that has ended meanwhile has called for the messages that were left before.
            if !matches!(self.look(&queued, site), Ok(Ready::Paused)) {
                self.read_unassigned_soon();
            }
            return;
        }
        // The pause may have ended between the look and now, and with it the call that wakes paused messages.
        if !matches!(self.look(&queued, site), Ok(Ready::Paused)) {
            self.wake_paused(queued.place.account);
        }
    }

    fn add_paused(&self, queued: QueuedMessage) -> bool {
        let paused = &mut self.destinations().paused;
        let is_added = paused.add(queued);
        if is_added {
            // Before it counts as settled, so that time which is moved stops at its end.
            self.set_paused_alarm(paused);
            self.near().enqueue(&Timer::of_message(&queued), NUMBER);
        }
        is_added
    }

    fn set_paused_alarm(&self, paused: &PausedMessages) {
        paused.first_end().into_iter().for_each(|end| self.near().set_alarm((end, NUMBER)));
    }

    /// Has all paused messages of an account look for their way again.
    pub(super) fn wake_paused(&self, account: AccountId) {
        let woken = self.destinations().paused.take_of(account);
        self.near().give_back_all(woken.iter().map(Timer::of_message));
        self.read_unassigned_soon();
    }

    /// An alarm has come: paused messages that are past their time end.
    pub(super) fn end_paused(self: &Arc<Self>) {
        let mut destinations = self.destinations();
        let ended = destinations.paused.take_ended(self.now());
        self.set_paused_alarm(&destinations.paused);
        drop(destinations);
        self.near().dequeue(ended.iter().map(Timer::of_message));
        ended.into_iter().for_each(|queued| self.settle_unsent(queued, Unsent::Late));
    }
}
