//! A file in the data directory that exists while the service runs. A clean stop removes it, so the next start learns
//! that the last run was killed, crashed, or lost power.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::base::time::Timestamp;
use crate::store::private_file;

/// Name of the file.
const FILE: &str = "running";

/// The marker of this run.
#[derive(Debug, Default)]
pub(super) struct RunMarker {
    path: PathBuf,
    /// Content of the marker from the last run.
    left: Option<String>,
}

impl RunMarker {
    /// Places the marker in `directory`, after reading that of the last run. A marker that can't be written does not
    /// stop the start.
    pub(super) fn place(directory: &Path) -> Self {
        let path = directory.join(FILE);
        let left = fs::metadata(&path).ok().map(|found| {
            let pid = fs::read_to_string(&path).unwrap_or_default();
            let pid = pid.trim().parse::<u32>().map(|pid| format!(" of process {pid}")).unwrap_or_default();
            let began = found.modified().ok().map(since).unwrap_or_default();
            format!("The run{pid}{began} was killed, crashed, or lost power.")
        });
        if let Err(error) = write(&path) {
            tracing::warn!(%error, "could not write the run marker; a crash will not raise an alert");
        }
        Self { path, left }
    }

    /// Returns the content of the last run's marker, or `None` if that run stopped cleanly.
    pub(super) fn left_behind(&self) -> Option<&str> {
        self.left.as_deref()
    }

    /// Removes the marker at a clean stop.
    pub(super) fn remove(self) {
        if let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!(%error, "could not remove the run marker; the next start will raise an alert");
        }
    }
}

/// Writes the marker durably with its directory entry: power may fail at any time.
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
    fn a_clean_stop_leaves_no_marker() {
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
