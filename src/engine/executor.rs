//! Execution of blocking and CPU-bound work: on threads in the service, on the caller's own thread in a simulation.
//!
//! Other files of the engine start no threads for work. A simulation runs the whole service on one thread, so its seed
//! determines the order of all work.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

/// The place where blocking work runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Executor {
    /// Threads outside the async runtime.
    #[default]
    Threads,
    /// The caller's thread, before the caller continues.
    Inline,
}

/// Error: the work panicked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the work panicked")]
pub struct WorkPanicked;

impl Executor {
    /// Runs `work` and returns its result. The work runs to its end even if the caller is cancelled.
    ///
    /// # Errors
    /// [`WorkPanicked`].
    pub async fn run<T: Send + 'static>(self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, WorkPanicked> {
        match self {
            Self::Threads => tokio::task::spawn_blocking(work).await.map_err(|_| WorkPanicked),
            Self::Inline => {
                // Other tasks get a turn first, as they would while a thread starts.
                tokio::task::yield_now().await;
                catch_unwind(AssertUnwindSafe(work)).map_err(|_| WorkPanicked)
            }
        }
    }

    /// Starts a thread that serves a queue of work until the queue is closed. Returns whether the thread exists. In
    /// inline mode there is no thread, and the caller runs the work itself.
    ///
    /// # Errors
    /// The thread could not be started.
    pub(super) fn spawn_worker(self, name: String, serve: impl FnOnce() + Send + 'static) -> io::Result<HasThread> {
        match self {
            Self::Threads => thread::Builder::new().name(name).spawn(serve).map(|_| HasThread::Yes),
            Self::Inline => Ok(HasThread::No),
        }
    }
}

/// Whether a thread serves the queue of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HasThread {
    /// A thread serves the queue.
    Yes,
    /// The caller runs the work itself.
    No,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn inline_work_runs_on_the_callers_thread_and_returns_a_panic_as_an_error() {
        let here = thread::current().id();
        assert_eq!(Executor::Inline.run(move || thread::current().id() == here).await, Ok(true));
        assert_eq!(Executor::Threads.run(move || thread::current().id() == here).await, Ok(false));
        for executor in [Executor::Inline, Executor::Threads] {
            assert_eq!(executor.run(|| panic!("a defect")).await, Err::<(), _>(WorkPanicked));
        }
    }
}
