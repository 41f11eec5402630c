//! The log: lines on stderr for people, one JSON object each for a collector, or entries of systemd's journal
//! ([`super::journal`]). Identifiers of requests and messages are separate fields. Addresses, subjects and bodies are
//! never logged above `debug`.

use std::io;
use std::path::Path;
use std::sync::OnceLock;

use tracing::Level;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::reload;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, registry};

use super::config::{Log, LogFormat};
use super::journal::{self, Journal};
use super::recent_warnings::Recent;

/// Function that sets the level, once logging has started. The log belongs to the process, so this is static.
static LEVEL: OnceLock<Box<dyn Fn(Level) + Send + Sync>> = OnceLock::new();

/// Starts logging as configured in `log`. A second call changes nothing.
pub(super) fn start(log: &Log) {
    let text = || fmt::layer().with_writer(io::stderr).with_ansi(false).boxed();
    let mut journal_error = None;
    let lines = match log.format {
        LogFormat::Text => text(),
        LogFormat::Json => fmt::layer().json().flatten_event(true).with_writer(io::stderr).boxed(),
        LogFormat::Journald => match Journal::at(Path::new(journal::SOCKET)) {
            Ok(journal) => journal.boxed(),
            Err(error) => {
                journal_error = Some(error);
                text()
            }
        },
    };
    let (filter, handle) = reload::Layer::new(filter_of(log.level));
    if registry().with(lines).with(Recent).with(filter).try_init().is_ok() {
        LEVEL.get_or_init(|| {
            Box::new(move |level| {
                if let Err(error) = handle.reload(filter_of(level)) {
                    tracing::error!(%error, "could not change the log level; keeping the current one");
                }
            })
        });
    }
    if let Some(error) = journal_error {
        tracing::warn!(%error, socket = journal::SOCKET, "could not connect to the journal; logging to standard error");
    }
}

/// Sets the level of the running log.
pub(super) fn set_level(level: Level) {
    if let Some(set) = LEVEL.get() {
        set(level);
    }
}

/// Returns the filter. Other crates log only warnings and errors, because their other lines may contain private data.
fn filter_of(level: Level) -> Targets {
    let level = LevelFilter::from_level(level);
    Targets::new().with_default(level.min(LevelFilter::WARN)).with_target("postrider", level)
}
