//! The first step of a start: a locked data directory, and its store.

use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use super::cli_error::CliError;
use super::config::Config;
use super::daemon::broken;
use super::lock::DirectoryLock;
use super::replication::Claim;
use super::resolver::resolver;
use super::runtime::lower_priority;
use super::settings::{self, Mode};
use super::store_open_report::{self, Start};
use super::supervisor;
use crate::base::entropy::Entropy;
use crate::engine::Engine;
use crate::engine::ports::Clock;
use crate::net::entropy::OsEntropy;
use crate::net::network_guard::Guard;
use crate::net::tls;
use crate::store::Store;
use crate::store::open::{StartOptions, StoreEnvironment, VERIFIED_AT_START};

/// An open store in a locked directory.
pub struct LockedStore {
    /// The store.
    pub store: Arc<Store>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) entropy: Arc<dyn Entropy>,
    pub(super) lock: DirectoryLock,
}

impl LockedStore {
    /// Opens the store of `directory` with `clock`.
    ///
    /// # Errors
    /// The error for the operator.
    pub fn open(directory: &Path, lock: DirectoryLock, clock: Arc<dyn Clock>, start: Start) -> Result<Self, CliError> {
        Self::open_claimed(directory, lock, clock, start, None)
    }

    /// Opens a store whose log was claimed.
    ///
    /// # Errors
    /// The error for the operator.
    pub(super) fn open_claimed(
        directory: &Path,
        lock: DirectoryLock,
        clock: Arc<dyn Clock>,
        start: Start,
        claim: Option<&Claim>,
    ) -> Result<Self, CliError> {
        // This runs in parallel with opening the store, which waits for the disk.
        tls::gather_entropy();
        let entropy: Arc<dyn Entropy> = Arc::new(OsEntropy);
        let time = Arc::clone(&clock);
        let surroundings = StoreEnvironment { now: Arc::new(move || time.time()), entropy: Arc::clone(&entropy) };
        let time = Arc::clone(&clock);
        let monotonic = Arc::new(move || time.monotonic());
        let (on_journal_damage, progress) = (start.on_journal_damage(), Rc::new(supervisor::starting()));
        let replica = claim.map(Claim::start);
        let options = StartOptions {
            on_journal_damage,
            monotonic,
            progress,
            replica,
            verified_bytes_max: VERIFIED_AT_START,
            lower_priority,
            ..StartOptions::default()
        };
        let store = Store::open_with(directory, surroundings, options)
            .map_err(|error| store_open_report::cannot_open(directory, &error, start))?;
        clock.start(store.clock_past().map_err(|error| broken("the clock", &error))?);
        Ok(Self { store: Arc::new(store), clock, entropy, lock })
    }

    /// Closes the store, and returns the lock of its directory.
    pub(super) fn close(self) -> DirectoryLock {
        self.store.close();
        self.lock
    }

    /// Creates only the engine, for a command that works on the store while no daemon runs.
    ///
    /// # Errors
    /// The error for the operator.
    pub(super) fn engine(&self, config: &Config) -> Result<Arc<Engine>, CliError> {
        let guard = Arc::new(Guard::new(config.network.allow.clone()));
        let resolver = resolver(config, &guard, &self.clock, &self.entropy, false)?;
        let (store, clock, entropy) = (Arc::clone(&self.store), Arc::clone(&self.clock), Arc::clone(&self.entropy));
        let settings = settings::engine(config, &self.store, Mode::Dev)?;
        Ok(Arc::new(Engine::new(store, clock, entropy, resolver, settings)))
    }
}
