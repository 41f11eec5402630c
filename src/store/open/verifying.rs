//! Verification of the database's pages at a start.
//!
//! redb reads a page without its checksum. A page that the disk replaced by its own older copy therefore looks whole,
//! and its newer rows look absent: a suppressed address would get mail again. So a start verifies the checksum of every
//! page, as `check` does, if the database is small enough. A larger one is verified while the service runs: see
//! [`PinnedPages`](super::pinned_pages::PinnedPages).

use std::io;
use std::path::Path;

use redb::Builder;

use super::database::is_damage;
use super::{FILE, OpenError, StartWork};
use crate::store::damage::guarded;
use crate::store::disk::{Disk, DiskFile, OpenMode};
use crate::store::overlay::Overlay;

/// File that requests the verification of a database of any size.
const REQUEST: &str = "verify";
/// Memory for pages while they are verified.
const CACHE_BYTES: usize = 8 << 20;
/// Size of a read before the verification.
const READ_BYTES: usize = 4 << 20;

/// Verifies the database of `directory`, if it has at most `bytes_max` bytes or its verification [`is_requested`].
/// Nothing else may have it open.
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
    if bytes_max == 0 || !disk.exists(&path) {
        return Ok(());
    }
    let io = |error| OpenError::Io { what: format!("reading {}", path.display()), error };
    let file = disk.open(&path, OpenMode::Existing).map_err(io)?;
    let length = file.length().map_err(io)?;
    if length == 0 || (length > bytes_max && !is_requested(disk, directory)) {
        return Ok(());
    }
    read_ahead(&*file, length, progress).map_err(io)?;
    match verify_view(Overlay::over(file).map_err(io)?) {
        Ok(()) => withdraw_request(disk, directory).map_err(io),
        Err(Unverified::Damaged(fault)) => Err(OpenError::Damaged { file: path, fault }),
        // The start itself reports why the file can't be opened.
        Err(Unverified::Unreadable(_)) => Ok(()),
    }
}

/// Reason why pages are not verified.
pub(super) enum Unverified {
    /// Some are damaged.
    Damaged(String),
    /// The pages can't be read now.
    Unreadable(String),
}

/// Verifies all pages of a database.
pub(super) fn verify_view(view: Overlay) -> Result<(), Unverified> {
    let is_whole = guarded(|| Builder::new().set_cache_size(CACHE_BYTES).create_with_backend(view)?.check_integrity());
    match is_whole {
        Ok(Ok(true)) => Ok(()),
        Ok(Ok(false)) => Err(Unverified::Damaged("some pages are damaged or unaccounted for".to_owned())),
        Ok(Err(error)) if is_damage(&error) => Err(Unverified::Damaged(error.to_string())),
        Ok(Err(error)) => Err(Unverified::Unreadable(error.to_string())),
        Err(fault) => Err(Unverified::Damaged(fault)),
    }
}

/// Returns whether the database must be verified before the next start, however large it is: damage was found while
/// the service ran.
pub(super) fn is_requested(disk: &dyn Disk, directory: &Path) -> bool {
    disk.exists(&directory.join(REQUEST))
}

/// Makes the next start verify the database first.
pub(super) fn request(disk: &dyn Disk, directory: &Path) -> io::Result<()> {
    disk.open(&directory.join(REQUEST), OpenMode::Kept)?.sync_data()?;
    disk.sync_directory(directory)
}

fn withdraw_request(disk: &dyn Disk, directory: &Path) -> io::Result<()> {
    if is_requested(disk, directory) { disk.remove_file(&directory.join(REQUEST)) } else { Ok(()) }
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
