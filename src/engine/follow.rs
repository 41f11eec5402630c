//! Following an account's event log as it grows (contract 4, `GET /v1/events/stream`).
//!
//! A follower stores one identifier. It reads the following events from a snapshot, one page after the client has taken
//! the previous one. Identifiers rise in commit order, so no event is skipped or repeated. There is no queue per
//! follower, so a follower a month behind costs as much as one that keeps up.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

use super::events::{EventFilter, Log, Place};
use super::listing::last_id;
use super::ports::Clock;
use super::work_slots::{WorkSlot, WorkSlots};
use super::{Caller, Engine};
use crate::base::id::{AccountId, EventId, Ulid};
use crate::base::time::Timestamp;
use crate::domain::api_key::ApiKey;
use crate::domain::event::EventType;
use crate::store::error::StoreError;
use crate::store::op::sweep::oldest_kept;
use crate::store::read::{Order, Read, after_prefix};
use crate::store::schema::{self, Table};
use crate::store::snapshot::Snapshot;

/// Maximum number of followers: a quarter of the connections that the listeners accept.
pub const STREAMS_MAX: usize = 256;
/// Maximum number of further followers, each of an account that has none, so that a few accounts can't use all.
const STREAMS_RESERVED: usize = 128;
/// Maximum number of followers of one account.
pub const STREAMS_OF_ACCOUNT_MAX: usize = 20;
/// Maximum number of events read at once.
const PAGE_EVENTS: usize = 32;
/// Size in bytes of an event page: a page ends with the event that reaches it. A follower therefore holds at most this
/// and the largest event.
const PAGE_BYTES: usize = 64 * 1024;
/// Minimum time between two reads of a growing log, so that a follower of a busy account gets pages instead of single
/// events.
const PACE: Duration = Duration::from_millis(20);
/// Time without an event after which a follower gets [`FollowerUpdate::Quiet`], in the machine's time. This keeps the
/// connection open through proxies.
pub const QUIET: Duration = Duration::from_secs(15);

/// Reason why an event log can't be followed.
#[derive(Debug)]
pub enum FollowRefusal {
    /// The maximum number of followers is reached.
    Full,
    /// The service is shutting down.
    Ending,
    /// The store failed.
    Failed(StoreError),
}

/// Followers of the event logs: the used slots, and the signal that ends all followers.
pub struct Streams {
    quiet: Duration,
    slots: WorkSlots,
    ending: watch::Sender<bool>,
}

impl Default for Streams {
    fn default() -> Self {
        Self::new(QUIET)
    }
}

impl Streams {
    /// Creates an empty set of followers. Each one gets an update after `quiet` without an event.
    pub fn new(quiet: Duration) -> Self {
        let slots = WorkSlots::new(STREAMS_MAX, STREAMS_OF_ACCOUNT_MAX).with_reserve(STREAMS_RESERVED);
        Self { quiet, slots, ending: watch::channel(false).0 }
    }

    /// Ends all followers and refuses new ones.
    pub fn end(&self) {
        self.ending.send_replace(true);
    }

    /// Returns the number of followers.
    pub fn count(&self) -> usize {
        self.slots.taken()
    }
}

/// One event for a follower.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FollowedEvent {
    /// Identifier.
    pub id: EventId,
    /// Type.
    pub kind: EventType,
    /// Record, as stored.
    pub record: Vec<u8>,
}

/// Notification to a follower.
#[derive(Debug)]
pub enum FollowerUpdate {
    /// The next events, oldest first.
    Events(Vec<FollowedEvent>),
    /// No event for a while.
    Quiet,
    /// The end: the key is no longer valid, or the service is shutting down.
    End,
}

/// A page of events from one read.
struct Page {
    events: Vec<FollowedEvent>,
    /// Whether no further event follows.
    is_last: bool,
}

/// Result of reading a page.
enum PageRead {
    Events(Vec<FollowedEvent>),
    Nothing { key_expires_at: Option<Timestamp> },
    Over,
}

/// One follower.
pub struct Follower {
    engine: Arc<Engine>,
    caller: Caller,
    /// `None` matches no event.
    filter: Option<EventFilter>,
    after: Ulid,
    /// Whether the last page reached the log's end, so that the next read may wait a moment.
    is_paced: bool,
    news: watch::Receiver<()>,
    ending: watch::Receiver<bool>,
    _slot: WorkSlot,
}

impl Engine {
    /// Follows the account's log after `after` if it is given, else from now on. An `after` beyond the end of the log
    /// counts as its end. A `filter` of `None` matches no event.
    ///
    /// # Errors
    /// [`FollowRefusal`].
    pub fn follow(
        self: &Arc<Self>,
        caller: &Caller,
        filter: Option<EventFilter>,
        after: Option<EventId>,
    ) -> Result<Follower, FollowRefusal> {
        let ending = self.streams.ending.subscribe();
        if *ending.borrow() {
            return Err(FollowRefusal::Ending);
        }
        let slot = self.streams.slots.take(caller.account).ok_or(FollowRefusal::Full)?;
        // Subscribe before reading. Otherwise a commit in between would be missed.
        let news = self.store.account_notifier().listen(caller.account);
        let newest = self.newest_event(caller.account).map_err(FollowRefusal::Failed)?;
        let after = after.map_or(newest, |after| after.0.min(newest));
        let (engine, caller) = (Arc::clone(self), caller.clone());
        Ok(Follower { engine, caller, filter, after, is_paced: false, news, ending, _slot: slot })
    }

    /// Returns the last event of the account's log; the least identifier if the log is empty.
    fn newest_event(&self, account: AccountId) -> Result<Ulid, StoreError> {
        let (from, to) = (account.as_bytes(), after_prefix(account.as_bytes()));
        let keys = self.store.snapshot()?.sound_keys(Table::EventLog, from, &to, Order::Descending, 1)?;
        Ok(keys.first().and_then(|key| last_id(key)).unwrap_or_default())
    }
}

impl Engine {
    /// Returns whether the key of `caller` is still valid. The operator has none.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn is_key_live(&self, caller: &Caller) -> Result<bool, StoreError> {
        let Some(key) = &caller.key else { return Ok(true) };
        let row: Option<ApiKey> = self.store.snapshot()?.row(&schema::api_key(caller.account, key.id))?;
        Ok(row.is_some_and(|row| row.is_live(self.clock.now())))
    }
}

impl Follower {
    /// Returns the event after which the follower continues; `None` before the log's first event.
    pub fn place(&self) -> Option<EventId> {
        (self.after != Ulid::default()).then_some(EventId(self.after))
    }

    /// Waits for the next notification.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn next(&mut self) -> Result<FollowerUpdate, StoreError> {
        let quiet = sleep(self.engine.streams.quiet);
        tokio::pin!(quiet);
        if self.is_paced {
            sleep(PACE).await;
        }
        loop {
            let key_expires_at = match self.look()? {
                PageRead::Over => return Ok(FollowerUpdate::End),
                PageRead::Events(events) => return Ok(FollowerUpdate::Events(events)),
                PageRead::Nothing { key_expires_at } => key_expires_at,
            };
            let pace = sleep(PACE);
            tokio::select! {
                biased;
                rung = self.news.changed() => if rung.is_err() { return Ok(FollowerUpdate::End) },
                _ = self.ending.changed() => {}
                () = passed(&*self.engine.clock, key_expires_at) => {}
                () = &mut quiet => return Ok(FollowerUpdate::Quiet),
            }
            // Most commits may not match the filter, so several of them share one read.
            pace.await;
        }
    }

    /// Reads once. Later commits notify the follower again.
    fn look(&mut self) -> Result<PageRead, StoreError> {
        self.news.borrow_and_update();
        if *self.ending.borrow_and_update() {
            return Ok(PageRead::Over);
        }
        let time = self.engine.clock.time();
        let snapshot = self.engine.store.snapshot()?;
        let key_expires_at = match &self.caller.key {
            Some(key) => {
                let row: Option<ApiKey> = snapshot.row(&schema::api_key(self.caller.account, key.id))?;
                let Some(key) = row.filter(|key| key.is_live(time.now)) else { return Ok(PageRead::Over) };
                key.expires_at
            }
            // The operator's stream has no key that expires.
            None => None,
        };
        let Page { events, is_last } = self.read(&snapshot, time.expiry)?;
        self.is_paced = is_last;
        let Some(last) = events.last() else { return Ok(PageRead::Nothing { key_expires_at }) };
        self.after = last.id.0;
        Ok(PageRead::Events(events))
    }

    /// Reads the next page after the follower's position, of the events that are still kept.
    fn read(&self, snapshot: &Snapshot, expiry: Timestamp) -> Result<Page, StoreError> {
        let Some(filter) = self.filter else { return Ok(Page { events: Vec::new(), is_last: true }) };
        let log = Log {
            read: snapshot,
            account: self.caller.account,
            from: self.after.next().max(oldest_kept(snapshot, expiry)?),
            before: None,
            order: Order::Ascending,
            count: PAGE_EVENTS,
        };
        let places = log.places(filter)?;
        let mut page = Page { events: Vec::new(), is_last: places.len() < PAGE_EVENTS };
        let mut bytes = 0;
        for place in places {
            if bytes >= PAGE_BYTES {
                page.is_last = false;
                break;
            }
            let Some(record) = log.bytes(&place)? else { continue };
            bytes += record.len();
            let Place { event: id, kind, .. } = place;
            page.events.push(FollowedEvent { id, kind, record });
        }
        Ok(page)
    }
}

/// Resolves at `at` or somewhat earlier; never if there is none.
async fn passed(clock: &dyn Clock, at: Option<Timestamp>) {
    match at {
        Some(at) => clock.sleep_until(at).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_gets_at_most_its_share_of_followers() {
        let account = |number: u8| AccountId(Ulid([number; 16]));
        let streams = Streams::default();
        let slots: Vec<_> = (0..STREAMS_OF_ACCOUNT_MAX).map(|_| streams.slots.take(account(0)).unwrap()).collect();
        assert!(streams.slots.take(account(0)).is_none() && streams.slots.take(account(1)).is_some());
        assert_eq!(streams.count(), slots.len());
    }

    #[test]
    fn accounts_that_follow_as_much_as_they_may_leave_slots_to_others() {
        let account = |number: u8| AccountId(Ulid([number; 16]));
        let streams = Streams::default();
        let take_all = |number| std::iter::repeat_with(move || number).map_while(|n| streams.slots.take(account(n)));
        let taken: Vec<_> = (0..20).flat_map(take_all).collect();
        assert_eq!(taken.len(), STREAMS_MAX + 7, "each of 20 accounts has at least one");
        assert!(streams.slots.take(account(100)).is_some());
    }
}
