//! SIGHUP: reads the file again, applies the settings that can change at runtime, and logs the others.

use super::config::{Config, LOG_LEVEL};
use super::logging;

/// Reads the configuration again. `running` is the active configuration, and is updated in the settings that can change
/// at runtime. A file with errors changes nothing.
pub(super) fn reload(running: &mut Config) {
    let next = match running.again() {
        None => return,
        Some(Ok(next)) => next,
        Some(Err(fault)) => {
            let fault = fault.to_string().replace('\n', "; ");
            tracing::error!(fault, "could not reload the configuration; keeping the current one");
            return;
        }
    };
    let changes = running.changes(&next);
    if changes.is_empty() {
        tracing::info!("configuration reloaded; nothing changed");
    }
    for key in changes {
        if key == LOG_LEVEL {
            logging::set_level(next.log.level);
            running.log.level = next.log.level;
            tracing::info!(key, level = %next.log.level, "configuration reloaded");
        } else {
            tracing::warn!(key, "configuration reloaded; this change takes effect after a restart");
        }
    }
}
