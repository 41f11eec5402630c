//! `postrider dev`: everything in one process without setup (contract 8): an account, keys, verified domains, and a
//! receiver on loopback that captures every message instead of sending it.

mod announce;
mod furnish;
mod smtp;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use self::announce::announce;
pub(super) use self::furnish::FILE;
use self::furnish::{DevAccount, furnish};
use super::cli::DevOptions;
use super::cli_error::CliError;
use super::daemon::{Daemon, DevParts};
use super::exit::Exit;
use super::lock::DirectoryLock;
use super::replication::{self, OpenedStore};
use super::store_open_report::Start;
use super::{logging, runtime};
use crate::engine::Engine;
use crate::engine::ports::Clock;
use crate::engine::virtual_clock::VirtualClock;
use crate::http::dev::{Dev, InitialAccounts};
use crate::net::clock::{SystemClock, service_clock};
use crate::net::dev::capture::Capture;
use crate::net::dev::receiver::DevReceiver;
use crate::net::dev::reporter::Reporter;
use crate::net::dev::routes::Scope;
use crate::net::passed_sockets::PassedSockets;
use crate::store::replica::claim::ClaimCause;

/// Maximum wait at a stop for mail that is being received.
const GRACE: std::time::Duration = std::time::Duration::from_secs(5);

/// Runs `dev` until it is stopped.
///
/// # Errors
/// The error for the operator.
pub fn run(options: &DevOptions) -> Result<Exit, CliError> {
    logging::start(&options.config.log);
    for warning in options.config.warnings() {
        tracing::warn!("{warning}");
    }
    let (directory, temporary) = match &options.data_dir {
        Some(directory) => (directory.clone(), false),
        None => (temporary_directory(), true),
    };
    let lock = DirectoryLock::take(&directory)?;
    let exit = runtime::run(serve(options, &directory, lock));
    if temporary && let Err(error) = fs::remove_dir_all(&directory) {
        tracing::warn!(%error, "could not remove the temporary data directory; remove it manually");
    }
    exit
}

fn temporary_directory() -> PathBuf {
    let name = format!("postrider-dev-{}-{}", std::process::id(), SystemClock::new().now().as_millis());
    std::env::temp_dir().join(name)
}

async fn serve(options: &DevOptions, directory: &Path, lock: DirectoryLock) -> Result<Exit, CliError> {
    let real = SystemClock::new();
    let virtual_clock = match options.virtual_clock {
        true => Some(Arc::new(VirtualClock::open(directory, real.now()).map_err(|error| cannot("keep time", &error))?)),
        false => None,
    };
    let clock: Arc<dyn Clock> = match &virtual_clock {
        Some(clock) => Arc::clone(clock) as Arc<dyn Clock>,
        None => Arc::new(service_clock()),
    };
    let capture = Capture::open(directory, Arc::clone(&clock)).map_err(|error| cannot("capture mail", &error))?;
    let capture = Arc::new(capture);
    let opened = replication::open(&options.config, directory, lock, clock, Start::Dev, ClaimCause::Start).await?;
    let Some(OpenedStore { ground, claim, signals }) = opened else { return Ok(Exit::Done) };
    let reporter =
        Reporter::new(Arc::clone(ground.store.timers())).map_err(|error| cannot("report on mail", &error))?;
    let reporter = Arc::new(reporter);
    let receiver = DevReceiver::start(Arc::clone(&capture), Arc::clone(&reporter)).await;
    let receiver = receiver.map_err(|error| cannot("receive mail", &error))?;
    let routes = receiver.routes(if options.deliver { Scope::SimulatorOnly } else { Scope::Everything });
    let given = InitialAccounts::of(directory);
    let parts = DevParts {
        routes: Arc::new(Dev { capture, clock: virtual_clock, allow: options.allow.clone(), given }),
        capture: Arc::new(move |to| routes.route(to.local(), to.domain().as_str())),
        reporter,
    };
    let dev = Arc::clone(&parts.routes);
    let sockets = PassedSockets::default();
    let Some(mut daemon) = Daemon::start(&options.config, ground, sockets, Some(parts), claim, signals).await? else {
        return Ok(Exit::Done);
    };
    forget_with_content(&daemon.engine, Arc::clone(&dev.capture));
    if options.any_domain {
        daemon.engine.development.take_any_domain();
    }
    let DevAccount { credentials, account, ids } = furnish(&daemon.engine, directory, options).await?;
    let began = dev.given.begin(&daemon.engine, account, ids);
    began.map_err(|error| cannot("store the objects of the accounts", &error))?;
    let smtp = smtp::listen(&mut daemon, &credentials.api_key, options).await?;
    announce(options, &daemon, &credentials, smtp, directory).map_err(|error| cannot("write to stdout", &error))?;
    let exit = daemon.run().await;
    receiver.shut_down(GRACE).await;
    Ok(exit)
}

/// Removes captured mail together with its message's content (contract 7).
fn forget_with_content(engine: &Arc<Engine>, captured: Arc<Capture>) {
    let (weak, stopped) = (Arc::downgrade(engine), || io::Error::other("the service has stopped"));
    engine.on_content_destroyed.get_or_init(|| {
        Box::new(move || {
            let engine = weak.upgrade().ok_or_else(stopped)?;
            captured.remove_where(|message| engine.is_content_over(message).map_err(io::Error::other))
        })
    });
}

fn cannot(what: &str, why: &dyn std::fmt::Display) -> CliError {
    CliError::new(Exit::Failed, format!("cannot {what}"), why.to_string(), "")
}
