//! The right of a machine to accept and send mail while its store is replicated (docs/replication.md).
//!
//! ```text
//!              promoted,            claim created       lease of the predecessor over
//!              log still                                 (at once after a release)
//!  following -------------> claiming ------------> waiting ------------> active <------.
//!      ^                       |                      |                    |  wanted,   | confirmed
//!      '-----------------------'                      |                    |  and none  |
//!            another claimed                          |                    v  for a lease
//!                                                     '---> deposed <--- unconfirmed
//!                                                        another's object in the next slot
//! ```
//!
//! All times are readings of this machine's monotonic clock, which can't be set and continues while the machine is
//! suspended. A confirmation counts from the time *before* its request was sent, and a claim's wait from the time
//! *after* its answer arrived. So no two clocks are compared: it is enough that their rates differ by at most 5 %.

use std::time::Duration;

/// The longest lease that a machine may have.
pub const LEASE_MAX: Duration = Duration::from_secs(60);
/// A successor's wait in percent of its predecessor's lease: clock rates may differ by 5 %.
const WAIT_PERCENT: u32 = 105;
/// Margin added to a successor's wait.
const WAIT_MARGIN: Duration = Duration::from_millis(500);
/// Number of leases without a change after which a log counts as abandoned.
const STILL_LEASES: u32 = 2;

/// The settings of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseRules {
    /// Validity of a confirmation.
    pub lease: Duration,
    /// Whether the right ends without confirmations. Otherwise it lasts until another machine claims the log.
    pub stops: bool,
    /// Whether a standby claims the log automatically.
    pub is_automatic: bool,
}

/// The owner of the last slot before a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Predecessor {
    /// The predecessor ended its epoch properly, or there was none.
    Released,
    /// This data directory.
    Own,
    /// Another machine, which may still rely on its lease.
    Other {
        /// The longest lease that may still be valid.
        lease: Duration,
    },
}

impl Predecessor {
    /// Returns the time that the successor waits after its claim before it sends mail.
    pub fn wait(self) -> Duration {
        match self {
            Self::Released | Self::Own => Duration::ZERO,
            Self::Other { lease } => lease * WAIT_PERCENT / 100 + WAIT_MARGIN,
        }
    }
}

/// The confirmations of the log's owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Confirmations {
    /// Time at which the newest one was requested; `None` after a doubt about the clock.
    pub newest: Option<Duration>,
    /// Time since which work has waited for a newer confirmation.
    pub wanted_since: Option<Duration>,
}

/// The state of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseState {
    /// The machine applies another machine's log, whose owner may have stopped.
    Following {
        /// Time of the first request, since the log last changed, that found no further slot.
        unchanged_since: Option<Duration>,
    },
    /// The machine's claim is in flight.
    Claiming,
    /// The machine owns the log, but its predecessor may still send mail.
    Waiting {
        /// Duration of the wait.
        wait: Duration,
        /// End of the wait.
        until: Duration,
        /// Confirmations.
        confirmations: Confirmations,
    },
    /// The machine owns the log.
    Active(Confirmations),
    /// The machine owned the log when the bucket last answered.
    Unconfirmed,
    /// Another machine owns the log.
    Deposed,
}

/// An input of the machine: a fact that has happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseInput {
    /// An operator promoted this machine.
    Promoted,
    /// The log has another slot.
    Moved,
    /// The bucket answered that there is no further slot. The content is the time at which the request was sent.
    Still(Duration),
    /// The bucket did not answer.
    Unanswered,
    /// This machine's claim was created, in a slot that is not history.
    Claimed {
        /// Time at which the request was sent.
        asked_at: Duration,
        /// The previous holder of the log.
        predecessor: Predecessor,
    },
    /// Another machine's object was found in the slot of the claim, or the claim was created in a slot that is history.
    ClaimLost,
    /// An own slot was created, or there is no next one. The content is the time at which the request was sent.
    Confirmed(Duration),
    /// An accept, an attempt, a final dot, or a row waits for a confirmation.
    Wanted,
    /// Another machine's object was found in the next slot.
    SlotTaken,
    /// Wall clock and monotonic clock diverged, or the process did not run for half a lease.
    Doubted,
    /// Time passed.
    Passed,
}

/// Whether an action is permitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permit {
    /// The action is permitted.
    Granted,
    /// The action is permitted after a confirmation, which must be requested now.
    AfterConfirmation,
    /// The action is not permitted.
    Refused,
}

impl LeaseState {
    /// Returns the state after `input` at `now`. An input that makes no sense changes nothing.
    #[must_use]
    pub fn step(self, input: LeaseInput, now: Duration, rules: &LeaseRules) -> Self {
        match self {
            Self::Following { unchanged_since: still_since } => follow(still_since, input, rules),
            Self::Claiming => match input {
                LeaseInput::Claimed { asked_at, predecessor } => claimed(asked_at, predecessor, now),
                LeaseInput::ClaimLost => Self::Following { unchanged_since: None },
                _ => self,
            },
            Self::Waiting { wait, until, confirmations } => {
                let confirmations = confirmations.step(input, now);
                match input {
                    LeaseInput::SlotTaken => Self::Deposed,
                    // The clock that measured the wait is in doubt.
                    LeaseInput::Doubted => Self::Waiting { wait, until: now + wait, confirmations },
                    _ if now >= until => Self::Active(confirmations.wanted_again(now)),
                    _ => Self::Waiting { wait, until, confirmations },
                }
            }
            Self::Active(confirmations) => {
                let confirmations = confirmations.step(input, now);
                match input {
                    LeaseInput::SlotTaken => Self::Deposed,
                    _ if rules.stops && confirmations.are_overdue(now, rules) => Self::Unconfirmed,
                    _ => Self::Active(confirmations),
                }
            }
            Self::Unconfirmed => match input {
                LeaseInput::SlotTaken => Self::Deposed,
                // A confirmation whose answer took longer than its validity says nothing about now.
                LeaseInput::Confirmed(asked_at) if now < asked_at + rules.lease => {
                    Self::Active(Confirmations { newest: Some(asked_at), wanted_since: None })
                }
                _ => self,
            },
            Self::Deposed => self,
        }
    }

    /// Returns whether a message or a change may be accepted at `now`.
    pub fn may_accept(&self, now: Duration, rules: &LeaseRules) -> Permit {
        match self {
            Self::Waiting { .. } => Permit::Granted,
            _ => self.may_send(now, rules),
        }
    }

    /// Returns whether a final dot or a webhook request may be sent at `now`.
    pub fn may_send(&self, now: Duration, rules: &LeaseRules) -> Permit {
        match self {
            Self::Active(confirmations) if confirmations.are_valid(now, rules) => Permit::Granted,
            Self::Active(_) => Permit::AfterConfirmation,
            Self::Following { .. } | Self::Claiming | Self::Waiting { .. } | Self::Unconfirmed | Self::Deposed => {
                Permit::Refused
            }
        }
    }

    /// Returns whether the service is ready. A lease that expired while nothing needed it does not count.
    pub const fn is_ready(&self) -> bool {
        matches!(self, Self::Waiting { .. } | Self::Active(_))
    }

    /// Returns the remaining time of the lease at `now`; `None` if there is no lease or it has no end.
    pub fn lease_left(&self, now: Duration, rules: &LeaseRules) -> Option<Duration> {
        match self {
            Self::Waiting { confirmations, .. } | Self::Active(confirmations) if rules.stops => {
                Some(confirmations.newest.map_or(Duration::ZERO, |newest| (newest + rules.lease).saturating_sub(now)))
            }
            _ => None,
        }
    }

    /// Returns the time of the next request for a confirmation; `asked_at` is the time of the last request. With work
    /// this is every half lease. With automatic failover an idle owner also confirms every third of a lease.
    pub fn next_confirmation(&self, asked_at: Duration, has_work: bool, rules: &LeaseRules) -> Option<Duration> {
        match self {
            Self::Unconfirmed => Some(asked_at + rules.lease / 2),
            Self::Waiting { .. } | Self::Active(_) if has_work => Some(asked_at + rules.lease / 2),
            Self::Waiting { .. } | Self::Active(_) if rules.is_automatic => Some(asked_at + rules.lease / 3),
            _ => None,
        }
    }
}

impl Confirmations {
    fn step(self, input: LeaseInput, now: Duration) -> Self {
        match input {
            LeaseInput::Confirmed(asked_at) => Self {
                newest: self.newest.max(Some(asked_at)),
                wanted_since: self.wanted_since.filter(|since| *since > asked_at),
            },
            LeaseInput::Wanted => Self { wanted_since: self.wanted_since.or(Some(now)), ..self },
            LeaseInput::Doubted => Self { newest: None, ..self },
            _ => self,
        }
    }

    /// Lets work wait for a confirmation from `now` on: before, a confirmation would have permitted nothing.
    fn wanted_again(self, now: Duration) -> Self {
        Self { wanted_since: self.wanted_since.map(|_| now), ..self }
    }

    fn are_valid(self, now: Duration, rules: &LeaseRules) -> bool {
        match self.newest {
            Some(newest) => !rules.stops || now < newest + rules.lease,
            // After a doubt, an owner that may continue without the bucket still tries to reach it first, for a lease.
            None => !rules.stops && self.wanted_since.is_some_and(|since| now >= since + rules.lease),
        }
    }

    fn are_overdue(self, now: Duration, rules: &LeaseRules) -> bool {
        !self.are_valid(now, rules) && self.wanted_since.is_some_and(|since| now >= since + rules.lease)
    }
}

fn follow(still_since: Option<Duration>, input: LeaseInput, rules: &LeaseRules) -> LeaseState {
    match input {
        LeaseInput::Promoted => LeaseState::Claiming,
        LeaseInput::Still(asked_at) => {
            let since = still_since.unwrap_or(asked_at);
            let is_abandoned = asked_at.saturating_sub(since) >= rules.lease * STILL_LEASES;
            if rules.is_automatic && is_abandoned {
                LeaseState::Claiming
            } else {
                LeaseState::Following { unchanged_since: Some(since) }
            }
        }
        // The missing answer may have reported a slot, and a clock in doubt has measured nothing.
        LeaseInput::Moved | LeaseInput::Unanswered | LeaseInput::Doubted => {
            LeaseState::Following { unchanged_since: None }
        }
        _ => LeaseState::Following { unchanged_since: still_since },
    }
}

fn claimed(asked_at: Duration, predecessor: Predecessor, now: Duration) -> LeaseState {
    let confirmations = Confirmations { newest: Some(asked_at), wanted_since: None };
    match predecessor {
        Predecessor::Released | Predecessor::Own => LeaseState::Active(confirmations),
        Predecessor::Other { .. } => {
            let wait = predecessor.wait();
            LeaseState::Waiting { wait, until: now + wait, confirmations }
        }
    }
}

#[cfg(test)]
mod tests;
