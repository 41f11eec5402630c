//! The log: lines on stderr, for the journal or a person, or a JSON object each for a collector. A request's identifier
//! and a message's are members of their own. Addresses, subjects and bodies never stand in it above `debug`.

use std::io;

use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, registry};

use super::config::{Log, LogFormat};

/// Starts logging as `log` says. A second start changes nothing.
pub(super) fn start(log: &Log) {
    let level = LevelFilter::from_level(log.level);
    let lines = match log.format {
        LogFormat::Text => fmt::layer().with_writer(io::stderr).with_ansi(false).boxed(),
        LogFormat::Json => fmt::layer().json().flatten_event(true).with_writer(io::stderr).boxed(),
    };
    // Other crates' chatter below warnings is theirs, and may name what we do not.
    let filter = tracing_subscriber::filter::Targets::new()
        .with_default(level.min(LevelFilter::WARN))
        .with_target("postrider", level);
    drop(registry().with(lines).with(filter).try_init());
}
