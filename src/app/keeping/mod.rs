//! The commands that keep the store: `backup`, `restore` and `check` (contract 8). Each answers what it did, for the
//! command line to print, or the trouble that stood in its way.

pub mod backup;
pub mod check;
mod progress;
pub mod restore;
pub mod restore_replica;

pub use progress::Progress;

use std::fs::File;
use std::io::{self, BufReader};
use std::path::Path;

use super::exit::Exit;
use super::trouble::Trouble;

/// Bytes that are read of a backup at once.
const BUFFER: usize = 1 << 20;

/// Opens the file of a backup.
fn open(file: &Path, purpose: &str) -> Result<BufReader<File>, Trouble> {
    let opened = File::open(file).map_err(|error| {
        let (exit, remedy) = match error.kind() {
            io::ErrorKind::NotFound => (Exit::NotFound, "Name a file that `postrider backup` has written."),
            io::ErrorKind::PermissionDenied => (Exit::NotPermitted, "Run the command as the file's owner, or as root."),
            _ => (Exit::Failed, "Name a file that `postrider backup` has written."),
        };
        Trouble::new(exit, format!("cannot {purpose}"), format!("{}: {error}", file.display()), remedy)
    })?;
    Ok(BufReader::with_capacity(BUFFER, opened))
}
