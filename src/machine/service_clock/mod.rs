//! The service's own time: it follows the wall clock, and a monotonic clock verifies it.
//!
//! ```text
//!     more than an hour apart, or gained in sum
//!   trusted --------------------------------> doubtful
//!    ^  forward at once,                        |  runs on by the monotonic clock;
//!    |  backward a tenth slower                 |  deadlines stand still
//!    '--- recorded -- ended <-- jump undone, ---'
//!                               10 minutes synchronised, 24 hours in agreement, or accepted
//! ```
//!
//! Steps ahead add up. The gain over the monotonic clock is at most an hour, and a gain of an hour is forgotten evenly
//! over 7 days. So in any period the service's time advances by at most the elapsed time, 1/168 of it, and an hour.
//!
//! After a doubt the wall clock is adopted only once the store has recorded the end of the doubt. So even after a crash
//! the content accepted meanwhile gets its correct deadlines.
//!
//! Deadlines are compared with [`ServiceTime::expiry`], which is frozen from the start of a doubt until its end is
//! [settled](State::settled). So no deadline passes because of a possibly wrong time, or before the deadlines of the
//! content accepted meanwhile are corrected. At startup the wall clock is compared with the service's time at the last
//! record of the store.

use std::time::Duration;

use super::Next;
use crate::base::time::Timestamp;

const HOUR: Duration = Duration::from_secs(3600);
/// Maximum difference of a wall clock that is not doubtful.
pub const DIFFERENCE_MAX: Duration = HOUR;
/// Maximum time by which the clock may be ahead of the last record at startup: the service may have been stopped.
pub const STOPPED_MAX: Duration = Duration::from_secs(7 * 24 * 3600);
/// Duration of synchronised clock readings from the kernel after which the doubt ends.
pub const SYNCHRONISED_FOR: Duration = Duration::from_secs(600);
/// Duration of agreement between wall and monotonic clock after which the doubt ends.
pub const AGREED_FOR: Duration = Duration::from_secs(24 * 3600);
/// Maximum drift since their first comparison at which wall and monotonic clock agree. A crystal that is 500 ppm off
/// drifts 43 seconds in 24 hours.
const AGREEMENT: Duration = Duration::from_secs(60);
/// The service's clock runs slower by this fraction while it waits for a wall clock that was set back.
const SLOWER_BY: u32 = 10;

/// The gain over the monotonic clock decays by this fraction of the elapsed time: by an hour in 7 days, or 5952 ppm. A
/// crystal that is 500 ppm off gains less, so it never causes a doubt.
const GAIN_DECAY: u32 = 7 * 24;

/// One reading of the machine's clocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sample {
    /// The wall clock, since the epoch.
    pub wall: Duration,
    /// A monotonic clock with any starting point. It can't be set, and counts the time while the machine is suspended.
    pub elapsed: Duration,
    /// Whether the kernel reports that the wall clock is synchronised.
    pub is_synchronised: bool,
}

/// The service's time at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServiceTime {
    /// The service's time, for timestamps in the store and for timers.
    pub now: Timestamp,
    /// The time for deadlines. It equals `now`, except that it is frozen during a doubt.
    pub expiry: Timestamp,
    /// The wall clock, for timestamps that leave the process.
    pub wall: Timestamp,
    /// The number of the current doubt about the wall clock, if any.
    pub doubt: Option<u32>,
    /// Whether deadlines are frozen: during a doubt, and until its end is settled.
    pub is_frozen: bool,
}

impl ServiceTime {
    /// Returns whether the wall clock is doubtful.
    pub const fn is_doubtful(&self) -> bool {
        self.doubt.is_some()
    }

    /// Returns whether the doubt is over and its end is being settled. `now` may then be far after deadlines that are
    /// still frozen.
    pub const fn is_settling(&self) -> bool {
        self.is_frozen && self.doubt.is_none()
    }

    /// Returns the deadline `at`, or an hour from now if it has passed while deadlines are frozen. The deadline's work
    /// is checked again then.
    pub fn deadline(&self, at: Timestamp) -> Timestamp {
        if at <= self.now && self.expiry < at { self.now + HOUR } else { at }
    }
}

/// A time without doubt, for tests and the virtual clock.
impl From<Timestamp> for ServiceTime {
    fn from(now: Timestamp) -> Self {
        Self { now, expiry: now, wall: now, doubt: None, is_frozen: false }
    }
}

/// Clock facts in the store at a start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ClockHistory {
    /// The service's time at the last record, or later; `None` in a new store. It is the time of the newest identifier,
    /// unless a clock that was ahead has been corrected since.
    pub reached: Option<Timestamp>,
    /// The doubt that was open when the service stopped.
    pub open: Option<u32>,
    /// The number of the next doubt.
    pub next: u32,
    /// Whether the end of a doubt is not settled yet.
    pub is_unsettled: bool,
}

/// A doubt about the wall clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Doubt {
    /// Number, stored with content that is accepted during the doubt.
    pub number: u32,
    /// The cause of the doubt.
    pub cause: Cause,
    /// The sample with which wall and monotonic clock are compared.
    first: Sample,
    /// Time on the monotonic clock since which the kernel has reported a synchronised clock.
    synchronised_since: Option<Duration>,
    /// Correction of the service's time in milliseconds. Set from the report of the doubt's end until that end is
    /// recorded.
    ended: Option<i64>,
}

/// The state of the clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct State {
    service: Duration,
    /// Gain of the service's time over the monotonic clock that is not forgotten yet, at most [`DIFFERENCE_MAX`].
    gained: Duration,
    /// The last sample.
    last: Sample,
    /// The time at which deadlines are frozen.
    frozen: Option<Duration>,
    doubt: Option<Doubt>,
    next_number: u32,
}

/// Causes of a doubtful wall clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// The clock was set forward by more than an hour.
    JumpedAhead,
    /// The clock was set forward by more than an hour in several steps.
    CreptAhead,
    /// The clock was set back by more than an hour.
    JumpedBack,
    /// The clock was more than an hour behind the newest record at startup.
    StartedBehind,
    /// The clock was more than 7 days ahead of the newest record at startup.
    StartedAhead,
    /// The clock was doubtful when the service stopped.
    StillDoubtful,
}

impl Cause {
    /// Returns the cause in words, for logs and the operator.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::JumpedAhead => "it jumped ahead by more than an hour",
            Self::CreptAhead => "it moved ahead by more than an hour in several steps",
            Self::JumpedBack => "it jumped back by more than an hour",
            Self::StartedBehind => "at startup it was more than an hour behind the newest record",
            Self::StartedAhead => "at startup it was more than 7 days ahead of the newest record",
            Self::StillDoubtful => "it was doubtful when the service stopped",
        }
    }
}

/// Reasons for the end of a doubt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resolution {
    /// The wall clock agrees with the service's time again.
    JumpUndone,
    /// The kernel has reported a synchronised clock for ten minutes.
    Synchronised,
    /// Wall and monotonic clock have agreed for 24 hours.
    Agreed,
    /// The operator accepted the wall clock.
    Accepted,
}

impl Resolution {
    /// Returns the reason in words, for logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::JumpUndone => "the jump was undone",
            Self::Synchronised => "the kernel has reported a synchronised clock for 10 minutes",
            Self::Agreed => "it has agreed with the monotonic clock for 24 hours",
            Self::Accepted => "the operator accepted it",
        }
    }
}

/// An input of the machine: a fact that has happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Input {
    /// The clocks were read.
    Read(Sample),
    /// The operator accepted the wall clock.
    Accepted(Sample),
    /// The end of the doubt is recorded.
    Recorded(Sample),
}

/// An effect that the caller carries out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// The wall clock became doubtful.
    Doubted {
        /// The doubt's number.
        number: u32,
        /// Cause.
        cause: Cause,
        /// The wall clock less the service's time, in milliseconds.
        difference_ms: i64,
    },
    /// The doubt ended. The wall clock is followed again once that is recorded.
    Ended {
        /// The doubt's number.
        number: u32,
        /// The reason for its end.
        resolution: Resolution,
        /// The service's time at the end, before it was set to the wall clock.
        until: Timestamp,
        /// Correction of the service's time, in milliseconds. Deadlines of content accepted during the doubt move by
        /// the same amount.
        offset_ms: i64,
    },
}

impl State {
    /// Creates the clock of a service that starts on a store with this `past`.
    pub fn start(past: ClockHistory, sample: Sample) -> Next<Self, Effect> {
        let reached = past.reached.map(|reached| Duration::from_millis(reached.as_millis()));
        let service = reached.unwrap_or(sample.wall);
        let next_number = past.next.max(1);
        let started = Self { service, gained: Duration::ZERO, last: sample, frozen: None, doubt: None, next_number };
        let started = if past.is_unsettled { Self { frozen: Some(service), ..started } } else { started };
        let cause = if sample.wall + DIFFERENCE_MAX < service {
            Cause::StartedBehind
        } else if sample.wall > service + STOPPED_MAX {
            Cause::StartedAhead
        } else if past.open.is_some() && sample.wall > service + DIFFERENCE_MAX {
            Cause::StillDoubtful
        } else {
            let Some(number) = past.open else {
                return Next::unchanged(Self { service: service.max(sample.wall), ..started });
            };
            return started.doubted(number, Cause::StillDoubtful, sample).state.ended(Resolution::JumpUndone);
        };
        let number = past.open.unwrap_or(started.next_number);
        started.doubted(number, cause, sample)
    }

    /// Returns the next state and its effects after `input`.
    #[must_use]
    pub fn step(self, input: Input) -> Next<Self, Effect> {
        let (Input::Read(sample) | Input::Accepted(sample) | Input::Recorded(sample)) = input;
        let passed = sample.elapsed.saturating_sub(self.last.elapsed);
        let gained = self.gained.saturating_sub(passed / GAIN_DECAY);
        let ran_on = Self { service: self.service + passed, gained, last: sample, ..self };
        match (self.doubt, input) {
            (None, _) => self.follow(ran_on, passed),
            (Some(Doubt { ended: Some(offset_ms), .. }), Input::Recorded(_)) => ran_on.taken_over(offset_ms),
            (Some(Doubt { ended: Some(_), .. }), _) | (Some(_), Input::Recorded(_)) => Next::unchanged(ran_on),
            (Some(_), Input::Accepted(_)) => ran_on.ended(Resolution::Accepted),
            (Some(doubt), Input::Read(_)) => ran_on.judge(doubt),
        }
    }

    /// Follows a trusted wall clock. `ran_on` is the state by the monotonic clock alone, after `passed`.
    fn follow(self, ran_on: Self, passed: Duration) -> Next<Self, Effect> {
        if let Some(cause) = ran_on.cause_of_doubt() {
            return ran_on.doubted(self.next_number, cause, ran_on.last);
        }
        // A wall clock that is behind catches up while this clock runs at nine tenths of the speed. So due timers still
        // fire.
        let slower = self.service + (passed - passed / SLOWER_BY);
        let service = slower.max(ran_on.last.wall);
        let gained = (ran_on.gained + service).saturating_sub(ran_on.service);
        Next::unchanged(Self { service, gained, ..ran_on })
    }

    /// Returns the reason why the last reading of the wall clock can't be followed.
    fn cause_of_doubt(&self) -> Option<Cause> {
        let wall = self.last.wall;
        if wall > self.service + DIFFERENCE_MAX {
            Some(Cause::JumpedAhead)
        } else if wall + DIFFERENCE_MAX < self.service {
            Some(Cause::JumpedBack)
        } else {
            (wall + self.gained > self.service + DIFFERENCE_MAX).then_some(Cause::CreptAhead)
        }
    }

    fn doubted(self, number: u32, cause: Cause, first: Sample) -> Next<Self, Effect> {
        let synchronised_since = first.is_synchronised.then_some(first.elapsed);
        let effect = Effect::Doubted { number, cause, difference_ms: difference_ms(first.wall, self.service) };
        let state = Self {
            doubt: Some(Doubt { number, cause, first, synchronised_since, ended: None }),
            frozen: self.frozen.or(Some(self.service)),
            next_number: self.next_number.max(number + 1),
            ..self
        };
        Next::new(state, [effect])
    }

    /// Checks whether `doubt` has ended.
    fn judge(self, doubt: Doubt) -> Next<Self, Effect> {
        let Sample { wall, elapsed, is_synchronised } = self.last;
        // The gain decays during the doubt. A clock that creeps on at that rate would start and end doubts in turn, so
        // it must no longer be ahead.
        let is_creeping = doubt.cause == Cause::CreptAhead && wall > self.service;
        if self.cause_of_doubt().is_none() && !is_creeping {
            return self.ended(Resolution::JumpUndone);
        }
        let agreed = elapsed.saturating_sub(doubt.first.elapsed);
        let doubt = if wall.abs_diff(doubt.first.wall + agreed) > AGREEMENT {
            // The wall clock was set again.
            Doubt { first: self.last, synchronised_since: is_synchronised.then_some(elapsed), ..doubt }
        } else {
            let since = doubt.synchronised_since.or(Some(elapsed)).filter(|_| is_synchronised);
            Doubt { synchronised_since: since, ..doubt }
        };
        if doubt.synchronised_since.is_some_and(|since| elapsed.saturating_sub(since) >= SYNCHRONISED_FOR) {
            return self.ended(Resolution::Synchronised);
        }
        if elapsed.saturating_sub(doubt.first.elapsed) >= AGREED_FOR {
            return self.ended(Resolution::Agreed);
        }
        Next::unchanged(Self { doubt: Some(doubt), ..self })
    }

    fn ended(self, resolution: Resolution) -> Next<Self, Effect> {
        let Some(doubt) = self.doubt else { return Next::unchanged(self) };
        let (offset_ms, gained) = match resolution {
            // The difference is at most an hour and is followed as usual: content kept its distance from its deadline.
            Resolution::JumpUndone => (0, self.gained),
            // The wall clock is confirmed, so gains are counted from it.
            Resolution::Synchronised | Resolution::Agreed | Resolution::Accepted => {
                (difference_ms(self.last.wall, self.service), Duration::ZERO)
            }
        };
        let effect = Effect::Ended { number: doubt.number, resolution, until: moment(self.service), offset_ms };
        Next::new(Self { gained, doubt: Some(Doubt { ended: Some(offset_ms), ..doubt }), ..self }, [effect])
    }

    /// Sets the service's time by the recorded correction. If the wall clock differs now, it is judged again.
    fn taken_over(self, offset_ms: i64) -> Next<Self, Effect> {
        let distance = Duration::from_millis(offset_ms.unsigned_abs());
        let service = if offset_ms < 0 { self.service.saturating_sub(distance) } else { self.service + distance };
        let frozen = self.frozen.map(|frozen| frozen.min(service));
        let set = Self { service, frozen, doubt: None, ..self };
        set.follow(set, Duration::ZERO)
    }

    /// Marks the end of the last doubt as settled: deadlines follow the service's time again. A doubt that began
    /// meanwhile continues.
    #[must_use]
    pub const fn settled(self) -> Self {
        match self.doubt {
            None => Self { frozen: None, ..self },
            Some(_) => self,
        }
    }

    /// Returns the time at the last sample.
    pub fn time(&self) -> ServiceTime {
        let expiry = self.frozen.map_or(self.service, |frozen| frozen.min(self.service));
        let doubt = self.doubt.map(|doubt| doubt.number);
        let (now, wall) = (moment(self.service), moment(self.last.wall));
        ServiceTime { now, expiry: moment(expiry), wall, doubt, is_frozen: self.frozen.is_some() }
    }

    /// Returns the doubt about the wall clock, if there is one.
    pub const fn doubt(&self) -> Option<&Doubt> {
        self.doubt.as_ref()
    }
}

fn moment(since_epoch: Duration) -> Timestamp {
    Timestamp::from_millis(u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX))
}

fn difference_ms(wall: Duration, service: Duration) -> i64 {
    let difference = i64::try_from(wall.abs_diff(service).as_millis()).unwrap_or(i64::MAX);
    if wall < service { -difference } else { difference }
}

#[cfg(test)]
mod tests;
