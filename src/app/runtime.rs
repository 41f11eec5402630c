//! The async runtime, the limit of open files, and the allocator's settings: small pages, and freed memory that is
//! returned to the system.

use std::hint::black_box;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::runtime::{Builder, Runtime};

use super::cli_error::CliError;
use super::exit::Exit;

/// The nice value of background work, which gets a tenth of a processor that others use fully. With the lowest
/// priority, making a key took minutes on a busy machine.
#[cfg(target_os = "linux")]
const BACKGROUND_NICENESS: i32 = 10;

/// Maximum wait for blocking work when the service has ended.
const LAST_WORK: Duration = Duration::from_secs(1);
/// Time between two returns of freed memory.
const TRIM_INTERVAL: Duration = Duration::from_secs(5);
/// Size of a block that the allocator takes directly from its arenas.
const TRIM_BYTES: usize = 20 << 20;

/// Runs `work` on a new runtime. Work that still blocks a thread afterwards is abandoned after [`LAST_WORK`], so that
/// it never keeps the process from ending.
///
/// # Errors
/// Errors of [`build`] and of `work`.
pub(super) fn run<T>(work: impl Future<Output = Result<T, CliError>>) -> Result<T, CliError> {
    let runtime = build()?;
    let done = runtime.block_on(work);
    runtime.shutdown_timeout(LAST_WORK);
    done
}

/// Builds the runtime with a worker for each processor. First raises the limit of open files, and switches to small
/// pages.
///
/// # Errors
/// The system can't create threads.
pub(super) fn build() -> Result<Runtime, CliError> {
    raise_open_files();
    keep_pages_small();
    let runtime = Builder::new_multi_thread().enable_all().thread_name("postrider").build().map_err(|error| {
        CliError::new(Exit::Failed, "cannot start", error.to_string(), "Raise the limit on threads.")
    })?;
    runtime.spawn(return_freed_memory());
    Ok(runtime)
}

/// Returns freed memory to the system every few seconds. mimalloc does so only when a large block is allocated or
/// freed, which may be hours after a burst of large messages: 520 MB stayed resident. A block that is never written to
/// takes no memory itself.
async fn return_freed_memory() {
    let mut ticks = tokio::time::interval(TRIM_INTERVAL);
    loop {
        ticks.tick().await;
        let mut block = Vec::<u8>::new();
        // If this allocation fails, there is no freed memory to return.
        drop(block.try_reserve_exact(TRIM_BYTES));
        drop(black_box(block));
    }
}

/// Prevents other processes of the same user from reading this process's memory, which contains the master key, and
/// crashes from writing it to a file. `dev` has no secrets and stays open to debuggers.
pub(super) fn forbid_dumps() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable) {
        tracing::warn!(%error, "could not disable core dumps; a crash may write secrets to disk");
    }
}

/// Raises the limit of open files. Every connection is an open file, and the usual soft limit of 1,024 is below the
/// number of connections of all listeners, without outgoing mail and bodies.
fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }) {
        tracing::warn!(%error, "could not raise the open file limit from {:?}; connections may fail", limit.current);
    }
}

/// Disables large pages. The allocator spreads small blocks widely: with pages of 2 MiB, the default on many systems, a
/// service that needs 50 MB would take 300.
fn keep_pages_small() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::thread::disable_transparent_huge_pages(true) {
        tracing::debug!(%error, "could not set the page size; the system's default is used");
    }
}

/// Gives the calling thread a low priority, on systems with a priority for each thread.
pub(super) fn lower_priority() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::setpriority_process(None, BACKGROUND_NICENESS) {
        tracing::warn!(%error, "could not lower the priority of a thread; its work competes with sending");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn pages_stay_small() {
        let _runtime = build().ok();
        assert!(rustix::thread::transparent_huge_pages_are_disabled().unwrap());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn other_processes_cannot_read_memory_after_forbid_dumps() {
        forbid_dumps();
        let behavior = rustix::process::dumpable_behavior().unwrap();
        assert_eq!(behavior, rustix::process::DumpableBehavior::NotDumpable);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_thread_lowers_only_its_own_priority() {
        let priority = || rustix::process::getpriority_process(None).unwrap();
        let before = priority();
        let lowered = std::thread::spawn(move || {
            lower_priority();
            priority()
        });
        assert_eq!((lowered.join().unwrap(), priority()), (BACKGROUND_NICENESS, before));
    }

    #[test]
    fn the_open_file_limit_is_raised_to_the_system_s_maximum() {
        let _runtime = build().ok();
        let limit = getrlimit(Resource::Nofile);
        assert_eq!(limit.current, limit.maximum);
    }
}
