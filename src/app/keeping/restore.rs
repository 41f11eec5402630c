//! `postrider restore`: creates a data directory from a backup. The service is not running there, and the directory's
//! lock keeps it from being started.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::Progress;
use crate::app::cli_error::CliError;
use crate::app::exit::Exit;
use crate::app::init;
use crate::app::lock::DirectoryLock;
use crate::base::time::{Timestamp, iso};
use crate::engine::backup::BESIDE;
use crate::store::archive::{ArchiveError, Head};
use crate::store::master_key::{self, Raw};
use crate::store::open::OpenError;
use crate::store::replica::ReplicaDisk;
use crate::store::restore::{self, RestoreError};

const PURPOSE: &str = "restore the backup";

/// A data directory restored from a backup.
#[derive(Debug, Serialize)]
pub struct FinishedRestore {
    /// The directory.
    pub data_dir: PathBuf,
    /// Time of the backup.
    #[serde(serialize_with = "iso::serialize")]
    pub backup_at: Timestamp,
    /// Rows.
    pub rows: u64,
    /// Bytes of message bodies.
    pub content_bytes: u64,
    /// Whether the backup had message bodies.
    pub with_content: bool,
    /// Number of messages on hold.
    pub messages: u64,
    /// Number of webhook deliveries on hold.
    pub deliveries: u64,
    /// The reason why later batches of a replica's log were not restored; `None` if all were.
    pub gap: Option<String>,
    /// Names of a replica's content keys that are missing before their deadline.
    pub missing_keys: Vec<String>,
}

/// Restores `file` into `directory`, with the master key in `key` if given.
///
/// # Errors
/// The error for the operator; then no file is left in the directory.
pub fn run(
    file: &Path,
    directory: &Path,
    key: Option<&Path>,
    mut progress: Progress<'_>,
) -> Result<FinishedRestore, CliError> {
    let backup = super::open(file, PURPOSE)?;
    let given = key.map(master_key).transpose()?;
    require_empty(directory)?;
    let is_made = !directory.exists();
    let lock = DirectoryLock::take(directory)?;
    let mut report = |head: &Head, totals| progress.read(head, totals);
    let restoration = restore::restore(backup, directory, given, BESIDE, &mut report);
    let restoration = match restoration {
        Ok(restoration) => restoration,
        Err(error) => {
            lock.discard();
            if is_made {
                // The directory stays if another program has put something in it.
                let _ = fs::remove_dir(directory);
            }
            return Err(failed(file, directory, &error));
        }
    };
    init::hand_over(directory).map_err(|error| unwritable(directory, &error))?;
    Ok(FinishedRestore {
        data_dir: directory.to_owned(),
        backup_at: restoration.head.taken_at,
        rows: restoration.totals.rows,
        content_bytes: restoration.totals.content_bytes,
        with_content: restoration.head.has_content,
        messages: restoration.on_hold.messages,
        deliveries: restoration.on_hold.deliveries,
        gap: None,
        missing_keys: Vec::new(),
    })
}

/// Refuses a directory that is not empty.
pub(super) fn require_empty(directory: &Path) -> Result<(), CliError> {
    match restore::is_empty(directory) {
        Ok(true) => Ok(()),
        Ok(false) => {
            let (why, remedy) = match restore::is_unfinished(&ReplicaDisk::default(), directory) {
                true => ("contains a restore that was interrupted", "Empty the directory, and restore again."),
                false => ("is not empty and is not changed", "Choose a directory that is empty or does not exist yet."),
            };
            let why = format!("{} {why}", directory.display());
            Err(CliError::new(Exit::Conflict, format!("cannot {PURPOSE}"), why, remedy))
        }
        Err(error) => Err(unwritable(directory, &error)),
    }
}

pub(super) fn master_key(file: &Path) -> Result<Raw, CliError> {
    if fs::metadata(file).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
        let why = format!("there is no file {}", file.display());
        let remedy = "Give the master.key of the service that was backed up.";
        return Err(CliError::new(Exit::NotFound, format!("cannot {PURPOSE}"), why, remedy));
    }
    master_key::read_raw(file).map_err(|error: OpenError| {
        let remedy = "Give the master.key of the service that was backed up.";
        CliError::new(Exit::Failed, format!("cannot {PURPOSE}"), error.to_string(), remedy)
    })
}

pub(super) fn unwritable(directory: &Path, error: &io::Error) -> CliError {
    let exit = if error.kind() == io::ErrorKind::PermissionDenied { Exit::NotPermitted } else { Exit::Failed };
    let why = format!("{}: {error}", directory.display());
    CliError::new(exit, format!("cannot {PURPOSE}"), why, "Choose a directory that this user can write to.")
}

fn failed(file: &Path, directory: &Path, error: &RestoreError) -> CliError {
    let file = file.display();
    let (exit, why, remedy) = match error {
        RestoreError::Io { error, .. } => return unwritable(directory, error),
        RestoreError::Backup(ArchiveError::Newer { .. }) | RestoreError::NewerStore { .. } => {
            (Exit::Failed, format!("{file}: {error}"), "Use a newer version of Postrider.")
        }
        RestoreError::Backup(_) => (Exit::Failed, format!("{file}: {error}"), "Use another copy, or another backup."),
        RestoreError::NoMasterKey => {
            (Exit::Usage, error.to_string(), "Give the separately stored key with --master-key FILE.")
        }
        RestoreError::WrongMasterKey => {
            (Exit::Failed, error.to_string(), "Give the master.key of the service that was backed up.")
        }
        RestoreError::Store(_) => (Exit::Failed, error.to_string(), "Check the disk, and try again."),
    };
    CliError::new(exit, format!("cannot {PURPOSE}"), why, remedy)
}
