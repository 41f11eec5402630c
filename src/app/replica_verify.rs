//! `postrider replica verify`: checks the bucket of `[replica]` without a running service.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::cli_error::CliError;
use super::config::Config;
use super::environment::Environment;
use super::exit::Exit;
use super::{replica_bucket, runtime};
use crate::base::secret::MasterKey;
use crate::engine::bucket::verify::{self, Depth, Report};
use crate::engine::ports::{BucketError, BucketErrorKind, Clock as _};
use crate::net::clock::SystemClock;
use crate::store::master_key;

const PURPOSE: &str = "cannot verify the replica";
const HOUR: Duration = Duration::from_secs(3600);
/// Above this retention a key may exist for a day after its deadline; below it, for an hour.
const LONG_RETENTION: Duration = Duration::from_secs(30 * 24 * 3600);

/// Verifies the replica of `config`, with the master key in `key` or in the data directory.
///
/// # Errors
/// No `url`, no master key, or the bucket could not be read.
pub(super) fn run(
    config: &Config,
    key: Option<&Path>,
    environment: &Environment,
    deep: bool,
) -> Result<Report, CliError> {
    let Some(url) = &config.replica.url else {
        let why = "replica.url is empty, so nothing is replicated";
        return Err(CliError::new(
            Exit::Usage,
            PURPOSE,
            why,
            "Give the configuration of the service with --config FILE.",
        ));
    };
    let key = key.map_or_else(|| of_directory(&config.data_dir, environment), Path::to_owned);
    let raw = master_key::read_raw(&key).map_err(|error| {
        let remedy = "Give the master.key of the service with --master-key FILE.";
        CliError::new(Exit::Failed, PURPOSE, error.to_string(), remedy)
    })?;
    let bucket = replica_bucket::open(config, url)?;
    let key_grace = if config.replica.retention > LONG_RETENTION { HOUR * 24 } else { HOUR };
    let depth = Depth { deep, now: SystemClock::new().now(), key_grace };
    let verified = runtime::build()?.block_on(verify::verify(&*bucket, Arc::new(MasterKey::new(&raw)), depth));
    verified.map_err(|error| unreadable(&error))
}

/// Returns the path of the service's key: a systemd credential, otherwise in the data directory.
fn of_directory(directory: &Path, environment: &Environment) -> PathBuf {
    let credential = environment.credentials().map(|credentials| credentials.join(master_key::FILE));
    credential.filter(|credential| credential.exists()).unwrap_or_else(|| directory.join(master_key::FILE))
}

fn unreadable(error: &BucketError) -> CliError {
    let (exit, remedy) = match error.kind {
        BucketErrorKind::Forbidden => (Exit::NotPermitted, "Correct the credentials of [replica]."),
        _ => (Exit::Failed, "Check [replica] with `postrider doctor`."),
    };
    CliError::new(exit, PURPOSE, error.to_string(), remedy)
}
