//! Signals to the process: stop (SIGTERM, SIGINT), and read the configuration again (SIGHUP).
//!
//! The daemon listens before it serves anything: until then any of them ends the process at once.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that are listened for.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

/// Request of a signal.
pub(super) enum Asked {
    /// To end in order.
    Stop,
    /// To read the configuration again.
    Reload,
}

impl Signals {
    /// Listens from now on.
    ///
    /// # Errors
    /// Those of the system.
    pub(super) fn listen() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Returns the next request. None is lost if the wait is cancelled.
    pub(super) async fn next(&mut self) -> Asked {
        tokio::select! {
            _ = self.terminate.recv() => Asked::Stop,
            _ = self.interrupt.recv() => Asked::Stop,
            _ = self.hangup.recv() => Asked::Reload,
        }
    }
}
