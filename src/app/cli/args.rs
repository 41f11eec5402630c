//! The command line's grammar (contract 8): the commands that exist, and their options.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use super::alert::AlertArgs;
use super::dev::DevArgs;
use super::health::HealthArgs;
use super::keep_args::{BackupArgs, CheckArgs, RestoreArgs};
use super::mail_args::{EventCommand, MessageCommand, SuppressionCommand, WebhookCommand};
use super::replica::ReplicaArgs;
use super::setup_args::{CompletionsArgs, DoctorArgs, InitArgs, ManArgs};
use super::standby::{PromoteArgs, StandbyArgs};
use super::users::UserCommand;
use crate::domain::stream::Stream;

/// The whole command line.
#[derive(Debug, Parser)]
#[command(
    name = "postrider",
    version,
    about = "Self-hosted transactional email: API, delivery, bounces and webhooks in one binary."
)]
pub(super) struct CommandLine {
    /// Print exactly one line of JSON.
    #[arg(long, global = true)]
    pub(super) json: bool,
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Run the service.
    Serve(ServeArgs),
    /// Follow the active machine's log; take over once promoted.
    Standby(StandbyArgs),
    /// Promote the running standby: it claims the log and serves.
    Promote(PromoteArgs),
    /// Run everything in one process without setup, capturing all mail.
    Dev(Box<DevArgs>),
    /// Accounts.
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Account(AccountArgs),
    /// API keys.
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Key(AccountScoped<KeyCommand>),
    /// Sending domains.
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Domain(AccountScoped<DomainCommand>),
    /// Webhook endpoints.
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Webhook(AccountScoped<WebhookCommand>),
    /// Users of the panel.
    #[command(subcommand_required = true, arg_required_else_help = true)]
    User(AccountScoped<UserCommand>),
    /// Suppressed addresses.
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Suppression(AccountScoped<SuppressionCommand>),
    /// Accepted messages.
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Message(AccountScoped<MessageCommand>),
    /// The event log.
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Event(AccountScoped<EventCommand>),
    /// List, pause, resume and retry waiting mail
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Queue(QueueArgs),
    /// Alerts of the service and of every account.
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Alert(AlertArgs),
    /// The service's clock.
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Clock(ClockArgs),
    /// Write a configuration, create the store with an account and a key, and print the DNS records to publish.
    Init(InitArgs),
    /// Show the service's status: queue, last errors, certificate, disk, backup, clock.
    Status(DaemonArgs),
    /// Check whether the service is ready: exits with 0, 1 (not ready) or 4 (not reachable).
    Health(HealthArgs),
    /// Check the setup: ports, DNS, certificates, disk.
    Doctor(DoctorArgs),
    /// Back up the running service's store to a file.
    Backup(BackupArgs),
    /// Restore a backup; queued mail stays on hold until `queue release`.
    Restore(RestoreArgs),
    /// Verify every checksum and rule of a stopped store, or of a backup.
    Check(CheckArgs),
    /// The replica of the store in a bucket.
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Replica(ReplicaArgs),
    /// The configuration file.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Print completions for a shell.
    Completions(CompletionsArgs),
    /// Print the manual page.
    Man(ManArgs),
    /// Print the version.
    Version,
}

#[derive(Debug, Args)]
pub(super) struct ServeArgs {
    /// The configuration file (or POSTRIDER_CONFIG; default: /etc/postrider/postrider.toml).
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// Write a newline to this file descriptor once connections are accepted.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(0..))]
    pub(super) ready_fd: Option<i32>,
    /// Start on a damaged journal, in the state before the damage. Queued mail is on hold until `queue release`.
    #[arg(long)]
    pub(super) accept_journal_damage: bool,
    /// Start without the replica: only if its bucket is lost and no standby was promoted.
    #[arg(long)]
    pub(super) without_replica: bool,
}

/// The daemon that a command connects to.
#[derive(Debug, Args)]
pub(super) struct DaemonArgs {
    /// The data directory of the service (or POSTRIDER_DATA_DIR).
    #[arg(long, value_name = "DIR", global = true, conflicts_with = "config")]
    pub(super) data_dir: Option<PathBuf>,
    /// The configuration file of the service (or POSTRIDER_CONFIG).
    #[arg(long, value_name = "FILE", global = true)]
    pub(super) config: Option<PathBuf>,
}

/// The account of a command.
#[derive(Debug, Args)]
pub(super) struct AccountChoice {
    /// Account ID (optional if there is only one).
    #[arg(long, value_name = "ID", global = true)]
    pub(super) account: Option<String>,
}

/// A page of a list.
#[derive(Debug, Args)]
pub(super) struct PageArgs {
    /// Maximum number of rows.
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u8).range(1..=100))]
    pub(super) limit: u8,
    /// The next_cursor of the previous page.
    #[arg(long)]
    pub(super) cursor: Option<String>,
}

#[derive(Debug, Args)]
pub(super) struct AccountArgs {
    #[command(flatten)]
    pub(super) daemon: DaemonArgs,
    #[command(subcommand)]
    pub(super) command: AccountCommand,
}

#[derive(Debug, Subcommand)]
pub(super) enum AccountCommand {
    /// Create an account.
    Add {
        /// Account name.
        name: String,
        /// The IANA time zone in which the panel shows times.
        #[arg(long, value_name = "ZONE")]
        time_zone: Option<String>,
        /// Maximum number of messages per hour.
        #[arg(long, value_name = "N")]
        quota_per_hour: Option<u64>,
        /// Maximum number of messages per day.
        #[arg(long, value_name = "N")]
        quota_per_day: Option<u64>,
    },
    /// List the accounts.
    List(PageArgs),
    /// Show one account.
    Show {
        /// Account ID.
        id: String,
    },
    /// Suspend an account: it can read, but not send or change anything, and its queue is on hold.
    Suspend {
        /// Account ID.
        id: String,
        /// The reason, which is shown to the account.
        #[arg(long, value_name = "TEXT")]
        reason: String,
    },
    /// Resume a suspended account: its queue and webhooks continue.
    Resume {
        /// Account ID.
        id: String,
    },
    /// Change an account's name, quota or settings.
    #[command(group(clap::ArgGroup::new("change").required(true).multiple(true)))]
    Set {
        /// Account ID.
        id: String,
        /// Account name.
        #[arg(long, group = "change")]
        name: Option<String>,
        /// The IANA time zone in which the panel shows times.
        #[arg(long, value_name = "ZONE", group = "change")]
        time_zone: Option<String>,
        /// Maximum number of messages per hour.
        #[arg(long, value_name = "N", group = "change")]
        quota_per_hour: Option<u64>,
        /// Maximum number of messages per day.
        #[arg(long, value_name = "N", group = "change")]
        quota_per_day: Option<u64>,
    },
}

#[derive(Debug, Args)]
pub(super) struct QueueArgs {
    #[command(flatten)]
    pub(super) daemon: DaemonArgs,
    #[command(subcommand)]
    pub(super) command: QueueCommand,
}

#[derive(Debug, Subcommand)]
pub(super) enum QueueCommand {
    /// List queued and in-flight mail by receiving site, 10,000 sites at a time. Each page shows the queue as it is
    /// then.
    List {
        /// The next_cursor of the previous page.
        #[arg(long)]
        cursor: Option<String>,
    },
    /// Release the queues of a restored store: the mail that was queued when the backup was taken is sent.
    Release,
    /// Pause an account's mail for a site or a recipient domain until it is resumed.
    Pause(SiteArgs),
    /// Resume paused mail.
    Resume(SiteArgs),
    /// Retry all mail waiting for a site now.
    Try(SiteArgs),
}

#[derive(Debug, Args)]
pub(super) struct ClockArgs {
    #[command(flatten)]
    pub(super) daemon: DaemonArgs,
    #[command(subcommand)]
    pub(super) command: ClockCommand,
}

#[derive(Debug, Subcommand)]
pub(super) enum ClockCommand {
    /// Show the service's time, and whether the wall clock is trusted.
    Show,
    /// Accept a doubtful wall clock: deadlines follow it again.
    Accept,
}

/// The site or domain of queued mail.
#[derive(Debug, Args)]
pub(super) struct SiteArgs {
    /// A site as shown by `queue list`, or a recipient domain.
    pub(super) site: String,
    #[command(flatten)]
    pub(super) account: AccountChoice,
}

/// A command about the objects of one account.
#[derive(Debug, Args)]
pub(super) struct AccountScoped<C: Subcommand> {
    #[command(flatten)]
    pub(super) daemon: DaemonArgs,
    #[command(flatten)]
    pub(super) account: AccountChoice,
    #[command(subcommand)]
    pub(super) command: C,
}

#[derive(Debug, Subcommand)]
pub(super) enum KeyCommand {
    /// Create a key and print its secret; it won't be shown again.
    Add {
        /// Key name.
        #[arg(long)]
        name: String,
        /// Limit the key to one stream.
        #[arg(long)]
        stream: Option<Stream>,
        /// Scopes: send, read, manage (default: all).
        #[arg(long, value_delimiter = ',')]
        scopes: Option<Vec<String>>,
        /// Expiry time, as an ISO 8601 time with offset.
        #[arg(long, value_name = "TIME")]
        expires_at: Option<String>,
    },
    /// List the keys.
    List(PageArgs),
    /// Show one key, without its secret.
    Show {
        /// Key ID.
        id: String,
    },
    /// Rename a key.
    Set {
        /// Key ID.
        id: String,
        /// Key name.
        #[arg(long)]
        name: String,
    },
    /// Revoke a key permanently.
    Remove {
        /// Key ID.
        id: String,
    },
}

#[derive(Debug, Subcommand)]
pub(super) enum DomainCommand {
    /// Add a sending domain and print the DNS records to publish.
    Add {
        /// Domain name.
        name: String,
        /// The stream of its mail.
        #[arg(long)]
        stream: Stream,
    },
    /// List the domains.
    List(PageArgs),
    /// Show one domain.
    Show {
        /// Domain name or ID.
        domain: String,
        /// Print only the domain's DNS records, as lines of a zone file.
        #[arg(long)]
        zone: bool,
    },
    /// Change a domain's stream, or schedule the rotation of its DKIM keys.
    Set {
        /// Domain name or ID.
        domain: String,
        /// The stream of its mail.
        #[arg(long, required_unless_present = "dkim_rotation_days")]
        stream: Option<Stream>,
        /// Days between rotations of the DKIM keys: 30 to 730, or 0 for none.
        #[arg(long, value_name = "DAYS")]
        dkim_rotation_days: Option<u16>,
    },
    /// Look up the domain's DNS records now; exits with 7 unless the domain is verified.
    Verify {
        /// Domain name or ID.
        domain: String,
        /// Repeat every few seconds until the domain is verified, at most this long (default: 10 minutes).
        #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "600")]
        wait: Option<Option<u64>>,
    },
    /// Create new DKIM keys, which are used once their records are found in DNS.
    RotateDkim {
        /// Domain name or ID.
        domain: String,
    },
    /// Remove a domain; it can no longer send mail.
    Remove {
        /// Domain name or ID.
        domain: String,
    },
}

#[derive(Debug, Subcommand)]
pub(super) enum ConfigCommand {
    /// Show the errors of a configuration file.
    Check {
        /// The file (or POSTRIDER_CONFIG).
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
    /// Print the commented configuration.
    Example,
}
