//! Verification of a large database while the service runs, so the start does not wait for it.
//!
//! A snapshot pins its pages and those of later commits: redb writes to none of them while it lives. So a view of the
//! file with the header of a durable commit after the snapshot can be verified like the database of a stopped service.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redb::{Database, ReadTransaction, ReadableDatabase as _};

use super::verifying::{Unverified, request, verify_view};
use super::{FILE, OpenError};
use crate::store::disk::{Disk, OpenMode};
use crate::store::error::StoreError;
use crate::store::journal;
use crate::store::overlay::Overlay;

/// The pages of a durable commit.
pub(in crate::store) struct PinnedPages {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    view: Overlay,
    pin: ReadTransaction,
    is_stopped: Arc<AtomicBool>,
}

impl PinnedPages {
    /// Pins the pages if the database has more than `bytes_max`. No other commit may be made meanwhile. `is_stopped`
    /// ends their verification early.
    pub(super) fn of_large(
        database: &Database,
        disk: &Arc<dyn Disk>,
        directory: &Path,
        bytes_max: u64,
        is_stopped: Arc<AtomicBool>,
    ) -> Result<Option<Self>, OpenError> {
        let path = directory.join(FILE);
        let io = |error| OpenError::Io { what: format!("reading {}", path.display()), error };
        let file = disk.open(&path, OpenMode::Existing).map_err(io)?;
        if bytes_max == 0 || file.length().map_err(io)? <= bytes_max {
            return Ok(None);
        }
        // The snapshot is taken first: after a durable commit, redb makes another one and may free pages of the earlier
        // one.
        let pin = database.begin_read().map_err(StoreError::from)?;
        journal::commit_durably(database.begin_write().map_err(StoreError::from)?)?;
        let view = Overlay::beside_service(file, Arc::clone(&is_stopped)).map_err(io)?;
        Ok(Some(Self { disk: Arc::clone(disk), directory: directory.to_owned(), view, pin, is_stopped }))
    }

    /// Verifies the pages. After damage, the next start verifies them first.
    ///
    /// # Errors
    /// [`StoreError::Corrupted`].
    pub(in crate::store) fn verify(self) -> Result<(), StoreError> {
        let verified = verify_view(self.view);
        drop(self.pin);
        match verified {
            Ok(()) => tracing::info!("verified all pages of the database"),
            Err(_) if self.is_stopped.load(Ordering::Acquire) => {}
            Err(Unverified::Unreadable(error)) => {
                tracing::error!(error, "could not verify the pages of the database; stop the service and run check");
            }
            Err(Unverified::Damaged(fault)) => {
                if let Err(error) = request(&*self.disk, &self.directory) {
                    tracing::error!(%error, "could not request a verification; run check before the next start");
                }
                return Err(StoreError::Corrupted(format!("{fault}; the next start verifies {FILE} first")));
            }
        }
        Ok(())
    }
}
