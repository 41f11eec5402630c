//! The grammar of the commands that keep the store: `backup`, `restore` and `check` (contract 8).

use std::path::PathBuf;

use clap::Args;

use super::args::DaemonArgs;

#[derive(Debug, Args)]
pub(in crate::app::cli) struct BackupArgs {
    #[command(flatten)]
    pub(in crate::app::cli) daemon: DaemonArgs,
    /// The file to write; refused where it is there already.
    pub(in crate::app::cli) file: PathBuf,
    /// Back up message bodies too.
    #[arg(long)]
    pub(in crate::app::cli) with_content: bool,
    /// Put the master key into the backup, which then opens every secret in it; kept apart otherwise.
    #[arg(long)]
    pub(in crate::app::cli) with_key: bool,
}

#[derive(Debug, Args)]
pub(in crate::app::cli) struct RestoreArgs {
    /// The directory to restore into (or POSTRIDER_DATA_DIR).
    #[arg(long, value_name = "DIR")]
    pub(in crate::app::cli) data_dir: Option<PathBuf>,
    /// The configuration file of the service (or POSTRIDER_CONFIG), which says how to reach the bucket of a replica.
    #[arg(long, value_name = "FILE")]
    pub(in crate::app::cli) config: Option<PathBuf>,
    /// The backup, or the replica as s3://bucket/prefix.
    pub(in crate::app::cli) file: PathBuf,
    /// The time to restore a replica to: all batches committed until then. The newest state unless given.
    #[arg(long, value_name = "TIME")]
    pub(in crate::app::cli) at: Option<String>,
    /// Do not hold the queue of a restored replica: only if the machine before is surely still.
    #[arg(long)]
    pub(in crate::app::cli) release: bool,
    /// The master key of the service that the backup is of, where the backup was taken without.
    #[arg(long, value_name = "FILE")]
    pub(in crate::app::cli) master_key: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(in crate::app::cli) struct CheckArgs {
    #[command(flatten)]
    pub(in crate::app::cli) daemon: DaemonArgs,
    /// Check this backup, and no data directory.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["data_dir", "config"])]
    pub(in crate::app::cli) backup: Option<PathBuf>,
}
