//! The clocks of a run. Elapsed time is tokio's paused time, continued over restarts. Wall time is elapsed time plus an
//! adjustable offset. Time passes only while every task waits.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::base::time::Timestamp;
use crate::engine::ports::{BoxFuture, Clock};
use crate::engine::service_clock::ServiceClock;
use crate::machine::service_clock::{ClockHistory, Doubt, Effect, Sample, ServiceTime};

/// Wall time at the start of every run: 2023-11-14T22:13:20Z.
const START: Duration = Duration::from_secs(1_700_000_000);
/// Maximum time between two comparisons of the clocks.
const COMPARE: Duration = Duration::from_secs(300);
/// Number of reads of one and the same time after which the service counts as stuck: it repeats work, so that no task
/// waits and no time passes. The everyday runs stay below it.
const READS_MAX: u32 = 200_000;
/// Wait until a time in the far future.
const FAR: Duration = Duration::from_secs(30 * 24 * 3600);

/// The machine's clocks; clones are the same clocks.
#[derive(Clone)]
pub(super) struct MachineClocks(Arc<Inner>);

struct Inner {
    state: Mutex<State>,
    set: Notify,
    stuck: Notify,
}

struct State {
    /// Elapsed time at the start of the current process.
    before: Duration,
    started: Option<Instant>,
    /// Offset of the wall clock, in milliseconds.
    set_by: i64,
    /// The time that was read last.
    last_read: Duration,
    /// Number of reads of that time after the first one.
    reads: u32,
}

impl MachineClocks {
    pub(super) fn new() -> Self {
        let state = State { before: Duration::ZERO, started: None, set_by: 0, last_read: Duration::ZERO, reads: 0 };
        Self(Arc::new(Inner { state: Mutex::new(state), set: Notify::new(), stuck: Notify::new() }))
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a process on the caller's runtime.
    pub(super) fn start(&self) {
        self.state().started = Some(Instant::now());
    }

    /// Ends the process, whose runtime must still exist.
    pub(super) fn stop(&self) {
        let elapsed = self.elapsed();
        let mut state = self.state();
        state.before = elapsed;
        state.started = None;
    }

    /// Advances time by `pause` without a process.
    pub(super) fn pass(&self, pause: Duration) {
        self.state().before += pause;
    }

    /// Returns the time since the start of the run.
    pub(super) fn elapsed(&self) -> Duration {
        let mut state = self.state();
        let elapsed = state.before + state.started.map_or(Duration::ZERO, |started| started.elapsed());
        let before = std::mem::replace(&mut state.last_read, elapsed);
        state.reads = if elapsed == before { state.reads + 1 } else { 0 };
        if state.reads == READS_MAX {
            self.0.stuck.notify_one();
        }
        elapsed
    }

    /// Resolves once the service has read one and the same time [`READS_MAX`] times.
    pub(super) async fn is_stuck(&self) {
        self.0.stuck.notified().await;
    }

    /// Changes the wall clock by this number of milliseconds.
    pub(super) fn set_by(&self, milliseconds: i64) {
        self.state().set_by += milliseconds;
        self.0.set.notify_waiters();
    }

    fn sample(&self) -> Sample {
        let elapsed = self.elapsed();
        let set_by = self.state().set_by;
        let wall = START + elapsed;
        let by = Duration::from_millis(set_by.unsigned_abs());
        let wall = if set_by < 0 { wall.saturating_sub(by) } else { wall + by };
        Sample { wall, elapsed, is_synchronised: true }
    }
}

/// The machine's own time, which a service does not adjust.
impl Clock for MachineClocks {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(u64::try_from(self.sample().wall.as_millis()).unwrap_or(u64::MAX))
    }

    fn monotonic(&self) -> Duration {
        self.elapsed()
    }
}

/// The service's clock over the machine's clocks.
pub(super) struct SimulatedClock {
    machine: MachineClocks,
    service: ServiceClock,
}

impl SimulatedClock {
    pub(super) fn new(machine: &MachineClocks) -> Self {
        let read = machine.clone();
        Self { machine: machine.clone(), service: ServiceClock::new(Box::new(move || read.sample())) }
    }

    async fn wait(&self, at_most: Duration) {
        tokio::select! {
            biased;
            () = self.machine.0.set.notified() => {}
            () = tokio::time::sleep(at_most) => {}
        }
    }
}

impl Clock for SimulatedClock {
    fn now(&self) -> Timestamp {
        self.service.now()
    }

    fn time(&self) -> ServiceTime {
        self.service.time()
    }

    fn monotonic(&self) -> Duration {
        self.service.monotonic()
    }

    fn sleep_until(&self, at: Timestamp) -> BoxFuture<'_, ()> {
        Box::pin(self.wait(at.since(self.now()).min(FAR)))
    }

    fn next_comparison(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.wait(COMPARE))
    }

    fn start(&self, past: ClockHistory) {
        self.service.start(past);
    }

    fn accept(&self) -> bool {
        self.service.accept()
    }

    fn doubt(&self) -> Option<Doubt> {
        self.service.doubt()
    }

    fn changes(&self) -> Vec<Effect> {
        self.service.changes()
    }

    fn recorded(&self) {
        self.service.recorded();
    }

    fn settle(&self) {
        self.service.settle();
    }
}
