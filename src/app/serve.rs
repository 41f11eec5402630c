//! `postrider serve`: the service, as a supervisor runs it. Prints nothing on stdout.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use super::cli_error::CliError;
use super::config::Config;
use super::daemon::Daemon;
use super::exit::Exit;
use super::lock::DirectoryLock;
use super::replication::OpenedStore;
use super::store_open_report::Start;
use super::{dev, logging, replication, runtime, supervisor};
use crate::engine::ports::Clock;
use crate::net::clock::service_clock;
use crate::net::passed_sockets::PassedSockets;
use crate::store::open::OnJournalDamage;
use crate::store::replica::claim::ClaimCause;

/// Runs the service of `config` until it is stopped. Once it accepts connections, it writes a newline to the descriptor
/// `ready_fd` and notifies systemd. `on_damage` is the policy for a damaged journal.
///
/// # Errors
/// The error for the operator.
pub fn run(config: &Config, ready_fd: Option<i32>, on_damage: OnJournalDamage) -> Result<Exit, CliError> {
    config.fit_to_mail()?;
    logging::start(&config.log);
    // Dumps are forbidden before the master key is read.
    runtime::forbid_dumps();
    for warning in config.warnings() {
        tracing::warn!("{warning}");
    }
    refuse_development(&config.data_dir)?;
    let sockets = sockets(config)?;
    // Take the lock first: it may have to wait, and nothing else may be changed before.
    let lock = DirectoryLock::take(&config.data_dir)?;
    runtime::run(serve(config, lock, sockets, ready_fd, on_damage, ClaimCause::Start))
}

/// Serves in a locked directory, after its log was claimed for `cause`.
///
/// # Errors
/// The error for the operator.
async fn serve(
    config: &Config,
    lock: DirectoryLock,
    sockets: PassedSockets,
    ready_fd: Option<i32>,
    on_damage: OnJournalDamage,
    cause: ClaimCause,
) -> Result<Exit, CliError> {
    let clock: Arc<dyn Clock> = Arc::new(service_clock());
    let start = Start::Service(on_damage);
    match replication::open(config, &config.data_dir, lock, clock, start, cause).await? {
        Some(opened) => serve_opened(config, opened, sockets, ready_fd).await,
        None => Ok(Exit::Done),
    }
}

/// Serves an open store, whose log was claimed if it has one.
///
/// # Errors
/// The error for the operator.
pub(super) async fn serve_opened(
    config: &Config,
    opened: OpenedStore,
    sockets: PassedSockets,
    ready_fd: Option<i32>,
) -> Result<Exit, CliError> {
    let OpenedStore { ground, claim, signals } = opened;
    let Some(daemon) = Daemon::start(config, ground, sockets, None, claim, signals).await? else {
        supervisor::stopping();
        return Ok(Exit::Done);
    };
    let public_url = daemon.engine.settings.public_url.get().map_or("", String::as_str);
    tracing::info!(listen = ?daemon.http_addresses, public_url, "serving");
    notify_ready(ready_fd)?;
    let keeping_alive = supervisor::keep_alive(&daemon.engine.store);
    let exit = daemon.run().await;
    if let Some(task) = keeping_alive {
        task.abort();
    }
    Ok(exit)
}

/// Refuses a directory of `dev`: its keys and password were printed, and its domains were not verified.
fn refuse_development(directory: &Path) -> Result<(), CliError> {
    if !directory.join(dev::FILE).exists() {
        return Ok(());
    }
    let what = format!("{} is a directory of `postrider dev`", directory.display());
    let why = "its keys and domains are only for tests and must not send mail";
    Err(CliError::new(Exit::Usage, what, why, "Set data_dir to another directory, and run `postrider init`."))
}

/// Takes the sockets that systemd has opened. One that the configuration does not name is an error, because it would
/// not be served.
fn sockets(config: &Config) -> Result<PassedSockets, CliError> {
    let sockets = PassedSockets::to_process().map_err(|error| {
        let remedy = "Let the socket unit open only TCP sockets (ListenStream).";
        CliError::new(Exit::Failed, "cannot take over the sockets from systemd", error.to_string(), remedy)
    })?;
    let bounces = config.bounces.iter().flat_map(|bounces| &bounces.listen);
    let wanted = config.http.listen.iter().chain(bounces).chain(config.submission.addresses());
    let wanted: Vec<_> = wanted.copied().collect();
    for address in sockets.beside(&wanted) {
        tracing::warn!(%address, "unused systemd socket: no listen address of the configuration names it");
    }
    Ok(sockets)
}

pub(super) fn notify_ready(ready_fd: Option<i32>) -> Result<(), CliError> {
    supervisor::ready();
    let Some(descriptor) = ready_fd else { return Ok(()) };
    write_newline(descriptor).map_err(|error| {
        let what = format!("cannot write to descriptor {descriptor}");
        CliError::new(
            Exit::Usage,
            what,
            error.to_string(),
            "Set --ready-fd to a file descriptor that is open for writing.",
        )
    })
}

/// Writes a newline. The descriptor is opened by its path, because taking it by number would need unsafe code.
fn write_newline(descriptor: i32) -> io::Result<()> {
    OpenOptions::new().write(true).open(format!("/dev/fd/{descriptor}"))?.write_all(b"\n")
}
