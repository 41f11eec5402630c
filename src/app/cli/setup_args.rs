//! The command-line grammar of the setup commands.

use std::path::PathBuf;

use clap::Args;

use crate::domain::address::Address;
use crate::domain::hostname::DomainName;

#[derive(Debug, Args)]
pub(in crate::app::cli) struct InitArgs {
    /// This server's host name in DNS (default: the system's).
    #[arg(long, value_name = "NAME")]
    pub(in crate::app::cli) hostname: Option<DomainName>,
    /// The configuration file to write, or to use if it exists (or POSTRIDER_CONFIG).
    #[arg(long, value_name = "FILE")]
    pub(in crate::app::cli) config: Option<PathBuf>,
    /// The data directory to create (or POSTRIDER_DATA_DIR).
    #[arg(long, value_name = "DIR")]
    pub(in crate::app::cli) data_dir: Option<PathBuf>,
    /// The panel user's address (default: postmaster of this server).
    #[arg(long, value_name = "EMAIL")]
    pub(in crate::app::cli) user: Option<Address>,
}

#[derive(Debug, Args)]
pub(in crate::app::cli) struct DoctorArgs {
    /// The data directory of the service (or POSTRIDER_DATA_DIR).
    #[arg(long, value_name = "DIR")]
    pub(in crate::app::cli) data_dir: Option<PathBuf>,
    /// The configuration file of the service (or POSTRIDER_CONFIG).
    #[arg(long, value_name = "FILE")]
    pub(in crate::app::cli) config: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(in crate::app::cli) struct CompletionsArgs {
    /// The shell.
    pub(in crate::app::cli) shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
pub(in crate::app::cli) struct ManArgs {
    /// Write a page for each command to this directory (default: only the main page, to standard output).
    #[arg(long, value_name = "DIR")]
    pub(in crate::app::cli) out: Option<PathBuf>,
}
