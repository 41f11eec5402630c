//! Signals to the process: stop (SIGTERM, SIGINT), and reload the configuration (SIGHUP).
//!
//! The daemon listens before it serves anything. Until then each of them ends the process immediately, unless the start
//! waits for the bucket of its replica.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The handled signals.
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

/// Request of a signal.
pub(super) enum SignalRequest {
    /// Stop in order.
    Stop,
    /// Reload the configuration.
    Reload,
}

impl Signals {
    /// Starts listening.
    ///
    /// # Errors
    /// Errors of the system.
    pub(super) fn listen() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Resolves when the process is asked to stop. Other requests are ignored.
    pub(super) async fn stop(&mut self) {
        while !matches!(self.next().await, SignalRequest::Stop) {}
    }

    /// Returns the next request. None is lost if the wait is cancelled.
    pub(super) async fn next(&mut self) -> SignalRequest {
        tokio::select! {
            _ = self.terminate.recv() => SignalRequest::Stop,
            _ = self.interrupt.recv() => SignalRequest::Stop,
            _ = self.hangup.recv() => SignalRequest::Reload,
        }
    }
}
