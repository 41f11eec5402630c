//! What the process is told from outside: to stop (SIGTERM, SIGINT), and to read its configuration again (SIGHUP).
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

/// What a signal asks for.
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

    /// What is asked for next. None is lost where this is given up while it waits.
    pub(super) async fn next(&mut self) -> Asked {
        tokio::select! {
            _ = self.terminate.recv() => Asked::Stop,
            _ = self.interrupt.recv() => Asked::Stop,
            _ = self.hangup.recv() => Asked::Reload,
        }
    }
}
