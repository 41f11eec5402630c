//! `postrider check`: checks a stopped store or a backup, without changing it. A backup is unpacked into a temporary
//! directory, which is removed afterwards.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use super::Progress;
use crate::app::cli_error::CliError;
use crate::app::exit::Exit;
use crate::app::lock::DirectoryLock;
use crate::engine::ports::Clock;
use crate::engine::virtual_clock;
use crate::net::clock::SystemClock;
use crate::store::archive::ArchiveError;
use crate::store::check::{self, InspectError, KeyPlace, Report};
use crate::store::damage::on_uncatchable;
use crate::store::restore::{self, RestoreError};

/// Checks the store in `directory`.
///
/// # Errors
/// The reason why nothing was checked; exit 6 if the store is running, 3 if there is none.
pub fn directory(directory: &Path, progress: Progress<'_>) -> Result<Report, CliError> {
    let purpose = format!("check the store in {}", directory.display());
    let _lock = DirectoryLock::borrow(directory)?;
    looked_at(directory, KeyPlace::WithStore, &purpose, progress)
}

/// Checks a backup: its parts, and the store in it.
///
/// # Errors
/// The reason why nothing was checked; exit 3 if there is no such file.
pub fn backup(file: &Path, mut progress: Progress<'_>) -> Result<Report, CliError> {
    let purpose = format!("check the backup {}", file.display());
    let source = super::open(file, &purpose)?;
    let aside = ScratchDirectory::create().map_err(|error| {
        let remedy = "Set TMPDIR to a directory with space for the backup's rows.";
        CliError::new(Exit::Failed, format!("cannot {purpose}"), error.to_string(), remedy)
    })?;
    let unpacked = restore::unpack(source, &aside.0, &mut |head, totals| progress.read(head, totals));
    let key_place = match unpacked {
        Ok(unpacked) if unpacked.head.has_content && unpacked.head.has_master_key => KeyPlace::WithStore,
        Ok(_) => KeyPlace::Apart,
        Err(RestoreError::Backup(
            fault @ (ArchiveError::Strange | ArchiveError::Truncated { .. } | ArchiveError::Damaged { .. }),
        )) => {
            return Ok(Report::on_broken_backup(&fault));
        }
        Err(error) => {
            let remedy = match error {
                RestoreError::NewerStore { .. } | RestoreError::Backup(ArchiveError::Newer { .. }) => {
                    "Use a newer version of Postrider."
                }
                RestoreError::Backup(_)
                | RestoreError::NoMasterKey
                | RestoreError::WrongMasterKey
                | RestoreError::Io { .. }
                | RestoreError::Store(_) => {
                    "Set TMPDIR to a directory with space for the backup's rows, and try again."
                }
            };
            return Err(CliError::new(Exit::Failed, format!("cannot {purpose}"), error.to_string(), remedy));
        }
    };
    looked_at(&aside.0, key_place, &purpose, progress)
}

fn looked_at(
    directory: &Path,
    key_place: KeyPlace,
    purpose: &str,
    mut progress: Progress<'_>,
) -> Result<Report, CliError> {
    on_uncatchable(|fault| Exit::ChecksFailed.end_on_damage(fault));
    let now = SystemClock::new().now().max(virtual_clock::kept(directory).unwrap_or_default());
    let checked = check::check(directory, now, key_place, &mut |rows| progress.looked_at(rows));
    checked.map_err(|error| {
        let (exit, remedy) = match &error {
            InspectError::Lost(_) => (
                Exit::ChecksFailed,
                "If the file was moved, put it back. Otherwise restore the newest backup into an empty directory.",
            ),
            InspectError::HalfRestored => (Exit::ChecksFailed, "Empty the directory and restore again."),
            InspectError::NoStore => (Exit::NotFound, "Give the service's directory with --data-dir or --config."),
            InspectError::Locked => (Exit::Conflict, "Stop the process that has it open, or check a backup."),
            InspectError::Newer { .. } => (Exit::Failed, "Use a newer version of Postrider."),
            InspectError::Older { .. } => (Exit::Failed, "Start the service on it once, which migrates it."),
            InspectError::Io(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                (Exit::NotPermitted, "Run the command as the user that the service runs as, or as root.")
            }
            InspectError::Io(_) | InspectError::Unreadable(_) => (Exit::Failed, "Check the disk, and try again."),
        };
        CliError::new(exit, format!("cannot {purpose}"), error.to_string(), remedy)
    })
}

/// A temporary directory, removed when it is dropped.
struct ScratchDirectory(PathBuf);

impl ScratchDirectory {
    fn create() -> io::Result<Self> {
        let name = format!("postrider-check-{}-{}", std::process::id(), SystemClock::new().now().as_millis());
        let path = std::env::temp_dir().join(name);
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(path))
    }
}

impl Drop for ScratchDirectory {
    fn drop(&mut self) {
        // A directory that can't be removed stays until the system cleans its temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}
