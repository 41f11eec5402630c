//! The log: lines on stderr, for the journal or a person, or a JSON object each for a collector. A request's identifier
//! and a message's are members of their own. Addresses, subjects and bodies never stand in it above `debug`.

use std::io;
use std::sync::OnceLock;

use tracing::Level;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::reload;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, registry};

use super::config::{Log, LogFormat};

/// How the level is set, once there is a log. The log itself is the process's, so this is too.
static LEVEL: OnceLock<Box<dyn Fn(Level) + Send + Sync>> = OnceLock::new();

/// Starts logging as `log` says. A second start changes nothing.
pub(super) fn start(log: &Log) {
    let lines = match log.format {
        LogFormat::Text => fmt::layer().with_writer(io::stderr).with_ansi(false).boxed(),
        LogFormat::Json => fmt::layer().json().flatten_event(true).with_writer(io::stderr).boxed(),
    };
    let (filter, handle) = reload::Layer::new(filter_of(log.level));
    if registry().with(lines).with(filter).try_init().is_ok() {
        LEVEL.get_or_init(|| {
            Box::new(move |level| {
                if let Err(error) = handle.reload(filter_of(level)) {
                    tracing::error!(%error, "the level of the log can't be changed");
                }
            })
        });
    }
}

/// Logs at `level` from now on.
pub(super) fn set_level(level: Level) {
    if let Some(set) = LEVEL.get() {
        set(level);
    }
}

/// Other crates' chatter below warnings is theirs, and may name what we do not.
fn filter_of(level: Level) -> Targets {
    let level = LevelFilter::from_level(level);
    Targets::new().with_default(level.min(LevelFilter::WARN)).with_target("postrider", level)
}
