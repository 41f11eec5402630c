//! Notifications to systemd (sd_notify(3)): the process is ready, alive, or stopping. Without systemd, nothing is sent.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sd_notify::NotifyState;
use tokio::task::JoinHandle;

use crate::store::Store;
use crate::store::health::Progress;
use crate::store::migrate::Migration;
use crate::store::open::StartWork;

/// Reports that connections are accepted.
pub(super) fn ready() {
    notify_systemd(&[NotifyState::Ready]);
}

/// Reports that the configuration is being reloaded; [`ready`] reports the end.
pub(super) fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => notify_systemd(&[NotifyState::Reloading, now]),
        Err(error) => tracing::warn!(%error, "could not notify systemd; it may restart the service"),
    }
}

/// Reports that the process is stopping, which may take some time.
pub(super) fn stopping() {
    notify_systemd(&[NotifyState::Stopping]);
}

/// Time that systemd waits for the next progress report of a start.
const WORK_WAIT: Duration = Duration::from_secs(120);
/// Interval at which the log shows that progress.
const WORK_LOG: Duration = Duration::from_secs(5);

/// Extends the start timeout, and shows this status.
fn extend_start(status: &str) {
    let wait = u32::try_from(WORK_WAIT.as_micros()).unwrap_or(u32::MAX);
    notify_systemd(&[NotifyState::ExtendTimeoutUsec(wait), NotifyState::Status(status)]);
}

/// Reports slow work of a start: to systemd, which then extends the start timeout, and to the log.
pub(super) fn starting() -> impl Fn(StartWork) {
    let logged = Cell::new(Instant::now());
    move |work| {
        extend_start(match work {
            StartWork::Verifying => "verifying the database",
            StartWork::Repairing => "repairing the database",
            StartWork::Migrating(_) => "migrating the store",
            StartWork::Counting(_) => "counting rows of the store",
        });
        if logged.get().elapsed() < WORK_LOG {
            return;
        }
        logged.set(Instant::now());
        match work {
            StartWork::Verifying => tracing::info!("verifying the database"),
            StartWork::Repairing => tracing::info!("repairing the database"),
            StartWork::Migrating(Migration { rows, of }) => {
                tracing::info!(percent = rows * 100 / of.max(1), "migrating the store");
            }
            StartWork::Counting(rows) => tracing::info!(rows, "counting rows of the store"),
        }
    }
}

/// Extends the start timeout of systemd until it is dropped.
pub(super) struct SlowStart(JoinHandle<()>);

impl SlowStart {
    /// Begins to report a start whose duration is unknown, with this status.
    pub(super) fn begin(status: &'static str) -> Self {
        Self(tokio::spawn(async move {
            let mut turns = tokio::time::interval(WORK_WAIT / 4);
            loop {
                turns.tick().await;
                extend_start(status);
            }
        }))
    }
}

impl Drop for SlowStart {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Pings the supervisor's watchdog every half period, if the supervisor has one. It pings as long as this runtime runs
/// tasks, the store can be read, and a write could succeed. Ends when the handle is aborted.
pub(super) fn keep_alive(store: &Arc<Store>) -> Option<JoinHandle<()>> {
    let period = sd_notify::watchdog_enabled()?;
    let store = Arc::clone(store);
    Some(tokio::spawn(async move {
        let mut turns = tokio::time::interval(period / 2);
        let mut progress = Progress::default();
        loop {
            turns.tick().await;
            // A store that has failed ends the process. One that hangs, for example in a sync of a failing disk, is
            // ended by the supervisor.
            let read = Arc::clone(&store);
            let is_read = tokio::task::spawn_blocking(move || read.snapshot().is_ok()).await.unwrap_or(false);
            if store.health().is_writing(&mut progress) && is_read {
                notify_systemd(&[NotifyState::Watchdog]);
            }
        }
    }))
}

fn notify_systemd(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "could not notify systemd; it may restart the service");
    }
}
