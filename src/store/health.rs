//! Whether the store can still be trusted. An I/O error of the database, a failed fsync or a panic of a store thread
//! ends the process: the failure is logged once, every waiting caller gets it, nothing more is sent, and the daemon
//! exits.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

use super::error::StoreError;
use super::failpoint::Point;
#[cfg(test)]
use super::failpoint::Tripwire;

/// Health of the store, shared by its threads, the workers that send, and the daemon.
#[derive(Default)]
pub struct Health {
    failure: OnceLock<StoreError>,
    failed: Notify,
    /// Work of the writer thread.
    pub(super) writer: Turns,
    /// Work of the appender thread.
    pub(super) appender: Turns,
    #[cfg(test)]
    pub(super) tripwire: Tripwire,
}

impl Health {
    /// Latches a fatal failure and returns it for the callers.
    pub(super) fn fail(&self, error: &StoreError) -> StoreError {
        if self.failure.set(error.clone()).is_ok() {
            tracing::error!(%error, "store failed; exiting so that the supervisor restarts the service");
        }
        self.failed.notify_waiters();
        error.clone()
    }

    /// Runs a piece of a thread's work. An error or a panic is latched before anyone can see it.
    ///
    /// # Errors
    /// Errors of `work`, and its panic.
    pub(super) fn watch<T>(&self, who: &str, work: impl FnOnce() -> Result<T, StoreError>) -> Result<T, StoreError> {
        // The store is not used after a panic, so the state of its fields does not matter.
        let result = catch_unwind(AssertUnwindSafe(work));
        result
            .unwrap_or_else(|_| Err(StoreError::Database(format!("the {who} panicked"))))
            .map_err(|error| self.fail(&error))
    }

    /// Returns the failure, if there was one.
    pub fn failure(&self) -> Option<&StoreError> {
        self.failure.get()
    }

    /// Checks the store right before data leaves the process. After a failure the outcome could not be recorded, and
    /// the same data would be sent again.
    ///
    /// # Errors
    /// The failure, if there was one.
    pub fn check(&self) -> Result<(), StoreError> {
        self.failure().map_or(Ok(()), |failure| Err(failure.clone()))
    }

    /// Resolves when the store has failed.
    pub async fn failed(&self) -> StoreError {
        loop {
            let failed = self.failed.notified();
            if let Some(error) = self.failure.get() {
                return error.clone();
            }
            failed.await;
        }
    }

    /// Returns whether a write could succeed: the store has not failed, and each thread is idle or has finished work
    /// since the last call with the same `seen`.
    pub fn is_writing(&self, seen: &mut Progress) -> bool {
        let writer = self.writer.advances(&mut seen.writer);
        let appender = self.appender.advances(&mut seen.appender);
        self.failure().is_none() && writer && appender
    }

    /// Panics if a test planned it; otherwise does nothing.
    #[cfg_attr(not(test), expect(clippy::unused_self, reason = "only tests panic here"))]
    pub(super) fn pass(&self, point: Point) {
        #[cfg(test)]
        self.tripwire.pass(point);
        #[cfg(not(test))]
        let _ = point;
    }
}

/// Amount of work that each thread had finished at the last check.
#[derive(Debug, Default)]
pub struct Progress {
    writer: u64,
    appender: u64,
}

/// Work of one thread: how many pieces it began and how many it finished.
#[derive(Default)]
pub(super) struct Turns {
    begun: AtomicU64,
    ended: AtomicU64,
}

/// A piece of work, which ends when it is dropped.
pub(super) struct WorkGuard<'a>(&'a Turns);

impl Turns {
    pub(super) fn begin(&self) -> WorkGuard<'_> {
        self.begun.fetch_add(1, Ordering::AcqRel);
        WorkGuard(self)
    }

    /// Marks the thread as idle until the pause is dropped: it waits for something other than the disk.
    pub(super) fn pause(&self) -> Pause<'_> {
        self.ended.fetch_add(1, Ordering::AcqRel);
        Pause(self)
    }

    fn advances(&self, seen: &mut u64) -> bool {
        let ended = self.ended.load(Ordering::Acquire);
        let before = std::mem::replace(seen, ended);
        ended != before || self.begun.load(Ordering::Acquire) == ended
    }
}

/// An interruption of a piece of work.
pub(super) struct Pause<'a>(&'a Turns);

impl Drop for Pause<'_> {
    fn drop(&mut self) {
        self.0.begun.fetch_add(1, Ordering::AcqRel);
    }
}

impl Drop for WorkGuard<'_> {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_hangs_is_not_writing_and_an_idle_or_advancing_one_is() {
        let (health, mut seen) = (Health::default(), Progress::default());
        assert!(health.is_writing(&mut seen), "idle");
        let hanging = health.writer.begin();
        health.appender.begin();
        assert!(!health.is_writing(&mut seen));
        drop(hanging);
        let next = health.writer.begin();
        assert!(health.is_writing(&mut seen), "it has finished work since");
        assert!(!health.is_writing(&mut seen));
        drop(next);
        assert!(health.is_writing(&mut seen));
        let waiting = health.writer.begin();
        let pause = health.writer.pause();
        assert!(health.is_writing(&mut seen) && health.is_writing(&mut seen), "it waits for something else");
        drop(pause);
        assert!(!health.is_writing(&mut seen), "its work continues, and hangs");
        drop(waiting);
        assert!(health.is_writing(&mut seen));
        let hanging = health.appender.begin();
        assert!(!health.is_writing(&mut seen));
        drop(hanging);
        health.fail(&StoreError::Closed);
        assert!(!health.is_writing(&mut seen), "a failed store does not write");
    }

    #[test]
    fn errors_and_panics_of_watched_work_are_latched_before_they_are_returned() {
        let health = Health::default();
        assert_eq!(health.watch("writer", || Ok(1)).unwrap(), 1);
        assert!(health.check().is_ok());
        assert!(health.watch("writer", || -> Result<(), _> { panic!("a damaged page") }).is_err());
        assert!(matches!(health.check(), Err(StoreError::Database(what)) if what == "the writer panicked"));
        let health = Health::default();
        assert!(health.watch("writer", || -> Result<(), _> { Err(StoreError::Closed) }).is_err());
        assert!(health.failure().is_some());
    }
}
