//! Messages whose account is suspended, or has paused its mail for their site. They rest in memory, as timers alone,
//! without a write and without an attempt, until the pause or their lifetime ends. The pause itself is a row, so due
//! messages come here again after a restart.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Shared;
use super::settle::{Ready, Unsent};
use super::site::Site;
use crate::base::id::AccountId;
use crate::base::time::Timestamp;
use crate::domain::address::Address;
use crate::machine::destination::{Place, QueuedMessage};
use crate::store::error::StoreError;
use crate::store::op::pause;
use crate::store::read::Read;
use crate::store::timer::Timer;
use crate::store::timer_cache::{QueueNumber, TimerCache};

/// The number of their queue and its alarms; destinations count from one.
pub(super) const NUMBER: QueueNumber = 0;
/// Messages that rest at most: some 10 MB. Others are in the store alone. Tests get there sooner.
const RESTING_MAX: usize = if cfg!(test) { 64 } else { 65_536 };

/// Suspended messages, ordered by the end of their lifetime.
#[derive(Default)]
pub(super) struct Paused(Mutex<BTreeMap<(Timestamp, Place), QueuedMessage>>);

impl Paused {
    fn resting(&self) -> MutexGuard<'_, BTreeMap<(Timestamp, Place), QueuedMessage>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a message rest; it comes back where there is no room.
    fn rest(&self, queued: QueuedMessage, near: &TimerCache) -> Result<(), QueuedMessage> {
        let mut resting = self.resting();
        if resting.len() >= RESTING_MAX {
            return Err(queued);
        }
        resting.insert((queued.give_up_at, queued.place), queued);
        // Before it counts as settled, so that time which is moved stops at its end.
        set_alarm(&resting, near);
        near.enqueue(&Timer::of_message(&queued), NUMBER);
        Ok(())
    }

    /// Takes out the messages whose time is over, which are worked on again.
    fn ended(&self, now: Timestamp, near: &TimerCache) -> Vec<QueuedMessage> {
        let mut resting = self.resting();
        let mut ended = Vec::new();
        while let Some(entry) = resting.first_entry().filter(|entry| entry.key().0 <= now) {
            ended.push(entry.remove());
        }
        set_alarm(&resting, near);
        drop(resting);
        near.dequeue(ended.iter().map(Timer::of_message));
        ended
    }

    /// Has all that rests of an account look for its way again.
    fn wake(&self, account: AccountId, near: &TimerCache) {
        let mut woken = Vec::new();
        self.resting().retain(|_, queued| {
            let stays = queued.place.account != account;
            if !stays {
                woken.push(Timer::of_message(queued));
            }
            stays
        });
        near.give_back_all(woken);
    }
}

fn set_alarm(resting: &BTreeMap<(Timestamp, Place), QueuedMessage>, near: &TimerCache) {
    if let Some(((end, _), _)) = resting.first_key_value() {
        near.set_alarm((*end, NUMBER));
    }
}

/// Whether the account's mail for this site, or for this recipient's domain, is paused.
pub(super) fn is_paused(read: &impl Read, account: AccountId, site: &str, to: &Address) -> Result<bool, StoreError> {
    Ok(pause::is_paused(read, account, site)? || pause::is_paused(read, account, to.domain().as_str())?)
}

impl Shared {
    /// Has a message rest that was found to be paused; `site` is none where it has no way to one.
    pub(super) fn rest_paused(self: &Arc<Self>, queued: QueuedMessage, site: Option<&Site>) {
        if let Err(queued) = self.paused.rest(queued, self.near()) {
            self.aside.leave(&queued, self.near());
            // A pause that has ended meanwhile has called for what was left before.
            if !matches!(self.look(&queued, site), Ok(Ready::Paused)) {
                self.aside.call_for_more(self.now(), self.near());
            }
            return;
        }
        // The pause may have ended between the look and now, and with it the call that wakes what rests.
        if !matches!(self.look(&queued, site), Ok(Ready::Paused)) {
            self.wake_paused(queued.place.account);
        }
    }

    /// Has all that is paused of an account look for its way again.
    pub(super) fn wake_paused(&self, account: AccountId) {
        self.paused.wake(account, self.near());
        self.aside.call_for_more(self.now(), self.near());
    }

    /// An alarm has come: what rests and is past its time ends.
    pub(super) fn end_paused(self: &Arc<Self>) {
        for queued in self.paused.ended(self.now(), self.near()) {
            self.settle_unsent(queued, Unsent::Late);
        }
    }
}
