//! Memory limit of the messages that are being received or accepted, over all connections of submission.
//!
//! A client reserves the size that it declares, so a few that declare much and send little could hold all memory. A
//! message that arrives slowly therefore loses its memory when another account that holds less needs it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::base::id::AccountId;
use crate::machine::shares::Shares;

/// Maximum number of bytes of all messages in flight.
const ALL: usize = 256 << 20;
/// Maximum number of bytes of one account's messages in flight.
const EACH: usize = 192 << 20;
/// Average number of bytes a second below which a message is slow.
const RATE_MIN: u128 = 64 << 10;
/// Age from which a message can be slow.
const GRACE: Duration = Duration::from_secs(30);

/// The reservations of all connections.
pub(super) struct Memory {
    shares: Shares<AccountId>,
    reserved: HashMap<u64, Reserved>,
    next: u64,
}

/// The memory of one message.
struct Reserved {
    account: AccountId,
    bytes: usize,
    received: usize,
    /// Monotonic time of the reservation.
    since: Duration,
    is_received: bool,
    revoked: Arc<Notify>,
}

/// The reservation of one message, released when it is dropped.
pub(super) struct Reservation {
    memory: Arc<Mutex<Memory>>,
    account: AccountId,
    number: u64,
    revoked: Arc<Notify>,
}

impl Reserved {
    fn is_slow(&self, now: Duration) -> bool {
        let age = now.saturating_sub(self.since);
        !self.is_received && age >= GRACE && (self.received as u128) * 1000 < RATE_MIN * age.as_millis()
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self { shares: Shares::new(ALL, EACH), reserved: HashMap::new(), next: 0 }
    }
}

impl Memory {
    /// Takes memory from slow messages of accounts that hold more than `account`, the largest first, until `bytes` are
    /// free. Takes nothing if that isn't enough.
    fn make_room(&mut self, account: AccountId, bytes: usize, now: Duration) {
        if self.shares.free() >= bytes {
            return;
        }
        let own = self.shares.held(&account);
        let mut slow: Vec<_> = (self.reserved.iter())
            .filter(|(_, reserved)| reserved.is_slow(now) && self.shares.held(&reserved.account) > own)
            .map(|(number, reserved)| (self.shares.held(&reserved.account), reserved.bytes, *number))
            .collect();
        slow.sort_unstable();
        let (mut taken, mut free) = (Vec::new(), self.shares.free());
        while free < bytes {
            let Some((_, freed, number)) = slow.pop() else { return };
            free += freed;
            taken.push(number);
        }
        for number in taken {
            if let Some(reserved) = self.reserved.remove(&number) {
                self.shares.give_back(&reserved.account, reserved.bytes);
                reserved.revoked.notify_one();
            }
        }
    }
}

impl Reservation {
    /// Creates an empty reservation for a message of `account` at the monotonic time `now`.
    pub(super) fn new(memory: Arc<Mutex<Memory>>, account: AccountId, now: Duration) -> Self {
        let revoked = Arc::<Notify>::default();
        let number = {
            let mut memory = locked(&memory);
            let number = memory.next;
            memory.next += 1;
            let (bytes, received, is_received, revoked) = (0, 0, false, Arc::clone(&revoked));
            let reserved = Reserved { account, bytes, received, since: now, is_received, revoked };
            memory.reserved.insert(number, reserved);
            number
        };
        Self { memory, account, number, revoked }
    }

    /// Reserves this many more bytes; false if that exceeds a limit or the reservation was revoked.
    pub(super) fn grow(&mut self, bytes: usize, now: Duration) -> bool {
        let memory = &mut *locked(&self.memory);
        if memory.shares.each() - memory.shares.held(&self.account) >= bytes {
            memory.make_room(self.account, bytes, now);
        }
        let Some(reserved) = memory.reserved.get_mut(&self.number) else { return false };
        let is_lent = memory.shares.take(&self.account, bytes).is_ok();
        if is_lent {
            reserved.bytes += bytes;
        }
        is_lent
    }

    /// Notes this many more received bytes of the message.
    pub(super) fn received(&mut self, bytes: usize) {
        if let Some(reserved) = locked(&self.memory).reserved.get_mut(&self.number) {
            reserved.received += bytes;
        }
    }

    /// Notes that the message has arrived: from now on the reservation can't be revoked.
    pub(super) fn complete(&mut self) {
        if let Some(reserved) = locked(&self.memory).reserved.get_mut(&self.number) {
            reserved.is_received = true;
        }
    }

    /// Returns when another account has been given the memory.
    pub(super) async fn revoked(&self) {
        self.revoked.notified().await;
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let memory = &mut *locked(&self.memory);
        if let Some(reserved) = memory.reserved.remove(&self.number) {
            memory.shares.give_back(&self.account, reserved.bytes);
        }
    }
}

fn locked(memory: &Mutex<Memory>) -> MutexGuard<'_, Memory> {
    memory.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::Ulid;

    const START: Duration = Duration::from_secs(1000);
    const MESSAGE: usize = 20 << 20;

    fn of(memory: &Arc<Mutex<Memory>>, account: u8) -> Reservation {
        Reservation::new(Arc::clone(memory), AccountId(Ulid([account; 16])), START)
    }

    /// Messages of the account, each with memory for `MESSAGE` bytes.
    fn messages(memory: &Arc<Mutex<Memory>>, account: u8, count: usize) -> Vec<Reservation> {
        let mut messages: Vec<_> = (0..count).map(|_| of(memory, account)).collect();
        assert!(messages.iter_mut().all(|message| message.grow(MESSAGE, START)));
        messages
    }

    async fn is_revoked(message: &Reservation) -> bool {
        tokio::select! { biased; () = message.revoked() => true, () = std::future::ready(()) => false }
    }

    #[test]
    fn an_account_has_192_mib_and_all_accounts_have_256_mib() {
        let memory = Arc::default();
        let (mut one, mut other) = (of(&memory, 1), of(&memory, 2));
        assert!(one.grow(EACH, START) && !one.grow(1, START));
        assert!(other.grow(ALL - EACH, START) && !other.grow(1, START));
        drop(one);
        assert!(other.grow(1, START) && of(&memory, 1).grow(EACH - 1, START));
    }

    #[tokio::test]
    async fn a_slow_message_of_the_largest_holder_makes_room_for_an_account_that_holds_less() {
        let memory = Arc::default();
        let (mut large, small) = (messages(&memory, 1, 9), messages(&memory, 2, 3));
        let late = START + GRACE;
        assert!(!of(&memory, 3).grow(MESSAGE, late - Duration::from_millis(1)), "no message is slow yet");
        let mut third = of(&memory, 3);
        assert!(third.grow(MESSAGE, late));
        let mut revoked = Vec::new();
        for message in large.iter().chain(&small) {
            revoked.push(is_revoked(message).await);
        }
        assert_eq!(revoked.iter().position(|revoked| *revoked), revoked.iter().rposition(|revoked| *revoked));
        let lost = revoked.iter().position(|revoked| *revoked).unwrap();
        assert!(lost < large.len() && !large[lost].grow(1, late));
        drop((large, small, third));
        assert!(messages(&memory, 4, 9).len() == 9, "memory is given back once");
    }

    #[test]
    fn fast_and_complete_messages_and_those_of_smaller_holders_keep_their_memory() {
        let memory = Arc::default();
        let (mut large, mut small) = (messages(&memory, 1, 9), messages(&memory, 2, 3));
        for message in &mut large[1..] {
            message.received(30 * (64 << 10));
        }
        large[0].complete();
        let late = START + GRACE;
        assert!(!of(&memory, 1).grow(MESSAGE, late), "an account that holds more");
        assert!(of(&memory, 3).grow(MESSAGE, late), "the smaller account's messages are slow");
        assert!(small.iter_mut().filter_map(|message| message.grow(0, late).then_some(())).count() == 2);
        assert!(large.iter_mut().all(|message| message.grow(0, late)));
    }

    #[test]
    fn nothing_is_revoked_if_that_is_not_enough() {
        let memory = Arc::default();
        let (mut large, mut small) = (messages(&memory, 1, 9), messages(&memory, 2, 3));
        for message in large.iter_mut().chain(&mut small).skip(1) {
            message.complete();
        }
        let late = START + GRACE;
        assert!(!of(&memory, 3).grow(MESSAGE + ALL - 12 * MESSAGE + 1, late));
        assert!(large[0].grow(0, late));
    }
}
