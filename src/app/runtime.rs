//! The async runtime that everything runs on.

use tokio::runtime::{Builder, Runtime};

use super::exit::Exit;
use super::trouble::Trouble;

/// Builds the runtime: a worker for each processor.
///
/// # Errors
/// The system gives no threads.
pub(super) fn build() -> Result<Runtime, Trouble> {
    Builder::new_multi_thread()
        .enable_all()
        .thread_name("postrider")
        .build()
        .map_err(|error| Trouble::new(Exit::Failed, "cannot start", error.to_string(), "Raise the limit on threads."))
}
