//! One daemon for each data directory (contract 8): a locked file with the holder's process ID.
//!
//! A second daemon exits immediately if the first is alive. A lock without a living holder, left for a moment by a
//! killed process, is waited for.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

use super::cli_error::CliError;
use super::exit::Exit;
use crate::store::error::is_full;
use crate::store::{Store, private_file};

const FILE: &str = "postrider.pid";
const PATIENCE: Duration = Duration::from_secs(10);

/// The exclusive right to be the daemon of a data directory, as long as the process lives.
pub struct DirectoryLock {
    _file: File,
    path: PathBuf,
}

impl DirectoryLock {
    /// Takes the lock of `directory`, and creates the directory if it is missing.
    ///
    /// # Errors
    /// Another daemon is running there, or the directory can't be used.
    pub fn take(directory: &Path) -> Result<Self, CliError> {
        let unusable = |error: io::Error| {
            let what = format!("cannot use the data directory {}", directory.display());
            CliError::new(Exit::Failed, what, error.to_string(), "Choose a directory that this user can write to.")
        };
        Store::create_directory(directory).map_err(unusable)?;
        let path = directory.join(FILE);
        let opened = private_file::open(private_file::options().create(true).truncate(false).read(true), &path);
        let mut file = opened.map_err(unusable)?;
        acquire(&mut file, directory, FlockOperation::NonBlockingLockExclusive)?;
        match file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id())) {
            // The lock holds without its text, and the store needs the start to record outcomes.
            Err(error) if !is_full(&error) => return Err(unusable(error)),
            Ok(()) | Err(_) => {}
        }
        Ok(Self { _file: file, path })
    }

    /// Releases the lock and removes its file, for a command that has created nothing in the directory.
    pub fn discard(self) {
        if let Err(error) = fs::remove_file(&self.path) {
            tracing::debug!(%error, "could not remove the lock file");
        }
    }

    /// Keeps daemons out of `directory` for a reader. Writes nothing: returns `None` if there is no lock file, because
    /// no daemon has ever run there.
    ///
    /// # Errors
    /// A daemon is running there, or the lock can't be read.
    pub fn borrow(directory: &Path) -> Result<Option<Self>, CliError> {
        let path = directory.join(FILE);
        let mut file = match private_file::open(File::options().read(true), &path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                let exit =
                    if error.kind() == io::ErrorKind::PermissionDenied { Exit::NotPermitted } else { Exit::Failed };
                let what = format!("cannot read the data directory {}", directory.display());
                return Err(CliError::new(exit, what, error.to_string(), "Run the command as root or its owner."));
            }
        };
        acquire(&mut file, directory, FlockOperation::NonBlockingLockShared)?;
        Ok(Some(Self { _file: file, path }))
    }
}

fn acquire(file: &mut File, directory: &Path, operation: FlockOperation) -> Result<(), CliError> {
    let until = Instant::now() + PATIENCE;
    while flock(&*file, operation).is_err() {
        let holder = holder(file);
        if holder.is_some_and(is_alive) || Instant::now() >= until {
            return Err(taken(directory, holder));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

fn taken(directory: &Path, holder: Option<u32>) -> CliError {
    let why = match holder {
        Some(pid) => format!("process {pid} is running on it"),
        None => "another process has locked it".to_owned(),
    };
    let what = format!("the data directory {} is in use", directory.display());
    CliError::new(Exit::Conflict, what, why, "Stop that process first, or name another data directory.")
}

fn holder(file: &mut File) -> Option<u32> {
    use std::io::Seek;
    let mut text = String::new();
    file.rewind().ok()?;
    file.read_to_string(&mut text).ok()?;
    file.rewind().ok()?;
    text.trim().parse().ok()
}

/// Returns whether the process runs. A zombie does not.
#[cfg(target_os = "linux")]
fn is_alive(pid: u32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    !matches!(state, None | Some('Z' | 'X'))
}

/// Returns whether the process runs, checked without sending a signal. Processes of other users count too.
#[cfg(not(target_os = "linux"))]
fn is_alive(pid: u32) -> bool {
    use rustix::process::{Pid, test_kill_process};
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| matches!(test_kill_process(pid), Ok(()) | Err(rustix::io::Errno::PERM)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_daemon_is_refused_with_the_holder_s_process_id() {
        let directory = tempfile::tempdir().unwrap();
        let first = DirectoryLock::take(directory.path()).unwrap();
        let began = Instant::now();
        let Err(cli_error) = DirectoryLock::take(directory.path()) else { panic!("two daemons on one directory") };
        assert_eq!(cli_error.exit(), Exit::Conflict);
        assert!(cli_error.to_string().contains(&std::process::id().to_string()));
        assert!(began.elapsed() < PATIENCE);
        drop(first);
        assert!(DirectoryLock::take(directory.path()).is_ok());
    }
}
