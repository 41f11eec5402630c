//! The checks from within the service, for the operator's page: one run at a time. The last result is in a file of the
//! data directory and survives a restart.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::AcqRel, Ordering::Release};
use std::sync::{Arc, Mutex, PoisonError};

use super::Check;
use crate::app::config::Config;
use crate::engine::ports::{BoxFuture, Clock};
use crate::http::status::{Doctor, Examination, Finding};

/// File with the last result.
const FILE: &str = "doctor.json";

/// The checks of one service.
pub struct InService {
    config: Config,
    clock: Arc<dyn Clock>,
    last: Mutex<Option<Arc<Examination>>>,
    is_running: AtomicBool,
}

impl InService {
    /// Creates the checks of `config` on the open data directory, which differs in `dev`. Loads the result of an
    /// earlier process.
    pub fn new(config: &Config, directory: &Path, clock: Arc<dyn Clock>) -> Self {
        let last = Mutex::new(read(&path_in(directory)).map(Arc::new));
        let mut config = config.clone();
        config.data_dir = directory.to_owned();
        Self { config, clock, last, is_running: AtomicBool::new(false) }
    }

    async fn run(&self) -> Option<Arc<Examination>> {
        if self.is_running.swap(true, AcqRel) {
            return None;
        }
        let _running = RunGuard(&self.is_running);
        let config = self.config.clone();
        let checks =
            tokio::task::spawn_blocking(move || super::run(&config).map_err(|cli_error| cli_error.to_string()));
        let checks = match checks.await {
            Ok(Ok(checks)) => checks.into_iter().map(Finding::from).collect(),
            Ok(Err(cli_error)) => vec![failed(cli_error)],
            Err(crashed) => vec![failed(crashed.to_string())],
        };
        let examination = Arc::new(Examination { at: self.clock.now(), checks });
        if let Err(error) = write(&path_in(&self.config.data_dir), &examination) {
            tracing::warn!(%error, "could not store the results of the checks; they are lost at a restart");
        }
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&examination));
        Some(examination)
    }
}

impl Doctor for InService {
    fn last(&self) -> Option<Arc<Examination>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn examine(&self) -> BoxFuture<'_, Option<Arc<Examination>>> {
        Box::pin(self.run())
    }
}

impl From<Check> for Finding {
    fn from(check: Check) -> Self {
        let Check { name, verdict, seen, remedy } = check;
        Self { name, verdict: verdict.as_str().to_owned(), seen, remedy }
    }
}

/// Marks a run as active; dropping it allows the next run.
struct RunGuard<'r>(&'r AtomicBool);

impl Drop for RunGuard<'_> {
    fn drop(&mut self) {
        self.0.store(false, Release);
    }
}

fn failed(why: String) -> Finding {
    let remedy = "Run `postrider doctor` on the server.".to_owned();
    Finding { name: "doctor".to_owned(), verdict: "FAIL".to_owned(), seen: why, remedy }
}

fn path_in(directory: &Path) -> PathBuf {
    directory.join(FILE)
}

fn read(path: &Path) -> Option<Examination> {
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
}

/// Writes the file under another name first, so that it is never incomplete.
fn write(path: &Path, examination: &Examination) -> std::io::Result<()> {
    let beside = path.with_extension("json.new");
    std::fs::write(&beside, serde_json::to_vec(examination)?)?;
    std::fs::rename(&beside, path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::time::Timestamp;

    #[test]
    fn the_last_result_survives_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let path = path_in(directory.path());
        assert_eq!(read(&path), None);
        let checks = vec![failed("no network".to_owned())];
        let examination = Examination { at: Timestamp::from_millis(7), checks };
        write(&path, &examination).unwrap();
        assert_eq!(read(&path), Some(examination));
        std::fs::write(&path, "{").unwrap();
        assert_eq!(read(&path), None, "a damaged file is not a result");
    }
}
