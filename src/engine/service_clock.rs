//! The clock of a running service: [`machine::service_clock`](crate::machine::service_clock) with readings of the
//! machine's clocks. Floor `net` supplies the readings, tests script them.
//!
//! Every call reads the clocks first, so a jump that makes the wall clock doubtful is never visible to a caller.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::ports::Clock;
use crate::base::time::Timestamp;
use crate::machine::service_clock::{ClockHistory, Doubt, Effect, Input, Sample, ServiceTime, State};

/// Reads the machine's clocks.
pub type ReadClocks = Box<dyn Fn() -> Sample + Send + Sync>;

/// The service's clock.
pub struct ServiceClock {
    read: ReadClocks,
    first: Duration,
    inner: Mutex<Inner>,
}

struct Inner {
    /// `None` until [`Clock::start`]. The wall clock is trusted while the store opens.
    state: Option<State>,
    changes: Vec<Effect>,
}

impl ServiceClock {
    /// Creates the clock over these readings.
    pub fn new(read: ReadClocks) -> Self {
        let first = read().elapsed;
        Self { read, first, inner: Mutex::new(Inner { state: None, changes: Vec::new() }) }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Advances the state with a reading taken under its lock, because readings must be processed in order.
    fn step(&self, input: impl FnOnce(Sample) -> Input) -> ServiceTime {
        let mut inner = self.inner();
        let sample = (self.read)();
        let Some(state) = inner.state else {
            return Timestamp::from_millis(u64::try_from(sample.wall.as_millis()).unwrap_or(u64::MAX)).into();
        };
        let next = state.step(input(sample));
        inner.state = Some(next.state);
        inner.changes.extend(next.effects);
        next.state.time()
    }
}

impl Clock for ServiceClock {
    fn now(&self) -> Timestamp {
        self.time().now
    }

    fn time(&self) -> ServiceTime {
        self.step(Input::Read)
    }

    fn monotonic(&self) -> Duration {
        (self.read)().elapsed.saturating_sub(self.first)
    }

    fn start(&self, past: ClockHistory) {
        let mut inner = self.inner();
        let next = State::start(past, (self.read)());
        inner.state = Some(next.state);
        inner.changes.extend(next.effects);
    }

    fn accept(&self) -> bool {
        let was_doubtful = self.doubt().is_some();
        self.step(Input::Accepted);
        was_doubtful
    }

    fn doubt(&self) -> Option<Doubt> {
        self.time();
        self.inner().state.as_ref().and_then(State::doubt).copied()
    }

    fn recorded(&self) {
        self.step(Input::Recorded);
    }

    fn changes(&self) -> Vec<Effect> {
        std::mem::take(&mut self.inner().changes)
    }

    fn settle(&self) {
        let mut inner = self.inner();
        // Earlier changes are settled first.
        if inner.changes.is_empty() {
            inner.state = inner.state.map(State::settled);
        }
    }
}
