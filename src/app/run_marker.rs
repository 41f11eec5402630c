//! A file in the data directory that exists while the service runs. A clean end removes it, so the next start learns
//! that the last run was killed, crashed, or lost its power.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::base::time::Timestamp;
use crate::store::private_file;

/// Its name.
const FILE: &str = "running";

/// The marker of this run.
#[derive(Debug, Default)]
pub(super) struct RunMarker {
    path: PathBuf,
    /// Content of the marker that the last run left.
    left: Option<String>,
}

impl RunMarker {
    /// Places the marker in `directory`, after a look at what the last run left. That a marker can't be written hinders
    /// no start.
    pub(super) fn place(directory: &Path) -> Self {
        let path = directory.join(FILE);
        let left = fs::metadata(&path).ok().map(|found| {
            let pid = fs::read_to_string(&path).unwrap_or_default();
            let pid = pid.trim().parse::<u32>().map(|pid| format!(" of process {pid}")).unwrap_or_default();
            let began = found.modified().ok().map(since).unwrap_or_default();
            format!("The run{pid}{began} was killed, crashed, or lost its power.")
        });
        if let Err(error) = write(&path) {
            tracing::warn!(%error, "could not mark that the service runs; a crash of it will raise no alert");
        }
        Self { path, left }
    }

    /// Content of the marker of the last run, or none if that run ended cleanly.
    pub(super) fn left_behind(&self) -> Option<&str> {
        self.left.as_deref()
    }

    /// Removes the marker: this run has ended by itself.
    pub(super) fn remove(self) {
        if let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!(%error, "could not remove the mark of a running service; the next start raises an alert");
        }
    }
}

/// Writes the marker, and syncs its name: a power failure may come at any time.
fn write(path: &Path) -> std::io::Result<()> {
    let mut file = private_file::create(path)?;
    writeln!(file, "{}", std::process::id())?;
    file.sync_all()?;
    private_file::sync_name(path)
}

fn since(at: SystemTime) -> String {
    let millis = at.duration_since(UNIX_EPOCH).ok().and_then(|since| u64::try_from(since.as_millis()).ok());
    millis.map(|millis| format!(", which began at {},", Timestamp::from_millis(millis))).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_ends_by_itself_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let first = RunMarker::place(folder.path());
        assert_eq!(first.left_behind(), None);
        let after_crash = RunMarker::place(folder.path());
        let seen = after_crash.left_behind().unwrap();
        assert!(seen.contains(&format!("of process {}", std::process::id())), "{seen}");
        after_crash.remove();
        assert_eq!(RunMarker::place(folder.path()).left_behind(), None);
    }
}
