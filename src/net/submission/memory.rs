//! Memory limit of the messages that are being received or accepted, over all connections of submission.
//!
//! A client reserves the size that it declares, so a few that declare much and send little could hold all memory. Each
//! account must therefore send what it reserves within a time. A message of an account that doesn't loses its memory
//! when another account that holds less needs it. This is counted by account, so new messages in place of old ones give
//! no more time. Bytes count only for messages that arrive whole, and an account is never further ahead than by what it
//! holds, so bytes sent before give no time either.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::base::id::AccountId;
use crate::engine::ports::Clock;
use crate::machine::shares::Shares;

/// Maximum number of bytes of all messages in flight.
const ALL: usize = 256 << 20;
/// Maximum number of bytes of one account's messages in flight.
const EACH: usize = 192 << 20;
/// Time in which an account must send what it reserves: 64 KiB/s for a message of 20 MiB.
const PERIOD: Duration = Duration::from_secs(320);
/// Time by which an account may be behind.
const GRACE: Duration = Duration::from_secs(30);
/// Time for which an account without messages is remembered.
const REMEMBERED: Duration = Duration::from_secs(60);

/// The reservations of all connections.
pub(super) struct Memory {
    shares: Shares<AccountId>,
    messages: HashMap<u64, IncomingMessage>,
    last_number: u64,
    accounts: HashMap<AccountId, AccountProgress>,
    clock: Arc<dyn Clock>,
}

/// The memory of one message.
struct IncomingMessage {
    account: AccountId,
    reserved: usize,
    received: usize,
    is_complete: bool,
    revoked: Arc<Notify>,
}

/// Lead of an account over the bytes that it should have sent.
struct AccountProgress {
    /// Received bytes times [`PERIOD`], minus the reserved bytes times the time for which they were reserved, in bytes
    /// times milliseconds. Negative if the account is behind.
    ahead: i128,
    /// Monotonic time up to which this is counted.
    counted_to: Duration,
}

/// The reservation of one message, released when it is dropped.
pub(super) struct Reservation {
    memory: Arc<Mutex<Memory>>,
    account: AccountId,
    number: u64,
    revoked: Arc<Notify>,
}

impl AccountProgress {
    /// Counts the time up to `now`, for which the account held `held` bytes.
    fn count(&mut self, held: usize, now: Duration) {
        let due = product(held, now.saturating_sub(self.counted_to));
        self.ahead = (self.ahead - due).min(product(held, PERIOD));
        self.counted_to = self.counted_to.max(now);
    }

    fn receive(&mut self, bytes: usize) {
        self.ahead += product(bytes, PERIOD);
    }

    /// Takes back the bytes of a message that did not arrive whole.
    fn discard(&mut self, bytes: usize) {
        self.ahead -= product(bytes, PERIOD);
    }

    /// Returns whether the account, which holds `held` bytes, is further behind than it may be.
    fn is_slow(&self, held: usize) -> bool {
        self.ahead <= -product(held, GRACE)
    }
}

/// Returns bytes times milliseconds.
fn product(bytes: usize, time: Duration) -> i128 {
    i128::try_from(bytes as u128 * time.as_millis()).unwrap_or(i128::MAX)
}

impl Memory {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        let (messages, accounts) = (HashMap::new(), HashMap::new());
        Self { shares: Shares::new(ALL, EACH), messages, last_number: 0, accounts, clock }
    }

    /// Adds a message without memory, and returns its number.
    fn begin(&mut self, account: AccountId, revoked: Arc<Notify>) -> u64 {
        let (shares, now) = (&self.shares, self.clock.monotonic());
        self.accounts.retain(|other, known| shares.held(other) > 0 || known.counted_to + REMEMBERED > now);
        self.accounts.entry(account).or_insert(AccountProgress { ahead: 0, counted_to: now });
        self.last_number += 1;
        let message = IncomingMessage { account, reserved: 0, received: 0, is_complete: false, revoked };
        self.messages.insert(self.last_number, message);
        self.last_number
    }

    fn grow(&mut self, number: u64, bytes: usize) -> bool {
        let Some(account) = self.messages.get(&number).map(|message| message.account) else { return false };
        self.count(account);
        if self.shares.held(&account) + bytes <= EACH {
            self.make_room(account, bytes);
        }
        let is_lent = self.shares.take(&account, bytes).is_ok();
        if let (true, Some(message)) = (is_lent, self.messages.get_mut(&number)) {
            message.reserved += bytes;
        }
        is_lent
    }

    /// Counts the bytes that the account holds up to now, before they change.
    fn count(&mut self, account: AccountId) {
        let (held, now) = (self.shares.held(&account), self.clock.monotonic());
        if let Some(progress) = self.accounts.get_mut(&account) {
            progress.count(held, now);
        }
    }

    /// Revokes messages of slow accounts that hold more than `account` until `bytes` are free. Revokes none if that
    /// isn't enough.
    fn make_room(&mut self, account: AccountId, bytes: usize) {
        let mut free = self.shares.free();
        if free >= bytes {
            return;
        }
        let mut revoked = Vec::new();
        for (number, reserved) in self.revocable(account) {
            revoked.push(number);
            free += reserved;
            if free >= bytes {
                break;
            }
        }
        if free >= bytes {
            for message in revoked.into_iter().filter_map(|number| self.end(number)) {
                message.revoked.notify_one();
            }
        }
    }

    /// Returns the unfinished messages of slow accounts that hold more than `account`, each with its reserved bytes.
    /// The largest holder is first, with the message of which the most is still to come.
    fn revocable(&mut self, account: AccountId) -> Vec<(u64, usize)> {
        let (shares, own, now) = (&self.shares, self.shares.held(&account), self.clock.monotonic());
        self.accounts.iter_mut().for_each(|(other, progress)| progress.count(shares.held(other), now));
        let slow = |other: &AccountId| {
            let held = shares.held(other);
            (held > own && self.accounts.get(other)?.is_slow(held)).then_some(held)
        };
        let mut found: Vec<_> = (self.messages.iter())
            .filter(|(_, message)| !message.is_complete)
            .filter_map(|(number, message)| {
                let missing = message.reserved.saturating_sub(message.received);
                Some((Reverse((slow(&message.account)?, missing)), *number, message.reserved))
            })
            .collect();
        found.sort_unstable();
        found.into_iter().map(|(_, number, reserved)| (number, reserved)).collect()
    }

    /// Releases the memory of a message; `None` if it was revoked.
    fn end(&mut self, number: u64) -> Option<IncomingMessage> {
        let account = self.messages.get(&number)?.account;
        self.count(account);
        let message = self.messages.remove(&number)?;
        self.shares.give_back(&account, message.reserved);
        if let (false, Some(progress)) = (message.is_complete, self.accounts.get_mut(&account)) {
            progress.discard(message.received);
        }
        Some(message)
    }
}

impl Reservation {
    /// Creates an empty reservation for a message of `account`.
    pub(super) fn new(memory: Arc<Mutex<Memory>>, account: AccountId) -> Self {
        let revoked = Arc::<Notify>::default();
        let number = locked(&memory).begin(account, Arc::clone(&revoked));
        Self { memory, account, number, revoked }
    }

    /// Reserves this many more bytes; false if that exceeds a limit or the reservation was revoked.
    pub(super) fn grow(&self, bytes: usize) -> bool {
        locked(&self.memory).grow(self.number, bytes)
    }

    /// Notes this many more received bytes of the message.
    pub(super) fn received(&self, bytes: usize) {
        let memory = &mut *locked(&self.memory);
        if let Some(message) = memory.messages.get_mut(&self.number) {
            message.received += bytes;
        }
        if let Some(progress) = memory.accounts.get_mut(&self.account) {
            progress.receive(bytes);
        }
    }

    /// Notes that the message has arrived: from now on the reservation can't be revoked.
    pub(super) fn complete(&self) {
        if let Some(message) = locked(&self.memory).messages.get_mut(&self.number) {
            message.is_complete = true;
        }
    }

    /// Returns when another account has been given the memory.
    pub(super) async fn revoked(&self) {
        self.revoked.notified().await;
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        locked(&self.memory).end(self.number);
    }
}

fn locked(memory: &Mutex<Memory>) -> MutexGuard<'_, Memory> {
    memory.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::Ulid;
    use crate::net::dns::zone::ManualClock;

    const MESSAGE: usize = 20 << 20;
    const PAUSE: Duration = Duration::from_secs(29);

    struct World {
        memory: Arc<Mutex<Memory>>,
        clock: Arc<ManualClock>,
    }

    impl World {
        fn new() -> Self {
            let clock = Arc::new(ManualClock::default());
            Self { memory: Arc::new(Mutex::new(Memory::new(Arc::clone(&clock) as Arc<dyn Clock>))), clock }
        }

        fn message(&self, account: u8) -> Reservation {
            Reservation::new(Arc::clone(&self.memory), AccountId(Ulid([account; 16])))
        }

        /// Messages of the account, each with memory for `MESSAGE` bytes.
        fn messages(&self, account: u8, count: usize) -> Vec<Reservation> {
            let messages: Vec<_> = (0..count).map(|_| self.message(account)).collect();
            assert!(messages.iter().all(|message| message.grow(MESSAGE)));
            messages
        }
    }

    /// Returns the number of messages whose memory was revoked.
    async fn revoked(messages: &[Reservation]) -> usize {
        let mut count = 0;
        for message in messages {
            let lost = tokio::select! { biased; () = message.revoked() => 1, () = std::future::ready(()) => 0 };
            assert_eq!(lost == 0, message.grow(0));
            count += lost;
        }
        count
    }

    #[test]
    fn an_account_has_192_mib_and_all_accounts_have_256_mib() {
        let world = World::new();
        let (one, other) = (world.message(1), world.message(2));
        assert!(one.grow(EACH) && !one.grow(1));
        assert!(other.grow(ALL - EACH) && !other.grow(1));
        drop(one);
        assert!(other.grow(1) && world.message(1).grow(EACH - 1));
    }

    #[tokio::test]
    async fn messages_of_a_slow_account_make_room_for_an_account_that_holds_less() {
        let world = World::new();
        let (large, small) = (world.messages(1, 9), world.messages(2, 3));
        world.clock.advance(PAUSE);
        assert!(!world.message(3).grow(MESSAGE), "no account is slow yet");
        world.clock.advance(Duration::from_secs(1));
        assert!(!world.message(1).grow(MESSAGE), "the largest holder");
        let third = world.message(3);
        assert!(third.grow(MESSAGE));
        assert_eq!((revoked(&large).await, revoked(&small).await), (1, 0));
        drop((large, small, third));
        assert_eq!(world.messages(4, 9).len(), 9, "memory is returned once");
    }

    #[tokio::test]
    async fn new_messages_in_place_of_old_ones_do_not_extend_the_time() {
        let world = World::new();
        let (mut large, _small) = (world.messages(1, 9), world.messages(2, 3));
        for _ in 0..2 {
            world.clock.advance(PAUSE);
            for message in &mut large {
                *message = world.message(1);
                assert!(message.grow(MESSAGE));
            }
        }
        assert!(world.message(3).grow(MESSAGE));
        assert_eq!(revoked(&large).await, 1);
    }

    #[tokio::test]
    async fn bytes_of_a_message_that_is_given_up_do_not_count() {
        let world = World::new();
        let (large, _small) = (world.messages(1, 8), world.messages(2, 3));
        for _ in 0..3 {
            world.clock.advance(PAUSE / 2);
            let given_up = world.message(1);
            assert!(given_up.grow(MESSAGE));
            given_up.received(MESSAGE - 1);
        }
        let third = world.message(3);
        assert!(third.grow(MESSAGE) && third.grow(MESSAGE));
        assert_eq!(revoked(&large).await, 1);
    }

    #[tokio::test]
    async fn messages_that_have_arrived_give_no_time_to_later_ones() {
        let world = World::new();
        let open = world.message(1);
        assert!(open.grow(1));
        for _ in 0..100 {
            let whole = world.message(1);
            assert!(whole.grow(MESSAGE));
            whole.received(MESSAGE);
            whole.complete();
        }
        let (large, _small) = (world.messages(1, 9), world.messages(2, 3));
        world.clock.advance(PAUSE + Duration::from_secs(2));
        assert!(world.message(3).grow(MESSAGE));
        assert_eq!(revoked(&large).await, 1);
    }

    #[tokio::test]
    async fn accounts_that_send_and_complete_messages_keep_their_memory() {
        let world = World::new();
        let (large, small) = (world.messages(1, 9), world.messages(2, 3));
        large.iter().for_each(|message| message.received(MESSAGE / 10));
        small[1..].iter().for_each(Reservation::complete);
        world.clock.advance(PAUSE * 2);
        let third = world.message(3);
        assert!(third.grow(MESSAGE) && !third.grow(MESSAGE), "there is one message to revoke");
        assert_eq!((revoked(&large).await, revoked(&small[1..]).await, revoked(&small[..1]).await), (0, 0, 1));
    }
}
