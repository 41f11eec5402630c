//! Verification of the database's pages at a start.
//!
//! redb reads a page without its checksum. A page that the disk replaced by its own older copy therefore looks whole,
//! and its newer rows look absent: a suppressed address would get mail again. So a start verifies the checksum of every
//! page, as `check` does, if the database is small enough. A larger one is verified by `check` alone.

use std::io;
use std::path::Path;

use redb::Builder;

use super::database::is_damage;
use super::{FILE, OpenError, StartWork};
use crate::store::damage::guarded;
use crate::store::disk::{Disk, DiskFile, Opening};
use crate::store::overlay::Overlay;

/// Memory for pages while they are verified.
const CACHE_BYTES: usize = 8 << 20;
/// Size of a read before the verification.
const READ_BYTES: usize = 4 << 20;

/// Verifies the database of `directory`, if it has at most `bytes_max`. Nothing else may have it open.
///
/// # Errors
/// [`OpenError::Damaged`]: a page is not the one that the database refers to.
pub(in crate::store) fn verify(
    disk: &dyn Disk,
    directory: &Path,
    bytes_max: u64,
    progress: &dyn Fn(StartWork),
) -> Result<(), OpenError> {
    let path = directory.join(FILE);
    let damaged = |fault: String| OpenError::Damaged { file: path.clone(), fault };
    if bytes_max == 0 || !disk.exists(&path) {
        return Ok(());
    }
    let io = |error| OpenError::Io { what: format!("reading {}", path.display()), error };
    let file = disk.open(&path, Opening::Existing).map_err(io)?;
    let length = file.length().map_err(io)?;
    if length > bytes_max {
        tracing::info!(
            bytes = length,
            "the database is too large to verify its pages at every start; run check for it"
        );
        return Ok(());
    }
    if length == 0 {
        return Ok(());
    }
    read_ahead(&*file, length, progress).map_err(io)?;
    let view = Overlay::over(file).map_err(io)?;
    let is_whole = guarded(|| Builder::new().set_cache_size(CACHE_BYTES).create_with_backend(view)?.check_integrity());
    match is_whole {
        Ok(Ok(true)) => Ok(()),
        Ok(Ok(false)) => Err(damaged("some pages are damaged or unaccounted for".to_owned())),
        Ok(Err(error)) if is_damage(&error) => Err(damaged(error.to_string())),
        // The start itself reports why the file can't be opened.
        Ok(Err(_)) => Ok(()),
        Err(fault) => Err(damaged(fault)),
    }
}

/// Reads the file once in order, so that the verification, which reads page by page, finds it in the system's cache.
/// That takes time on a slow disk, and is reported.
fn read_ahead(file: &dyn DiskFile, length: u64, progress: &dyn Fn(StartWork)) -> io::Result<()> {
    let mut buffer = vec![0; READ_BYTES];
    let mut offset = 0;
    while offset < length {
        progress(StartWork::Verifying);
        let count = usize::try_from(length - offset).unwrap_or(READ_BYTES).min(READ_BYTES);
        file.read_exact_at(&mut buffer[..count], offset)?;
        offset += count as u64;
    }
    progress(StartWork::Verifying);
    Ok(())
}
