//! Activity of one HTTP connection: the times from which its deadlines are computed. The connection's stream and its
//! running requests update them.
//!
//! One timer per connection reads them, so a request costs a few relaxed atomic operations instead of a timer.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::http_listener::HttpLimits;

/// Minimum number of bytes that a client must read within the write stall time while an answer is pending. Fewer may be
/// replies to its pings, which a client with a closed flow-control window can request at will.
const TAKEN_LEAST: u64 = 1024;

/// Time after which a connection whose client reads no bytes of an answer may be closed in favour of another.
const UNREAD: Duration = Duration::from_secs(5);

/// Time after which a connection with an unread answer may be closed if no other can be. Otherwise strangers could
/// renew connections with unread answers faster than they may be closed.
const BRIEFLY: Duration = Duration::from_secs(1);

/// Minimum rate of a client that reads an answer, in bytes per second, while connections are scarce.
const READ_RATE_LEAST: u64 = 8 * 1024;

/// Time in which a new connection sends its first request before it counts as idle.
pub(super) const ARRIVAL: Duration = Duration::from_secs(2);

/// Period over which the time that a client takes to read its answers is added up, unless one answer takes longer.
const READING_PERIOD: u64 = 60_000_000;

/// Reasons why a connection may be closed in favour of a new one, best reason first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum EvictionReason {
    /// No request is in flight.
    Idle,
    /// All requests of the connection wait for the bodies of unauthenticated clients.
    Unauthenticated,
    /// The client does not read the rest of its answers.
    Unread,
    /// All requests of the connection wait for the client, some of them for the bodies of authenticated clients.
    Unsent,
    /// The client reads its answers slower than [`READ_RATE_LEAST`].
    SlowlyRead,
    /// The client reads no answers, or reads them too slowly, but only for a second so far.
    BrieflyUnread,
    /// The connection is new, and its first request may be in transit.
    New,
}

/// The protocol of a connection. Only in HTTP/1 can the head of a request be recognised in the byte stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    Http1,
    Http2,
}

/// Result of a deadline check.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// No deadline has passed; check again at this time.
    Wait(Instant),
    /// The head of a request did not arrive in time.
    SlowHead,
    /// No request arrived for too long.
    Idle,
    /// The client reads no bytes.
    Stuck,
}

/// Value of `idle_since` before the first request.
const OPENED: u64 = 1;

/// The times of one connection, in microseconds since it opened; 0 means "not set".
#[derive(Debug)]
pub(super) struct Activity {
    opened: Instant,
    protocol: Protocol,
    running: AtomicU32,
    idle_since: AtomicU64,
    head_since: AtomicU64,
    blocked_since: AtomicU64,
    /// Parts of answers that the client could read but has not.
    offers: AtomicU32,
    /// Time since when no part was read and fewer than `TAKEN_LEAST` bytes were written.
    offered_since: AtomicU64,
    written: AtomicU64,
    /// Time since when parts are offered.
    reading_since: AtomicU64,
    /// Total time in which earlier parts of the period were offered.
    read_before: AtomicU64,
    /// Start of the period, and the value of `written` then.
    period_since: AtomicU64,
    written_at_period: AtomicU64,
    /// Value of `written` when `offered_since` was set.
    written_before: AtomicU64,
    /// Number of requests that wait for a body; `awaited_since` has the time.
    awaited: AtomicU32,
    /// Number of waiting requests of authenticated clients.
    awaited_known: AtomicU32,
    awaited_since: AtomicU64,
    /// Number of refused bodies that are still read after their answers.
    lingering: AtomicU32,
    close: Notify,
    expired: AtomicBool,
}

impl Activity {
    /// Creates the activity of a connection opened at `opened`, whose first request head is awaited.
    pub(super) fn new(opened: Instant, protocol: Protocol) -> Self {
        Self {
            opened,
            protocol,
            running: AtomicU32::new(0),
            idle_since: AtomicU64::new(OPENED),
            head_since: AtomicU64::new(1),
            blocked_since: AtomicU64::new(0),
            offers: AtomicU32::new(0),
            offered_since: AtomicU64::new(0),
            written: AtomicU64::new(0),
            written_before: AtomicU64::new(0),
            reading_since: AtomicU64::new(0),
            read_before: AtomicU64::new(0),
            period_since: AtomicU64::new(0),
            written_at_period: AtomicU64::new(0),
            awaited: AtomicU32::new(0),
            awaited_known: AtomicU32::new(0),
            awaited_since: AtomicU64::new(0),
            lingering: AtomicU32::new(0),
            close: Notify::new(),
            expired: AtomicBool::new(false),
        }
    }

    /// Marks a running request until the guard is dropped.
    pub(super) fn begin(self: &Arc<Self>) -> BusyGuard {
        self.head_since.store(0, Relaxed);
        self.running.fetch_add(1, Relaxed);
        BusyGuard(Arc::clone(self))
    }

    /// Marks a request that waits for its body, until the guard is dropped.
    pub(super) fn await_body(self: &Arc<Self>, is_known: bool) -> BodyWait {
        if is_known {
            self.awaited_known.fetch_add(1, Relaxed);
        }
        if self.awaited.fetch_add(1, Relaxed) == 0 {
            self.awaited_since.store(self.now(), Relaxed);
        }
        BodyWait { activity: Arc::clone(self), is_known }
    }

    /// Marks a refused body that is read after its answer, until the guard is dropped.
    pub(super) fn linger(self: &Arc<Self>) -> Lingering {
        self.lingering.fetch_add(1, Relaxed);
        Lingering(Arc::clone(self))
    }

    /// Asks the connection to close once its requests are answered.
    pub(super) fn close(&self) {
        self.close.notify_one();
    }

    /// Resolves when [`close`](Self::close) was called.
    pub(super) async fn closing(&self) {
        self.close.notified().await;
    }

    /// Returns the reason why the connection may be closed for another at `now`, and since when it applies.
    pub(super) fn dispensable(&self, now: Instant) -> Option<(EvictionReason, Instant)> {
        let running = self.running.load(Relaxed);
        if running == 0 {
            let idle = self.idle_since.load(Relaxed);
            let is_new = idle == OPENED && now < self.opened + ARRIVAL;
            let reason = if is_new { EvictionReason::New } else { EvictionReason::Idle };
            return Some((reason, self.at(idle)));
        }
        let (awaited, offers) = (self.awaited.load(Relaxed), self.offers.load(Relaxed));
        let is_known = self.awaited_known.load(Relaxed) > 0;
        let awaited_since = self.at(self.awaited_since.load(Relaxed));
        if awaited == running && !is_known {
            return Some((EvictionReason::Unauthenticated, awaited_since));
        }
        if is_known && awaited + offers >= running {
            // A body in transit gets a moment to arrive.
            return (now >= awaited_since + UNREAD).then_some((EvictionReason::Unsent, awaited_since));
        }
        if offers == 0 || awaited + offers < running {
            return None;
        }
        self.restart_stall_timer(now);
        let since = self.at(self.offered_since.load(Relaxed));
        if now >= since + UNREAD {
            return Some((EvictionReason::Unread, since));
        }
        if let Some(since) = self.slowly_read_since(now, UNREAD) {
            return Some((EvictionReason::SlowlyRead, since));
        }
        let briefly = (now >= since + BRIEFLY).then_some(since).or_else(|| self.slowly_read_since(now, BRIEFLY));
        briefly.map(|since| (EvictionReason::BrieflyUnread, since))
    }

    /// Returns since when the client reads offered parts too slowly, if it has done so for this time at least. Many
    /// small answers count together, otherwise a client that takes seconds for each would never be slow.
    fn slowly_read_since(&self, now: Instant, least: Duration) -> Option<Instant> {
        let since = self.at(self.reading_since.load(Relaxed));
        let before = Duration::from_micros(self.read_before.load(Relaxed));
        let reading = now.saturating_duration_since(since) + before;
        let read = self.written.load(Relaxed).saturating_sub(self.written_at_period.load(Relaxed));
        (reading >= least && read < READ_RATE_LEAST.saturating_mul(reading.as_secs())).then_some(since)
    }

    /// Makes the stream answer 408 and fail.
    pub(super) fn expire(&self) {
        self.expired.store(true, Relaxed);
    }

    /// Returns whether [`expire`](Self::expire) was called.
    pub(super) fn is_expired(&self) -> bool {
        self.expired.load(Relaxed)
    }

    /// Returns the deadline that has passed at `now`, or the time of the next check. `is_pressed` selects the shorter
    /// idle time, when connections are scarce.
    pub(super) fn judge(&self, now: Instant, limits: &HttpLimits, is_pressed: bool) -> Verdict {
        let passed = |since: u64, limit: Duration| now >= self.at(since) + limit;
        let blocked = self.blocked_since.load(Relaxed);
        if blocked != 0 && passed(blocked, limits.write_stall) {
            return Verdict::Stuck;
        }
        if self.offers.load(Relaxed) != 0 {
            self.restart_stall_timer(now);
            if passed(self.offered_since.load(Relaxed), limits.write_stall) {
                return Verdict::Stuck;
            }
        }
        // A head that begins after this check has its whole time before the next check, so its deadline is met exactly.
        let next = now + limits.head_read;
        if self.running.load(Relaxed) != 0 || self.lingering.load(Relaxed) != 0 {
            return Verdict::Wait(next);
        }
        let head = self.head_since.load(Relaxed);
        if self.protocol == Protocol::Http1 && head != 0 {
            let slow = passed(head, limits.head_read);
            return if slow { Verdict::SlowHead } else { Verdict::Wait(self.at(head) + limits.head_read) };
        }
        let idle = self.idle_since.load(Relaxed);
        if passed(idle, if is_pressed { limits.idle_pressed } else { limits.idle }) {
            return Verdict::Idle;
        }
        // Connections may become scarce at any time.
        let pressed = self.at(idle) + limits.idle_pressed;
        let look = if pressed > now { pressed } else { now + limits.idle_pressed };
        Verdict::Wait(next.min(look).min(self.at(idle) + limits.idle))
    }

    /// Restarts the stall time if enough bytes were written. Answers are sent in large parts, and a client that reads a
    /// part slowly is not stalled.
    fn restart_stall_timer(&self, now: Instant) {
        let written = self.written.load(Relaxed);
        if written - self.written_before.load(Relaxed) >= TAKEN_LEAST {
            self.written_before.store(written, Relaxed);
            let since = now.saturating_duration_since(self.opened).as_micros();
            self.offered_since.store(u64::try_from(since).unwrap_or(u64::MAX), Relaxed);
        }
    }

    fn at(&self, since: u64) -> Instant {
        self.opened + Duration::from_micros(since)
    }

    fn now(&self) -> u64 {
        u64::try_from(self.opened.elapsed().as_micros()).unwrap_or(u64::MAX).max(1)
    }

    /// Records that bytes arrived.
    pub(super) fn has_read(&self) {
        let is_over = self.running.load(Relaxed) == 0 && self.lingering.load(Relaxed) == 0;
        if is_over && self.head_since.load(Relaxed) == 0 {
            self.head_since.store(self.now(), Relaxed);
        }
    }

    /// Records the result of a write.
    pub(super) fn has_written(&self, poll: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(bytes)) = poll {
            self.written.fetch_add(*bytes as u64, Relaxed);
        }
        match (poll, self.blocked_since.load(Relaxed)) {
            (Poll::Pending, 0) => self.blocked_since.store(self.now(), Relaxed),
            (Poll::Pending, _) | (Poll::Ready(_), 0) => {}
            (Poll::Ready(_), _) => {
                self.blocked_since.store(0, Relaxed);
                self.idle_since.store(self.now(), Relaxed);
            }
        }
    }
}

/// Guard: while it exists, the connection does not count as idle or as reading a request head.
pub(super) struct BusyGuard(Arc<Activity>);

impl BusyGuard {
    /// Marks a part of an answer that waits for the client, until the guard is dropped.
    pub(super) fn offer(&self) -> PendingPart {
        self.0.offered_since.store(self.0.now(), Relaxed);
        // The time is stored first, so that a scan by another thread does not see the times of an earlier answer.
        if self.0.offers.load(Relaxed) == 0 {
            let (now, since) = (self.0.now(), self.0.period_since.load(Relaxed));
            if since == 0 || now > since + READING_PERIOD {
                self.0.period_since.store(now, Relaxed);
                self.0.read_before.store(0, Relaxed);
                self.0.written_at_period.store(self.0.written.load(Relaxed), Relaxed);
            }
            self.0.reading_since.store(now, Relaxed);
        }
        self.0.offers.fetch_add(1, Relaxed);
        PendingPart(Arc::clone(&self.0))
    }
}

/// Guard: while it exists, one request of the connection waits for its body.
pub struct BodyWait {
    activity: Arc<Activity>,
    is_known: bool,
}

impl Drop for BodyWait {
    fn drop(&mut self) {
        self.activity.awaited.fetch_sub(1, Relaxed);
        if self.is_known {
            self.activity.awaited_known.fetch_sub(1, Relaxed);
        }
    }
}

/// Guard: while it exists, the connection reads a refused body after the answer. It counts as idle nevertheless.
pub struct Lingering(Arc<Activity>);

impl Drop for Lingering {
    fn drop(&mut self) {
        self.0.head_since.store(0, Relaxed);
        self.0.lingering.fetch_sub(1, Relaxed);
    }
}

/// Guard: a part of an answer that the client has to read.
pub(super) struct PendingPart(Arc<Activity>);

impl Drop for PendingPart {
    fn drop(&mut self) {
        // A client that reads one stream counts as reading the others too.
        let now = self.0.now();
        self.0.offered_since.store(now, Relaxed);
        if self.0.offers.fetch_sub(1, Relaxed) == 1 {
            self.0.read_before.fetch_add(now.saturating_sub(self.0.reading_since.load(Relaxed)), Relaxed);
        }
    }
}

impl Drop for BusyGuard {
    fn drop(&mut self) {
        self.0.idle_since.store(self.0.now(), Relaxed);
        self.0.head_since.store(0, Relaxed);
        self.0.running.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests;
