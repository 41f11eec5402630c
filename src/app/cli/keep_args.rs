//! The command-line grammar of `backup`, `restore` and `check` (contract 8).

use std::path::PathBuf;

use clap::Args;

use super::args::DaemonArgs;

#[derive(Debug, Args)]
pub(in crate::app::cli) struct BackupArgs {
    #[command(flatten)]
    pub(in crate::app::cli) daemon: DaemonArgs,
    /// The file to write; it must not exist.
    pub(in crate::app::cli) file: PathBuf,
    /// Include message bodies.
    #[arg(long)]
    pub(in crate::app::cli) with_content: bool,
    /// Include the master key, which decrypts every secret in the backup.
    #[arg(long)]
    pub(in crate::app::cli) with_key: bool,
}

#[derive(Debug, Args)]
pub(in crate::app::cli) struct RestoreArgs {
    /// The directory to restore into (or POSTRIDER_DATA_DIR).
    #[arg(long, value_name = "DIR")]
    pub(in crate::app::cli) data_dir: Option<PathBuf>,
    /// The configuration file of the service (or POSTRIDER_CONFIG), with the credentials of a replica's bucket.
    #[arg(long, value_name = "FILE")]
    pub(in crate::app::cli) config: Option<PathBuf>,
    /// The backup, or the replica as s3://bucket/prefix.
    pub(in crate::app::cli) file: PathBuf,
    /// The time to restore a replica to, including all batches committed until then (default: the newest state).
    #[arg(long, value_name = "TIME")]
    pub(in crate::app::cli) at: Option<String>,
    /// Don't hold the queue of a restored replica; use it only if the previous machine is stopped.
    #[arg(long)]
    pub(in crate::app::cli) release: bool,
    /// The master key, if the backup does not contain it.
    #[arg(long, value_name = "FILE")]
    pub(in crate::app::cli) master_key: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(in crate::app::cli) struct CheckArgs {
    #[command(flatten)]
    pub(in crate::app::cli) daemon: DaemonArgs,
    /// Check this backup instead of a data directory.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["data_dir", "config"])]
    pub(in crate::app::cli) backup: Option<PathBuf>,
}
