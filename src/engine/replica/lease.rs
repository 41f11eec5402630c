//! The lease of an active machine, evaluated with this machine's clocks. Accepting and sending require it.
//!
//! [`crate::machine::replica_lease`] has the rules. The clocks are read before every decision. If the process was
//! frozen or the wall clock was set, the lease ends before it can be used.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::sleep;

use crate::engine::ports::Clock;
use crate::machine::replica_lease::{LeaseInput, LeaseRules, LeaseState, Permit, Predecessor};
use crate::store::replica::Outbox;

/// Maximum difference, in milliseconds, between the advances of wall clock and continuous clock since the last check. A
/// larger difference ends the lease.
const CLOCKS_APART: u64 = 1000;
/// Interval between requests for a confirmation while work waits for it.
const RETRY: Duration = Duration::from_millis(100);
/// Maximum interval between two reads of the clocks.
const LOOK: Duration = Duration::from_millis(250);

/// The lease of one active machine.
pub struct Lease {
    /// The settings.
    pub(super) rules: LeaseRules,
    real: Arc<dyn Clock>,
    inner: Mutex<Inner>,
    /// Notified of state changes and confirmations. It wakes its waiters in their order, so that a simulation is
    /// repeatable; a watch channel does not.
    changes: Notify,
    /// Notified when work waits for a confirmation, or the state has changed.
    wanted: Notify,
}

struct Inner {
    state: LeaseState,
    /// Time of the last request for a confirmation.
    asked_at: Duration,
    /// The last read of the clocks: the continuous one, and the wall clock in milliseconds.
    looked_at: Duration,
    wall: u64,
    /// Whether sending has ended permanently.
    has_ended: bool,
}

impl Lease {
    /// Creates the lease of a log that was claimed by a request sent at `asked_at`.
    pub(super) fn new(rules: LeaseRules, real: Arc<dyn Clock>, asked_at: Duration, predecessor: Predecessor) -> Self {
        let (now, wall) = (real.monotonic(), real.now().as_millis());
        let state = LeaseState::Claiming.step(LeaseInput::Claimed { asked_at, predecessor }, now, &rules);
        let inner = Inner { state, asked_at, looked_at: now, wall, has_ended: false };
        Self { rules, real, inner: Mutex::new(inner), changes: Notify::new(), wanted: Notify::new() }
    }

    /// Returns whether a change may be accepted. Requests a confirmation first if the lease expired while idle.
    pub(super) async fn may_accept(&self) -> bool {
        self.permit(LeaseState::may_accept).await
    }

    /// Returns whether a final dot or a webhook request may be sent. Requests a confirmation first if the lease has
    /// expired.
    pub(super) async fn may_send(&self) -> bool {
        self.permit(LeaseState::may_send).await
    }

    async fn permit(&self, asked: fn(&LeaseState, Duration, &LeaseRules) -> Permit) -> bool {
        loop {
            let changes = self.changes.notified();
            let (state, now) = self.step(LeaseInput::Wanted);
            match asked(&state, now, &self.rules) {
                Permit::Granted => return true,
                Permit::Refused => return false,
                Permit::AfterConfirmation => self.wanted.notify_one(),
            }
            tokio::select! {
                biased;
                () = changes => {}
                () = sleep(LOOK) => {}
            }
        }
    }

    /// Waits until sending is allowed. Returns false if it never will be, because another machine owns the log or this
    /// machine stops.
    pub(super) async fn wait_to_send(&self) -> bool {
        loop {
            let changes = self.changes.notified();
            let has_ended = {
                let inner = self.inner();
                inner.has_ended || inner.state == LeaseState::Deposed
            };
            if has_ended {
                return false;
            }
            if self.may_send().await {
                return true;
            }
            tokio::select! {
                biased;
                () = changes => {}
                () = sleep(Duration::from_secs(1)) => {}
            }
        }
    }

    /// Ends all waits for permission to send.
    pub(super) fn end_waits(&self) {
        self.inner().has_ended = true;
        self.changes.notify_waiters();
    }

    /// Returns whether the service is ready.
    pub(super) fn is_ready(&self) -> bool {
        self.step(LeaseInput::Passed).0.is_ready()
    }

    /// Returns whether the previous holder's lease may still be valid.
    pub(super) fn is_waiting(&self) -> bool {
        matches!(self.inner().state, LeaseState::Waiting { .. })
    }

    /// Returns whether the bucket has not confirmed the lease in time, so that nothing is accepted or sent.
    pub(super) fn is_unconfirmed(&self) -> bool {
        self.step(LeaseInput::Passed).0 == LeaseState::Unconfirmed
    }

    /// Returns whether sending is allowed now, as far as is known.
    pub(super) fn is_sending(&self) -> bool {
        matches!(self.inner().state, LeaseState::Active(_))
    }

    /// Returns the remaining time of the lease; `None` if it has no end.
    pub(super) fn left(&self) -> Option<Duration> {
        let (state, now) = self.step(LeaseInput::Passed);
        state.lease_left(now, &self.rules)
    }

    /// Returns the time until the next confirmation must be requested; `None` if confirmations are not needed.
    pub(super) fn next_ask(&self) -> Option<Duration> {
        let inner = self.inner();
        let now = self.real.monotonic();
        let has_work = wanted_since(&inner.state).is_some();
        let at = if has_work && inner.state.may_send(now, &self.rules) == Permit::AfterConfirmation {
            Some(inner.asked_at + RETRY)
        } else if self.rules.stops {
            inner.state.next_confirmation(inner.asked_at, has_work, &self.rules)
        } else {
            // The permission lasts until another machine claims the log, which the next slot shows.
            None
        };
        at.map(|at| at.saturating_sub(now))
    }

    /// Resolves when a confirmation must be requested.
    pub(super) async fn confirmation_due(&self) {
        loop {
            match self.next_ask() {
                Some(Duration::ZERO) => return,
                Some(wait) => tokio::select! {
                    biased;
                    () = sleep(wait) => {}
                    () = self.wanted.notified() => {}
                },
                None => self.wanted.notified().await,
            }
        }
    }

    /// Records that a confirmation is about to be requested. Returns the time from which the confirmation counts.
    pub(super) fn ask(&self) -> Duration {
        let now = self.real.monotonic();
        self.inner().asked_at = now;
        now
    }

    /// Records a confirmation: a new slot of our own, or the absence of a next slot. The request was sent at
    /// `asked_at`.
    pub(super) fn confirmed(&self, asked_at: Duration) {
        self.step(LeaseInput::Confirmed(asked_at));
        self.changes.notify_waiters();
    }

    /// Records that another machine owns the log.
    pub(super) fn usurped(&self) {
        self.step(LeaseInput::SlotTaken);
    }

    /// Checks the clocks, and whether the lease covers the pending work, as long as the future is polled.
    pub(super) async fn watch(self: Arc<Self>, outbox: Arc<Outbox>) {
        let every = LOOK.min(self.rules.lease / 20);
        loop {
            let has_work = self.rules.stops && outbox.has_unconfirmed();
            self.step(if has_work { LeaseInput::Wanted } else { LeaseInput::Passed });
            if has_work {
                self.wanted.notify_one();
            }
            sleep(every).await;
        }
    }

    /// Reads the clocks and advances the state. Returns the state and the time.
    fn step(&self, input: LeaseInput) -> (LeaseState, Duration) {
        let mut inner = self.inner();
        let (now, wall) = (self.real.monotonic(), self.real.now().as_millis());
        let passed = now.saturating_sub(inner.looked_at);
        let before = inner.state;
        let expected = inner.wall.saturating_add(u64::try_from(passed.as_millis()).unwrap_or(u64::MAX));
        let was_frozen = passed > self.rules.lease / 2;
        if was_frozen || wall.abs_diff(expected) > CLOCKS_APART {
            tracing::warn!(?passed, "the clocks jumped or the process was frozen; the lease must be confirmed again");
            inner.state = inner.state.step(LeaseInput::Doubted, now, &self.rules);
        }
        (inner.looked_at, inner.wall) = (now, wall);
        inner.state = inner.state.step(input, now, &self.rules);
        let after = inner.state;
        drop(inner);
        let is_changed = std::mem::discriminant(&before) != std::mem::discriminant(&after);
        // The shipper may have nothing to wait for yet.
        if is_changed || wanted_since(&before).is_none() && wanted_since(&after).is_some() {
            self.wanted.notify_one();
        }
        if is_changed {
            self.report(&after);
            self.changes.notify_waiters();
        }
        (after, now)
    }

    fn report(&self, state: &LeaseState) {
        match state {
            LeaseState::Active(_) => tracing::info!("the lease is confirmed; accepting and sending"),
            LeaseState::Unconfirmed => tracing::error!(
                lease_seconds = self.rules.lease.as_secs(),
                "the bucket has not confirmed the lease; accepting and sending stop until it does"
            ),
            LeaseState::Following { .. } | LeaseState::Claiming | LeaseState::Waiting { .. } | LeaseState::Deposed => {}
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the time since which work has waited for a confirmation.
const fn wanted_since(state: &LeaseState) -> Option<Duration> {
    match state {
        LeaseState::Waiting { confirmations, .. } | LeaseState::Active(confirmations) => confirmations.wanted_since,
        LeaseState::Following { .. } | LeaseState::Claiming | LeaseState::Unconfirmed | LeaseState::Deposed => None,
    }
}
