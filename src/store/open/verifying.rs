//! Verification of the database's pages at a start.
//!
//! redb reads a page without its checksum. A page that the disk replaced by its own older copy therefore looks whole,
//! and its newer rows look absent: a suppressed address would get mail again. So a start verifies the checksum of every
//! page, as `check` does, if that takes well under a second. A larger database is verified by `check` alone.

use std::path::Path;
use std::sync::Arc;

use redb::{Builder, Database};

use super::{FILE, OpenError};
use crate::store::damage::{OpenDatabase, guarded};
use crate::store::disk::{Disk, Opening};
use crate::store::overlay::Overlay;

/// Memory for pages while they are verified.
const CACHE_BYTES: usize = 8 << 20;

/// Verifies the database of `directory`, if it has at most `bytes_max`. Nothing else may have it open.
pub(super) fn verify(disk: &Arc<dyn Disk>, directory: &Path, bytes_max: u64) -> Result<(), OpenError> {
    let path = directory.join(FILE);
    let damaged = |fault: String| OpenError::Damaged { file: path.clone(), fault };
    if !disk.exists(&path) {
        return Ok(());
    }
    let io = |error| OpenError::Io { what: format!("reading {}", path.display()), error };
    let file = disk.open(&path, Opening::Existing).map_err(io)?;
    let length = file.length().map_err(io)?;
    if length == 0 || length > bytes_max {
        return Ok(());
    }
    let view = Overlay::over(file).map_err(io)?;
    let is_sound = guarded(|| {
        let database: Database = Builder::new().set_cache_size(CACHE_BYTES).create_with_backend(view)?;
        OpenDatabase::new(database).check_integrity()
    });
    match is_sound {
        Ok(Ok(true)) => Ok(()),
        Ok(Ok(false)) => Err(damaged("the checksum of a page does not match".to_owned())),
        // The start itself reports why the file can't be opened.
        Ok(Err(_)) => Ok(()),
        Err(fault) => Err(damaged(fault)),
    }
}
