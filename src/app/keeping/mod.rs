//! The commands `backup`, `restore` and `check` (contract 8). Each returns its result for the command line to print, or
//! a [`CliError`].

pub mod backup;
pub mod check;
mod progress;
pub mod restore;
pub mod restore_replica;

pub use progress::Progress;

use std::fs::File;
use std::io::{self, BufReader};
use std::path::Path;

use super::cli_error::CliError;
use super::exit::Exit;

/// Number of bytes that are read from a backup at once.
const BUFFER: usize = 1 << 20;

/// Opens a backup file.
fn open(file: &Path, purpose: &str) -> Result<BufReader<File>, CliError> {
    let opened = File::open(file).map_err(|error| {
        let (exit, remedy) = match error.kind() {
            io::ErrorKind::NotFound => (Exit::NotFound, "Choose a file that `postrider backup` has written."),
            io::ErrorKind::PermissionDenied => (Exit::NotPermitted, "Run the command as the file's owner, or as root."),
            _ => (Exit::Failed, "Choose a file that `postrider backup` has written."),
        };
        CliError::new(exit, format!("cannot {purpose}"), format!("{}: {error}", file.display()), remedy)
    })?;
    Ok(BufReader::with_capacity(BUFFER, opened))
}
