//! Kept connections of a destination, for its next messages.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use super::Shared;
use super::servers::ServerPermits;
use super::tls_requirements::Agreement;
use crate::engine::fair_semaphore::FairPermit;
use crate::engine::ports::{Session, Target};
use crate::smtp::shaping::Limits;

/// Time for which an idle connection is kept.
pub(super) const IDLE: Duration = Duration::from_secs(5);

/// An open connection.
pub(super) struct PooledConnection {
    pub(super) target: Target,
    pub(super) session: Box<dyn Session>,
    /// The policy that the connection met at the last check.
    pub(super) agreed: Agreement,
    /// Permit of the service.
    pub(super) place: FairPermit,
    /// Permits of the server.
    pub(super) servers: ServerPermits,
    /// Number of messages started on the connection.
    pub(super) messages: u32,
    pub(super) opened: Instant,
    pub(super) idle_since: Instant,
}

impl PooledConnection {
    /// Returns whether the connection may serve another message.
    fn is_good(&self, limits: &Limits, now: Instant) -> bool {
        self.messages < limits.messages_per_connection
            && now.duration_since(self.opened) < limits.connection_age
            && now.duration_since(self.idle_since) < IDLE
            && self.session.is_reusable()
    }

    /// Sends QUIT, without waiting for the answer. Another connection to the server may be opened meanwhile.
    pub(super) fn leave(self) {
        let Self { session, place, servers, .. } = self;
        drop(servers);
        tokio::spawn(async move {
            session.quit().await;
            drop(place);
        });
    }
}

impl Shared {
    /// Records that a server did not answer an RSET. No connection to it is kept for a while.
    pub(super) fn note_silent_reset(&self, target: &Target) {
        let now = self.moment().machine;
        self.destinations().silent_resets.add(target.address, now);
    }
}

/// The kept connections of a destination, oldest first.
#[derive(Default)]
pub(super) struct Pool(VecDeque<PooledConnection>);

impl Pool {
    /// Removes the expired connections.
    pub(super) fn take_old(&mut self, limits: &Limits, now: Instant) -> Vec<PooledConnection> {
        let (good, old): (VecDeque<_>, VecDeque<_>) = self.0.drain(..).partition(|one| one.is_good(limits, now));
        self.0 = good;
        old.into()
    }

    /// Removes a connection to one of `targets`, if there is one.
    pub(super) fn take<'a>(&mut self, targets: impl IntoIterator<Item = &'a Target>) -> Option<PooledConnection> {
        let targets: Vec<_> = targets.into_iter().collect();
        // The most recently used connection is the least likely to have been closed.
        let at = self.0.iter().rposition(|one| targets.iter().any(|target| target.is_same_server(&one.target)))?;
        self.0.remove(at)
    }

    /// Keeps a connection.
    pub(super) fn put(&mut self, kept: PooledConnection) {
        self.0.push_back(kept);
    }

    /// Returns whether other messages wait for permits of the connections.
    pub(super) fn is_wanted(&self) -> bool {
        self.0.iter().any(|kept| kept.servers.are_wanted())
    }

    /// Removes the oldest connection.
    pub(super) fn oldest(&mut self) -> Option<PooledConnection> {
        self.0.pop_front()
    }

    /// Returns the time of the oldest connection's last use.
    pub(super) fn oldest_since(&self) -> Option<Instant> {
        self.0.iter().map(|kept| kept.idle_since).min()
    }
}
