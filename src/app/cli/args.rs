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
#[command(name = "postrider", version, about = "The transactional e-mail sending service that people run themselves.")]
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
    /// Follow the log of the active machine, and serve in its place once promoted.
    Standby(StandbyArgs),
    /// Have the running standby claim the log and serve.
    Promote(PromoteArgs),
    /// Run everything in one process with no set-up, capturing all mail.
    Dev(Box<DevArgs>),
    /// Accounts, the owners of everything else.
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Account(AccountArgs),
    /// API keys.
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Key(OfAccount<KeyCommand>),
    /// Sending domains.
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Domain(OfAccount<DomainCommand>),
    /// Webhook endpoints.
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Webhook(OfAccount<WebhookCommand>),
    /// Users of the panel.
    #[command(subcommand_required = true, arg_required_else_help = true)]
    User(OfAccount<UserCommand>),
    /// Addresses to which nothing is sent.
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Suppression(OfAccount<SuppressionCommand>),
    /// Messages that were accepted.
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Message(OfAccount<MessageCommand>),
    /// The event log.
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Event(OfAccount<EventCommand>),
    /// List, pause, resume and retry waiting mail
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Queue(QueueArgs),
    /// Alerts of the service and of every account.
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Alert(AlertArgs),
    /// The service's clock.
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Clock(ClockArgs),
    /// Write a configuration, make the store with an account and a key, and print the DNS records to publish.
    Init(InitArgs),
    /// Show how the service is: queue, last errors, certificate, disk, backup, clock.
    Status(DaemonArgs),
    /// Check whether the service is ready: exits with 0, 1 (not ready) or 4 (not reachable).
    Health(HealthArgs),
    /// Check what stands in the way of mail: ports, DNS, certificates, disk.
    Doctor(DoctorArgs),
    /// Copy the store of the running service into a file.
    Backup(BackupArgs),
    /// Make a data directory of a backup; what waited then stands still until `queue release`.
    Restore(RestoreArgs),
    /// Verify every checksum and every rule of a store that is not running, or of a backup.
    Check(CheckArgs),
    /// The replica of the store in a bucket.
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Replica(ReplicaArgs),
    /// The configuration file.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Print a shell's completions.
    Completions(CompletionsArgs),
    /// Print the manual.
    Man(ManArgs),
    /// Print the version.
    Version,
}

#[derive(Debug, Args)]
pub(super) struct ServeArgs {
    /// The configuration file (or POSTRIDER_CONFIG; /etc/postrider/postrider.toml unless given).
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// Write a newline to this descriptor once connections are accepted.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(0..))]
    pub(super) ready_fd: Option<i32>,
    /// Start on a damaged journal, as of before the damage. Queued mail stays on hold until `postrider queue release`.
    #[arg(long)]
    pub(super) accept_journal_damage: bool,
    /// Start without the replica: only if its bucket is lost and no standby was promoted.
    #[arg(long)]
    pub(super) without_replica: bool,
}

/// Which daemon a command talks to.
#[derive(Debug, Args)]
pub(super) struct DaemonArgs {
    /// The data directory of the service (or POSTRIDER_DATA_DIR).
    #[arg(long, value_name = "DIR", global = true, conflicts_with = "config")]
    pub(super) data_dir: Option<PathBuf>,
    /// The configuration file of the service (or POSTRIDER_CONFIG).
    #[arg(long, value_name = "FILE", global = true)]
    pub(super) config: Option<PathBuf>,
}

/// Which account a command is about.
#[derive(Debug, Args)]
pub(super) struct AccountChoice {
    /// The account; may be left out where there is one.
    #[arg(long, value_name = "ID", global = true)]
    pub(super) account: Option<String>,
}

/// Which page of a list.
#[derive(Debug, Args)]
pub(super) struct PageArgs {
    /// Rows at most.
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u8).range(1..=100))]
    pub(super) limit: u8,
    /// The next_cursor of the page before.
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
    /// Make an account.
    Add {
        /// Its name.
        name: String,
        /// The IANA time zone in which the panel shows times.
        #[arg(long, value_name = "ZONE")]
        time_zone: Option<String>,
        /// Messages in an hour.
        #[arg(long, value_name = "N")]
        quota_per_hour: Option<u64>,
        /// Messages in a day.
        #[arg(long, value_name = "N")]
        quota_per_day: Option<u64>,
    },
    /// List the accounts.
    List(PageArgs),
    /// Show one account.
    Show {
        /// Its identifier.
        id: String,
    },
    /// Suspend an account: it may look, but send and change nothing, and its queue is on hold.
    Suspend {
        /// Account ID.
        id: String,
        /// The reason, which the account is shown.
        #[arg(long, value_name = "TEXT")]
        reason: String,
    },
    /// Resume a suspended account: its queue and webhooks continue.
    Resume {
        /// Account ID.
        id: String,
    },
    /// Change what is named of an account.
    #[command(group(clap::ArgGroup::new("change").required(true).multiple(true)))]
    Set {
        /// Its identifier.
        id: String,
        /// Its name.
        #[arg(long, group = "change")]
        name: Option<String>,
        /// The IANA time zone in which the panel shows times.
        #[arg(long, value_name = "ZONE", group = "change")]
        time_zone: Option<String>,
        /// Messages in an hour.
        #[arg(long, value_name = "N", group = "change")]
        quota_per_hour: Option<u64>,
        /// Messages in a day.
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
    /// List what waits and what is on the wire, by receiving site.
    List,
    /// Have the queues of a restored store go on: what waited when its backup was taken is sent.
    Release,
    /// Have an account's mail for a site, or for recipients of a domain, wait until it is resumed.
    Pause(SiteArgs),
    /// Have what was paused go on.
    Resume(SiteArgs),
    /// Have what waits for a later attempt at a site tried at once.
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
    /// Accept a doubtful wall clock as right: deadlines follow it again.
    Accept,
}

/// Which mail is meant.
#[derive(Debug, Args)]
pub(super) struct SiteArgs {
    /// The site, as `queue list` names it, or a domain of recipients.
    pub(super) site: String,
    #[command(flatten)]
    pub(super) account: AccountChoice,
}

/// A command about what one account owns.
#[derive(Debug, Args)]
pub(super) struct OfAccount<C: Subcommand> {
    #[command(flatten)]
    pub(super) daemon: DaemonArgs,
    #[command(flatten)]
    pub(super) account: AccountChoice,
    #[command(subcommand)]
    pub(super) command: C,
}

#[derive(Debug, Subcommand)]
pub(super) enum KeyCommand {
    /// Make a key and print its secret, this once.
    Add {
        /// Its name.
        #[arg(long)]
        name: String,
        /// Limit it to one stream.
        #[arg(long)]
        stream: Option<Stream>,
        /// Scopes: send, read, manage; all of them unless given
        #[arg(long, value_delimiter = ',')]
        scopes: Option<Vec<String>>,
        /// When it stops working, as an ISO 8601 time with offset.
        #[arg(long, value_name = "TIME")]
        expires_at: Option<String>,
    },
    /// List the keys.
    List(PageArgs),
    /// Show one key, without its secret.
    Show {
        /// Its identifier.
        id: String,
    },
    /// Give a key another name.
    Set {
        /// Its identifier.
        id: String,
        /// Its name.
        #[arg(long)]
        name: String,
    },
    /// Revoke a key, at once and for good.
    Remove {
        /// Its identifier.
        id: String,
    },
}

#[derive(Debug, Subcommand)]
pub(super) enum DomainCommand {
    /// Add a sending domain and print the DNS records to publish.
    Add {
        /// Its name.
        name: String,
        /// The stream of its mail.
        #[arg(long)]
        stream: Stream,
    },
    /// List the domains.
    List(PageArgs),
    /// Show one domain.
    Show {
        /// Its name or identifier.
        domain: String,
        /// Print its DNS records alone, as lines of a zone file.
        #[arg(long)]
        zone: bool,
    },
    /// Put a domain on another stream, or schedule the rotation of its DKIM keys.
    Set {
        /// Its name or identifier.
        domain: String,
        /// The stream of its mail.
        #[arg(long, required_unless_present = "dkim_rotation_days")]
        stream: Option<Stream>,
        /// Days between rotations of its DKIM keys: 30 to 730, or 0 for none.
        #[arg(long, value_name = "DAYS")]
        dkim_rotation_days: Option<u16>,
    },
    /// Look up its DNS records now; exits with 7 unless the domain is verified.
    Verify {
        /// Its name or identifier.
        domain: String,
        /// Look again every few seconds until it is verified, for this long at most (10 minutes unless given).
        #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "600")]
        wait: Option<Option<u64>>,
    },
    /// Make new DKIM keys, which sign once their records are seen.
    RotateDkim {
        /// Its name or identifier.
        domain: String,
    },
    /// Remove a domain: nothing can be sent from it any more.
    Remove {
        /// Its name or identifier.
        domain: String,
    },
}

#[derive(Debug, Subcommand)]
pub(super) enum ConfigCommand {
    /// Tell what is wrong with a configuration file.
    Check {
        /// The file (or POSTRIDER_CONFIG).
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
    /// Print the commented configuration.
    Example,
}
