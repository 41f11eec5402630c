//! `postrider backup`: requests a backup of the running service's store as a stream, and writes it to a file.
//!
//! The daemon sends and this program writes, so the file belongs to the user who ran the command and may be anywhere
//! they can write. Every checksum is verified while the stream is copied. The file gets its name only when it is
//! complete on disk, so an interrupted backup never looks complete.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde::Serialize;

use super::Progress;
use crate::app::admin_client::AdminClient;
use crate::app::cli_error::CliError;
use crate::app::exit::Exit;
use crate::base::time::{Timestamp, iso};
use crate::net::admin_socket::Download;
use crate::store::archive::{ArchiveError, Part, Reader};
use crate::store::backup::Extent;
use crate::store::private_file;

const PURPOSE: &str = "take the backup";

/// A backup that was taken.
#[derive(Debug, Serialize)]
pub struct FinishedBackup {
    /// Path of the file.
    pub file: PathBuf,
    /// Time of the backup.
    #[serde(serialize_with = "iso::serialize")]
    pub taken_at: Timestamp,
    /// Size of the file in bytes.
    pub bytes: u64,
    /// Number of rows in the backup.
    pub rows: u64,
    /// Bytes of message bodies in the backup.
    pub content_bytes: u64,
    /// Whether message bodies were requested.
    pub with_content: bool,
    /// Whether the master key is in the backup.
    pub with_key: bool,
}

/// Takes a backup of the store behind `client`, as `file`.
///
/// # Errors
/// The error for the operator; then there is no such file.
pub fn take(
    client: &AdminClient,
    file: &Path,
    extent: Extent,
    progress: Progress<'_>,
) -> Result<FinishedBackup, CliError> {
    if fs::symlink_metadata(file).is_ok() {
        return Err(taken_already(file));
    }
    let path = format!("/v1/backup?content={}&master_key={}", extent.content, extent.master_key);
    let download = client.download(PURPOSE, &path)?;
    let unfinished = TemporaryFile::create(file)?;
    let taken = receive(download, &unfinished, progress).map_err(|fault| broken_off(file, &fault))?;
    unfinished.finish(file)?;
    Ok(FinishedBackup { file: file.to_owned(), ..taken })
}

fn receive(
    download: Download,
    unfinished: &TemporaryFile,
    mut progress: Progress<'_>,
) -> Result<FinishedBackup, ArchiveError> {
    let (mut reader, head) = Reader::open(Tee { download, file: &unfinished.file })?;
    progress.expect_rows(head.rows);
    while let Some(part) = reader.next_part()? {
        if let Part::ContentAhead { bytes } = part {
            progress.expect_content(bytes);
        }
        progress.done(reader.totals());
    }
    let totals = reader.totals();
    progress.line("all data received; waiting for the disk");
    unfinished.file.sync_all()?;
    Ok(FinishedBackup {
        file: PathBuf::new(),
        taken_at: head.taken_at,
        bytes: reader.byte_count(),
        rows: totals.rows,
        content_bytes: totals.content_bytes,
        with_content: head.has_content,
        with_key: head.has_master_key,
    })
}

/// Writes everything that is read through it to a file.
struct Tee<'a> {
    download: Download,
    file: &'a File,
}

impl Read for Tee<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.download.read(buffer)?;
        self.file.write_all(&buffer[..length])?;
        Ok(length)
    }
}

/// A file without its final name; dropping removes it.
struct TemporaryFile {
    path: PathBuf,
    file: File,
    is_finished: std::cell::Cell<bool>,
}

impl TemporaryFile {
    fn create(file: &Path) -> Result<Self, CliError> {
        let mut name = file.file_name().unwrap_or_default().to_owned();
        name.push(format!(".unfinished-{}", std::process::id()));
        let path = file.with_file_name(name);
        let opened = private_file::create_new(&path).map_err(|error| unwritable(file, &error))?;
        Ok(Self { path, file: opened, is_finished: std::cell::Cell::new(false) })
    }

    /// Gives the file its name durably, unless the name has been taken.
    fn finish(&self, file: &Path) -> Result<(), CliError> {
        match renameat_with(CWD, &self.path, CWD, file, RenameFlags::NOREPLACE) {
            Ok(()) => {}
            Err(rustix::io::Errno::EXIST) => return Err(taken_already(file)),
            // The file system does not support a rename without replacement.
            Err(rustix::io::Errno::INVAL) if fs::symlink_metadata(file).is_err() => {
                fs::rename(&self.path, file).map_err(|error| unwritable(file, &error))?;
            }
            Err(error) => return Err(unwritable(file, &error.into())),
        }
        self.is_finished.set(true);
        private_file::sync_name(file).map_err(|error| unwritable(file, &error))
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        if !self.is_finished.get() {
            // After success the file has its final name.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn taken_already(file: &Path) -> CliError {
    let why = format!("the file {} already exists and is not changed", file.display());
    CliError::new(Exit::Conflict, format!("cannot {PURPOSE}"), why, "Choose another file, or move the existing one.")
}

fn unwritable(file: &Path, error: &io::Error) -> CliError {
    let exit = match error.kind() {
        io::ErrorKind::PermissionDenied => Exit::NotPermitted,
        io::ErrorKind::NotFound => Exit::NotFound,
        _ => Exit::Failed,
    };
    let why = format!("{}: {error}", file.display());
    CliError::new(exit, format!("cannot {PURPOSE}"), why, "Choose a file in a directory that this user can write to.")
}

fn broken_off(file: &Path, fault: &ArchiveError) -> CliError {
    let (why, remedy) = match fault {
        ArchiveError::Io(error) if error.kind() == io::ErrorKind::StorageFull => {
            (format!("{}: {error}", file.display()), "Choose a file on a disk with more free space.")
        }
        ArchiveError::Io(_)
        | ArchiveError::Strange
        | ArchiveError::Newer { .. }
        | ArchiveError::Truncated { .. }
        | ArchiveError::Damaged { .. } => {
            (format!("the service aborted the backup: {fault}"), "See the service's log, and try again.")
        }
    };
    CliError::new(Exit::Failed, format!("cannot {PURPOSE}"), why, remedy)
}
