//! SIGHUP: the file is read again, what can change at once does, and what can't is named.

use super::config::{Config, LOG_LEVEL};
use super::logging;

/// Reads the configuration again. `running` is the one that the service runs by, and is brought up to date in what
/// changes at once; a file with faults changes nothing.
pub(super) fn reload(running: &mut Config) {
    let next = match running.again() {
        None => return,
        Some(Ok(next)) => next,
        Some(Err(fault)) => {
            let fault = fault.to_string().replace('\n', "; ");
            tracing::error!(fault, "the configuration stays the one before");
            return;
        }
    };
    let changes = running.changes(&next);
    if changes.is_empty() {
        tracing::info!("the configuration is read again: nothing has changed");
    }
    for key in changes {
        if key == LOG_LEVEL {
            logging::set_level(next.log.level);
            running.log.level = next.log.level;
            tracing::info!(key, level = %next.log.level, "the configuration has changed");
        } else {
            tracing::warn!(key, "the configuration has changed: this takes effect when the service starts again");
        }
    }
}
