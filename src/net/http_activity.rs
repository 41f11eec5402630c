//! Activity of one HTTP connection: the times from which its deadlines are judged, kept by the stream that it
//! reads and writes and by the requests that are running on it.
//!
//! One timer for each connection looks here, so a request costs a few relaxed atomics instead of a timer of its own.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::http_listener::HttpLimits;

/// Minimum number of bytes that a client must read within a write stall's time while an answer waits for it. Fewer may
/// be replies to its pings, which a client that gives no window can request at will.
const TAKEN_LEAST: u64 = 1024;

/// Time after which a connection whose client reads no bytes of an answer may be closed in favour of another.
const UNREAD: Duration = Duration::from_secs(5);

/// Why a connection may make way for another one, the best reason first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Dispensable {
    /// No request is in flight.
    Idle,
    /// All its requests wait for bodies of clients that are not authenticated.
    Unauthenticated,
    /// The client does not read the rest of its answers.
    Unread,
    /// All that its requests wait for is up to the client, and some wait for bodies of authenticated clients.
    Unsent,
}

/// The protocol that a connection speaks. Only HTTP/1 has a head that can be told from other traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    Http1,
    Http2,
}

/// Action for the connection's timer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Look again at this time.
    Wait(Instant),
    /// A request's head is not whole in time.
    SlowHead,
    /// Nothing was asked for a while.
    Idle,
    /// The client takes no bytes.
    Stuck,
}

/// The times of one connection, in microseconds since it opened; 0 stands for "not now".
#[derive(Debug)]
pub(super) struct Activity {
    opened: Instant,
    protocol: Protocol,
    running: AtomicU32,
    idle_since: AtomicU64,
    head_since: AtomicU64,
    blocked_since: AtomicU64,
    /// Parts of answers that the client has room to ask for.
    offers: AtomicU32,
    /// Since when none of them was taken, and too few bytes were.
    offered_since: AtomicU64,
    written: AtomicU64,
    /// Of these, those that had been when `offered_since` was set for them.
    written_before: AtomicU64,
    /// Requests that wait for a body, and since when.
    awaited: AtomicU32,
    /// Of these, those of authenticated clients.
    awaited_known: AtomicU32,
    awaited_since: AtomicU64,
    /// Refused bodies that are read on behind their answers.
    lingering: AtomicU32,
    close: Notify,
    expired: AtomicBool,
}

impl Activity {
    /// A connection opened at `opened` whose first head has begun.
    pub(super) fn new(opened: Instant, protocol: Protocol) -> Self {
        Self {
            opened,
            protocol,
            running: AtomicU32::new(0),
            idle_since: AtomicU64::new(1),
            head_since: AtomicU64::new(1),
            blocked_since: AtomicU64::new(0),
            offers: AtomicU32::new(0),
            offered_since: AtomicU64::new(0),
            written: AtomicU64::new(0),
            written_before: AtomicU64::new(0),
            awaited: AtomicU32::new(0),
            awaited_known: AtomicU32::new(0),
            awaited_since: AtomicU64::new(0),
            lingering: AtomicU32::new(0),
            close: Notify::new(),
            expired: AtomicBool::new(false),
        }
    }

    /// Marks work that runs until the guard is dropped.
    pub(super) fn begin(self: &Arc<Self>) -> Busy {
        self.head_since.store(0, Relaxed);
        self.running.fetch_add(1, Relaxed);
        Busy(Arc::clone(self))
    }

    /// Marks a request that waits for its body, until the guard is dropped.
    pub(super) fn await_body(self: &Arc<Self>, is_known: bool) -> Awaited {
        if is_known {
            self.awaited_known.fetch_add(1, Relaxed);
        }
        if self.awaited.fetch_add(1, Relaxed) == 0 {
            self.awaited_since.store(self.now(), Relaxed);
        }
        Awaited { activity: Arc::clone(self), is_known }
    }

    /// Marks a refused body that is read on behind its answer, until the guard is dropped.
    pub(super) fn linger(self: &Arc<Self>) -> Lingering {
        self.lingering.fetch_add(1, Relaxed);
        Lingering(Arc::clone(self))
    }

    /// Asks the connection to close once its requests are answered.
    pub(super) fn close(&self) {
        self.close.notify_one();
    }

    /// Resolves when that was asked.
    pub(super) async fn closing(&self) {
        self.close.notified().await;
    }

    /// Whether the connection may make way for another at `now`, and since when.
    pub(super) fn dispensable(&self, now: Instant) -> Option<(Dispensable, Instant)> {
        let running = self.running.load(Relaxed);
        if running == 0 {
            return Some((Dispensable::Idle, self.at(self.idle_since.load(Relaxed))));
        }
        let (awaited, offers) = (self.awaited.load(Relaxed), self.offers.load(Relaxed));
        let is_known = self.awaited_known.load(Relaxed) > 0;
        let awaited_since = self.at(self.awaited_since.load(Relaxed));
        if awaited == running && !is_known {
            return Some((Dispensable::Unauthenticated, awaited_since));
        }
        if is_known && awaited + offers >= running {
            // A body that is on its way has a moment to arrive.
            return (now >= awaited_since + UNREAD).then_some((Dispensable::Unsent, awaited_since));
        }
        if offers == 0 || awaited + offers < running {
            return None;
        }
        self.note_taken(now);
        let since = self.at(self.offered_since.load(Relaxed));
        (now >= since + UNREAD).then_some((Dispensable::Unread, since))
    }

    /// From now on the stream answers 408 and fails.
    pub(super) fn expire(&self) {
        self.expired.store(true, Relaxed);
    }

    /// Whether it should.
    pub(super) fn is_expired(&self) -> bool {
        self.expired.load(Relaxed)
    }

    /// Which deadline has passed at `now`, or when to look again; `is_pressed` where others need the place.
    pub(super) fn judge(&self, now: Instant, limits: &HttpLimits, is_pressed: bool) -> Verdict {
        let passed = |since: u64, limit: Duration| now >= self.at(since) + limit;
        let blocked = self.blocked_since.load(Relaxed);
        if blocked != 0 && passed(blocked, limits.write_stall) {
            return Verdict::Stuck;
        }
        if self.offers.load(Relaxed) != 0 {
            self.note_taken(now);
            if passed(self.offered_since.load(Relaxed), limits.write_stall) {
                return Verdict::Stuck;
            }
        }
        // A head that begins after this look has its whole time left at the next one, so its deadline is met exactly.
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
        // The pressure may begin at any time.
        let pressed = self.at(idle) + limits.idle_pressed;
        let look = if pressed > now { pressed } else { now + limits.idle_pressed };
        Verdict::Wait(next.min(look).min(self.at(idle) + limits.idle))
    }

    /// A long answer goes out in long parts: whoever takes bytes of one is not stuck before the next.
    fn note_taken(&self, now: Instant) {
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

    /// Bytes have come.
    pub(super) fn has_read(&self) {
        let is_over = self.running.load(Relaxed) == 0 && self.lingering.load(Relaxed) == 0;
        if is_over && self.head_since.load(Relaxed) == 0 {
            self.head_since.store(self.now(), Relaxed);
        }
    }

    /// A write went so.
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

/// While it lives its connection is neither idle nor reading a head.
pub(super) struct Busy(Arc<Activity>);

impl Busy {
    /// Marks a part of an answer that waits for the client, until the guard is dropped.
    pub(super) fn offer(&self) -> Offer {
        self.0.offered_since.store(self.0.now(), Relaxed);
        self.0.offers.fetch_add(1, Relaxed);
        Offer(Arc::clone(&self.0))
    }
}

/// While it lives one request of its connection waits for its body.
pub struct Awaited {
    activity: Arc<Activity>,
    is_known: bool,
}

impl Drop for Awaited {
    fn drop(&mut self) {
        self.activity.awaited.fetch_sub(1, Relaxed);
        if self.is_known {
            self.activity.awaited_known.fetch_sub(1, Relaxed);
        }
    }
}

/// While it lives its connection reads on behind an answer. It is idle all the same.
pub struct Lingering(Arc<Activity>);

impl Drop for Lingering {
    fn drop(&mut self) {
        self.0.head_since.store(0, Relaxed);
        self.0.lingering.fetch_sub(1, Relaxed);
    }
}

/// A part of an answer whose next step is the client's.
pub(super) struct Offer(Arc<Activity>);

impl Drop for Offer {
    fn drop(&mut self) {
        // A client that reads one stream is not stuck with the others.
        self.0.offered_since.store(self.0.now(), Relaxed);
        self.0.offers.fetch_sub(1, Relaxed);
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.idle_since.store(self.0.now(), Relaxed);
        self.0.head_since.store(0, Relaxed);
        self.0.running.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_deadline_is_judged_from_what_the_connection_does() {
        let limits = HttpLimits::default();
        let opened = Instant::now();
        let at = |seconds| opened + Duration::from_micros(1) + Duration::from_secs(seconds);
        let activity = Arc::new(Activity::new(opened, Protocol::Http1));
        assert_eq!(activity.judge(at(3), &limits, false), Verdict::Wait(at(10)));
        assert_eq!(activity.judge(at(10), &limits, false), Verdict::SlowHead);
        let busy = activity.begin();
        assert_eq!(activity.judge(at(500), &limits, false), Verdict::Wait(at(510)));
        drop(busy);
        activity.idle_since.store(1, Relaxed);
        assert_eq!(activity.judge(at(3), &limits, false), Verdict::Wait(at(5)));
        assert_eq!(activity.judge(at(20), &limits, false), Verdict::Wait(at(25)));
        assert_eq!(activity.judge(at(72), &limits, false), Verdict::Wait(at(75)));
        assert_eq!(activity.judge(at(75), &limits, false), Verdict::Idle);
        assert_eq!(activity.judge(at(4), &limits, true), Verdict::Wait(at(5)));
        assert_eq!(activity.judge(at(5), &limits, true), Verdict::Idle, "others need the place");
        activity.blocked_since.store(1, Relaxed);
        assert_eq!(activity.judge(at(30), &limits, false), Verdict::Stuck);
    }

    #[test]
    fn an_answer_that_is_offered_and_not_taken_is_a_client_that_is_stuck() {
        let limits = HttpLimits::default();
        let opened = Instant::now();
        let activity = Arc::new(Activity::new(opened, Protocol::Http2));
        let busy = activity.begin();
        let offers = [busy.offer(), busy.offer()];
        activity.offered_since.store(1, Relaxed);
        let at = |seconds| opened + Duration::from_micros(1) + Duration::from_secs(seconds);
        assert_eq!(activity.judge(at(29), &limits, false), Verdict::Wait(at(39)));
        activity.has_written(&Poll::Ready(Ok(500)));
        assert_eq!(activity.judge(at(30), &limits, false), Verdict::Stuck);
        activity.has_written(&Poll::Ready(Ok(600)));
        assert_eq!(activity.judge(at(30), &limits, false), Verdict::Wait(at(40)), "it takes what it can");
        assert_eq!(activity.judge(at(60), &limits, false), Verdict::Stuck);
        drop(offers);
        activity.offered_since.store(1, Relaxed);
        assert_eq!(activity.judge(at(500), &limits, false), Verdict::Wait(at(510)), "our own work has all its time");
    }

    #[test]
    fn a_connection_makes_way_while_no_request_is_in_flight() {
        let opened = Instant::now();
        let at = |seconds| opened + Duration::from_secs(seconds);
        let activity = Arc::new(Activity::new(opened, Protocol::Http1));
        let rank = |seconds| activity.dispensable(at(seconds)).map(|(rank, _)| rank);
        assert_eq!(rank(0), Some(Dispensable::Idle));
        let request = activity.begin();
        assert_eq!(rank(500), None);
        let body = activity.await_body(false);
        assert_eq!(rank(0), Some(Dispensable::Unauthenticated));
        let other = activity.begin();
        assert_eq!(rank(0), None, "one is in our hands");
        drop((body, other));
        let answer = request.offer();
        assert_eq!((rank(1), rank(6)), (None, Some(Dispensable::Unread)));
        drop((answer, request));
        let refused_body = activity.linger();
        assert_eq!(rank(0), Some(Dispensable::Idle));
        assert_eq!(activity.judge(at(500), &HttpLimits::default(), true), Verdict::Wait(at(510)));
        drop(refused_body);
    }

    #[test]
    fn an_authenticated_body_that_does_not_come_is_the_last_to_make_way() {
        let opened = Instant::now();
        let activity = Arc::new(Activity::new(opened, Protocol::Http2));
        let rank = |seconds| activity.dispensable(opened + Duration::from_secs(seconds)).map(|(rank, _)| rank);
        let (_known, _stranger) = (activity.begin(), activity.begin());
        let _strangers_body = activity.await_body(false);
        let body = activity.await_body(true);
        assert_eq!((rank(1), rank(6)), (None, Some(Dispensable::Unsent)));
        assert!(Dispensable::Unsent > Dispensable::Unread);
        drop(body);
        assert_eq!(rank(6), None, "one is in our hands");
    }
}
