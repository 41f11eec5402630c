//! `postrider replica stranded`: lists the messages and outcomes that only a deposed directory has. No service may run
//! there.

use std::sync::Arc;

use super::cli_error::CliError;
use super::config::Config;
use super::exit::Exit;
use super::lock::DirectoryLock;
use super::replication::{cannot_join, world};
use super::runtime;
use crate::engine::ports::Clock;
use crate::engine::replica::stranded;
use crate::net::clock::SystemClock;
use crate::store::Store;
use crate::store::replica::stranded::Stranded;

const PURPOSE: &str = "cannot list stranded records";

/// Returns the messages in the data directory of `config` that the log in its bucket lacks.
///
/// # Errors
/// No `url`, no store, a running service, or the bucket could not be read.
pub(super) fn run(config: &Config) -> Result<Stranded, CliError> {
    let directory = &config.data_dir;
    if !Store::exists(directory) {
        let why = format!("there is no store in {}", directory.display());
        let remedy = "Name the directory of the deposed machine with --data-dir.";
        return Err(CliError::new(Exit::NotFound, PURPOSE, why, remedy));
    }
    let _lock = DirectoryLock::take(directory)?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let Some(world) = world(config, directory, clock)? else {
        let remedy = "Give the configuration of the service with --config FILE.";
        return Err(CliError::new(Exit::Usage, PURPOSE, "replica.url is empty, so nothing is replicated", remedy));
    };
    runtime::build()?.block_on(stranded(&world.replica, directory)).map_err(|error| cannot_join(&error))
}
