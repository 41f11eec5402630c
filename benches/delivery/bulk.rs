//! A store written in bulk, through its public interface and while no server runs.

use std::path::Path;
use std::sync::Arc;

use postrider::base::time::Timestamp;
use postrider::engine::ports::Clock as _;
use postrider::net::clock::SystemClock;
use postrider::net::entropy::OsEntropy;
use postrider::store::Store;
use postrider::store::open::StoreEnvironment;

use crate::Outcome;

/// Opens the store of a directory.
pub(crate) fn open(directory: &Path) -> Outcome<Store> {
    Ok(Store::open(directory, StoreEnvironment { now: Arc::new(|| now().into()), entropy: Arc::new(OsEntropy) })?)
}

/// Blocks until everything is written. The file system then has no pending writes, which would slow the measured
/// server.
pub(crate) fn close(store: &Store, directory: &Path) -> Outcome<()> {
    store.close();
    Ok(rustix::fs::syncfs(std::fs::File::open(directory)?)?)
}

/// Returns the current time.
pub(crate) fn now() -> Timestamp {
    SystemClock::new().now()
}
