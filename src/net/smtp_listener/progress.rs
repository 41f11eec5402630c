//! Progress of a client on its connection: it determines when a new connection may take the place.
//!
//! Commands alone and slow bytes do not count as progress. Otherwise a client that sends NOOP every second would keep
//! its place for ever.

use tokio::time::Instant;

use super::Deadlines;

/// Number of accepted recipients that count as progress before a message.
const RECIPIENTS: usize = 100;
/// Number of bytes of a message that count as progress: 1 KiB/s over the usual time, the minimum rate of an HTTP body.
const MOVED: usize = 20 * 1024;

/// The progress of one connection.
#[derive(Debug)]
pub(super) struct Progress {
    since: Instant,
    moved: usize,
    /// Number of accepted recipients that still count as progress. Only a message earns new ones, not RSET.
    credit: usize,
    recipients: usize,
    is_in_transaction: bool,
}

impl Progress {
    /// Begins with the connection.
    pub(super) fn new(now: Instant) -> Self {
        Self { since: now, moved: 0, credit: RECIPIENTS, recipients: 0, is_in_transaction: false }
    }

    /// Notes a login or an accepted message.
    pub(super) fn achieved(&mut self, now: Instant) {
        *self = Self::new(now);
    }

    /// Notes the number of recipients that the session has accepted in the current transaction, and whether it receives
    /// the message.
    pub(super) fn in_transaction(&mut self, recipients: usize, is_receiving: bool, now: Instant) {
        if recipients > self.recipients && self.credit > 0 {
            self.credit -= 1;
            (self.since, self.moved) = (now, 0);
        }
        self.recipients = recipients;
        self.is_in_transaction = is_receiving || recipients > 0;
    }

    /// Notes received bytes of a message.
    pub(super) fn received(&mut self, count: usize, now: Instant) {
        self.moved += count;
        if self.moved >= MOVED {
            (self.since, self.moved) = (now, 0);
        }
    }

    /// Returns the time from which the connection may be closed for another while it waits for its client.
    pub(super) fn evictable_at(&self, deadlines: &Deadlines) -> Instant {
        self.since + if self.is_in_transaction { deadlines.stalled } else { deadlines.silent }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn only_logins_transactions_and_bytes_of_messages_extend_the_time() {
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        let mut progress = Progress::new(began);
        assert_eq!(progress.evictable_at(&Deadlines::default()), at(2));
        progress.achieved(at(1));
        assert_eq!(progress.evictable_at(&Deadlines::default()), at(3));
        progress.in_transaction(1, false, at(10));
        assert_eq!(progress.evictable_at(&Deadlines::default()), at(30));
        progress.received(MOVED - 1, at(15));
        assert_eq!(progress.evictable_at(&Deadlines::default()), at(30));
        progress.received(1, at(16));
        assert_eq!(progress.evictable_at(&Deadlines::default()), at(36));
    }

    #[test]
    fn transactions_without_a_message_extend_the_time_only_for_a_while() {
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        let mut progress = Progress::new(began);
        for _ in 0..RECIPIENTS {
            progress.in_transaction(1, false, at(1));
            progress.in_transaction(0, false, at(1));
        }
        assert_eq!(progress.evictable_at(&Deadlines::default()), at(3));
        progress.in_transaction(1, false, at(6));
        assert_eq!(progress.evictable_at(&Deadlines::default()), at(21));
        progress.achieved(at(7));
        progress.in_transaction(1, false, at(100));
        assert_eq!(progress.evictable_at(&Deadlines::default()), at(120), "a message earned the next recipients");
    }
}
