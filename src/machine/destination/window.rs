//! Connection window of a site. It grows while the site accepts messages, and halves when the site fails or asks for a
//! lower rate. It is zero during a backoff, then one for the probe. Times are arguments.

use std::time::Duration;

use crate::base::time::Timestamp;

/// Initial number of connections to a site.
const START: usize = 2;
/// Backoff of a site after its first, second, ... failure in a row. Each is shorter than the retry delay of a single
/// message (contract 6, less 10 %), so that such a message keeps to its own schedule.
const HOLD_SECS: [u64; 6] = [50, 100, 210, 420, 800, 1600];

/// Minimum time between probes that accounts request. The site belongs to all of them.
const REQUEST_INTERVAL: Duration = Duration::from_secs(10);

/// The window of one site.
#[derive(Debug, Clone)]
pub(super) struct Window {
    /// Maximum number of connections that the provider allows.
    most: usize,
    size: usize,
    /// Number of messages accepted since the window last grew.
    round: usize,
    /// Number of failures in a row.
    failures: usize,
    trust: Trust,
    recent: Recent,
    state: WindowState,
    /// Time of the last backoff that began while the site was open.
    closed_at: Timestamp,
    /// Time at which the next requested probe is allowed.
    next_request_at: Timestamp,
    /// The end of the backoff that a requested probe interrupts.
    interrupted: Option<Timestamp>,
}

/// Trust in a site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    /// The site was never contacted.
    New,
    /// The site has answered.
    Answers,
    /// The site has accepted a message, and has not failed since.
    Proven,
    /// An attempt timed out, and no answer has come since.
    Silent,
}

/// The results of the last attempts.
#[derive(Debug, Clone, Copy, Default)]
struct Recent {
    /// The newest is the lowest bit; 1 is a failure.
    failed: u32,
    count: u32,
}

impl Recent {
    const MOST: u32 = 20;

    const fn note(&mut self, failed: bool) {
        self.failed = (self.failed << 1 | failed as u32) & ((1 << Self::MOST) - 1);
        if self.count < Self::MOST {
            self.count += 1;
        }
    }

    /// Returns whether most of the last attempts failed.
    const fn is_mostly_failed(self) -> bool {
        self.failed.count_ones() * 2 > self.count
    }
}

/// Whether attempts at a site are allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WindowState {
    /// Attempts are allowed.
    Open,
    /// Attempts are not allowed before this time.
    BackedOff(Timestamp),
    /// One connection probes the site, and its outcome decides.
    Probing,
}

impl Window {
    pub(super) fn new(most: usize) -> Self {
        Self {
            most,
            size: START.min(most),
            round: 0,
            failures: 0,
            trust: Trust::New,
            recent: Recent::default(),
            state: WindowState::Open,
            closed_at: Timestamp::ZERO,
            next_request_at: Timestamp::ZERO,
            interrupted: None,
        }
    }

    /// Returns the trust in the site.
    pub(super) const fn trust(&self) -> Trust {
        self.trust
    }

    pub(super) const fn state(&self) -> WindowState {
        self.state
    }

    /// Returns the number of connections that are allowed.
    pub(super) fn connections(&self) -> usize {
        match self.state {
            WindowState::BackedOff(_) => 0,
            WindowState::Probing => 1,
            WindowState::Open => self.size.max(1),
        }
    }

    /// The site accepted a message.
    pub(super) fn took(&mut self) {
        self.round += 1;
        if self.round >= self.size {
            self.round = 0;
            self.size = (self.size + 1).min(self.most);
        }
        self.answered();
        self.trust = Trust::Proven;
    }

    /// The site answered about the message, with any result.
    pub(super) fn answered(&mut self) {
        self.recent.note(false);
        if self.trust != Trust::Proven {
            self.trust = Trust::Answers;
        }
        match self.state {
            WindowState::Open => self.failures = 0,
            WindowState::Probing => {
                self.failures = 0;
                self.interrupted = None;
                self.state = WindowState::Open;
            }
            // The connection was opened before the backoff, which continues.
            WindowState::BackedOff(_) => {}
        }
    }

    /// The site asked for a lower rate.
    pub(super) fn slowed(&mut self) {
        self.answered();
        self.halve();
    }

    /// An attempt timed out, in any phase. If the site serves other accounts, only this message got no answer: the site
    /// does not count as silent, and keeps its window.
    pub(super) fn timed_out(&mut self, serves_others: bool) {
        self.trust = if serves_others { Trust::Answers } else { Trust::Silent };
        if !serves_others {
            self.halve();
        }
    }

    /// An attempt timed out after it had begun its message. Returns the end of the new backoff, if that attempt was the
    /// probe.
    pub(super) fn hung(&mut self, serves_others: bool, now: Timestamp) -> Option<Timestamp> {
        if !serves_others {
            self.recent.note(true);
        }
        if self.state == WindowState::Probing { self.pushed_back(now) } else { None }
    }

    /// The site refused or closed a connection. While its other connections succeed, the window is halved. If most of
    /// the last attempts failed, the site is backed off, and the end of the backoff is returned.
    pub(super) fn turned_away(&mut self, now: Timestamp) -> Option<Timestamp> {
        self.recent.note(true);
        if self.recent.is_mostly_failed() || self.state == WindowState::Probing {
            return self.pushed_back(now);
        }
        self.halve();
        None
    }

    /// The site refused us or could not be reached. Returns the end of the new backoff. Several connections may meet
    /// the same failure, which begins only one backoff. If a requested probe failed, the backoff that it interrupted
    /// continues: the requests of one account must not keep the site from the others for longer.
    pub(super) fn pushed_back(&mut self, now: Timestamp) -> Option<Timestamp> {
        if let WindowState::BackedOff(until) = self.state
            && until > now
        {
            return None;
        }
        if let Some(until) = self.interrupted(now) {
            self.close(until, now);
            return Some(until);
        }
        self.halve();
        let until = now + Duration::from_secs(HOLD_SECS[self.failures.min(HOLD_SECS.len() - 1)]);
        self.failures += 1;
        if self.trust == Trust::Proven {
            self.trust = Trust::Answers;
        }
        self.recent = Recent::default();
        self.close(until, now);
        Some(until)
    }

    /// Backs the site off until `until`, for a reason other than a failure of the site. After a requested probe, the
    /// backoff that it interrupted continues instead. Returns the end of the backoff, unless the site already has a
    /// longer one.
    pub(super) fn hold(&mut self, until: Timestamp, now: Timestamp) -> Option<Timestamp> {
        if let WindowState::BackedOff(held) = self.state
            && held >= until
        {
            return None;
        }
        let until = self.interrupted(now).unwrap_or(until);
        self.close(until, now);
        Some(until)
    }

    /// Returns the end of the backoff that a requested probe interrupts, if it is in the future.
    fn interrupted(&self, now: Timestamp) -> Option<Timestamp> {
        self.interrupted.filter(|until| *until > now)
    }

    fn close(&mut self, until: Timestamp, now: Timestamp) {
        if self.state == WindowState::Open {
            self.closed_at = now;
        }
        self.interrupted = None;
        self.state = WindowState::BackedOff(until);
    }

    /// Returns the start of the backoff, unless the site is open.
    pub(super) fn closed_at(&self) -> Option<Timestamp> {
        (self.state != WindowState::Open).then_some(self.closed_at)
    }

    /// Allows a probe now, before the end of the backoff, unless one was allowed less than [`REQUEST_INTERVAL`] ago.
    /// Returns whether it interrupted a backoff.
    pub(super) fn allow_probe(&mut self, now: Timestamp) -> bool {
        let WindowState::BackedOff(until) = self.state else { return false };
        if self.next_request_at > now || !self.end_backoff(now) {
            return false;
        }
        self.next_request_at = now + REQUEST_INTERVAL;
        self.interrupted = Some(until);
        true
    }

    /// Ends a backoff before its time, so that the site is probed now. Returns whether there was one.
    pub(super) fn end_backoff(&mut self, now: Timestamp) -> bool {
        match self.state {
            WindowState::BackedOff(until) if until > now => {
                self.state = WindowState::BackedOff(now);
                true
            }
            WindowState::BackedOff(_) | WindowState::Open | WindowState::Probing => false,
        }
    }

    /// Forgets the number of failures in a row, because they concern one account alone.
    pub(super) const fn forget_failures(&mut self) {
        self.failures = 0;
    }

    /// Ends the backoff if it is over. Returns whether the site must be probed.
    pub(super) fn begin_probe(&mut self, now: Timestamp) -> bool {
        match self.state {
            WindowState::BackedOff(until) if until <= now => {
                self.state = WindowState::Probing;
                true
            }
            WindowState::BackedOff(_) | WindowState::Open | WindowState::Probing => false,
        }
    }

    /// Moves all times, because the service's time was set back.
    pub(super) fn set_back(&mut self, by: Duration) {
        if let WindowState::BackedOff(until) = self.state {
            self.state = WindowState::BackedOff(until - by);
        }
        self.closed_at = self.closed_at - by;
        self.next_request_at = self.next_request_at - by;
        self.interrupted = self.interrupted.map(|until| until - by);
    }

    fn halve(&mut self) {
        self.round = 0;
        self.size = (self.size / 2).max(1);
    }
}
