//! The connections of a destination that are kept for its next messages.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use super::tls_requirements::Agreement;
use crate::engine::fair_semaphore::FairPermit;
use crate::engine::ports::{Session, Target};
use crate::smtp::shaping::Limits;

/// Time for which an idle connection is kept.
pub(super) const IDLE: Duration = Duration::from_secs(5);

/// An open connection.
pub(super) struct Kept {
    pub(super) target: Target,
    pub(super) session: Box<dyn Session>,
    /// Policy that the connection was last found to satisfy.
    pub(super) agreed: Agreement,
    /// Its part of all connections.
    pub(super) place: FairPermit,
    /// Messages that were begun on it.
    pub(super) messages: u32,
    pub(super) opened: Instant,
    pub(super) idle_since: Instant,
}

impl Kept {
    /// Whether it may serve another message.
    fn is_good(&self, limits: &Limits, now: Instant) -> bool {
        self.messages < limits.messages_per_connection
            && now.duration_since(self.opened) < limits.connection_age
            && now.duration_since(self.idle_since) < IDLE
            && self.session.is_reusable()
    }

    /// Takes leave, which nobody waits for.
    pub(super) fn leave(self) {
        tokio::spawn(async move {
            self.session.quit().await;
            drop(self.place);
        });
    }
}

/// The kept connections of a destination, the one kept longest first.
#[derive(Default)]
pub(super) struct Pool(VecDeque<Kept>);

impl Pool {
    /// Takes out the connections that are past their time.
    pub(super) fn take_old(&mut self, limits: &Limits, now: Instant) -> Vec<Kept> {
        let (good, old): (VecDeque<_>, VecDeque<_>) = self.0.drain(..).partition(|one| one.is_good(limits, now));
        self.0 = good;
        old.into()
    }

    /// Takes out a connection to one of `targets`.
    pub(super) fn take<'a>(&mut self, targets: impl IntoIterator<Item = &'a Target>) -> Option<Kept> {
        let targets: Vec<_> = targets.into_iter().collect();
        // The last one used is the least likely to have been closed.
        let at = self.0.iter().rposition(|one| targets.iter().any(|target| target.is_same_server(&one.target)))?;
        self.0.remove(at)
    }

    /// Keeps a connection.
    pub(super) fn put(&mut self, kept: Kept) {
        self.0.push_back(kept);
    }

    /// Takes out the connection that was kept longest.
    pub(super) fn oldest(&mut self) -> Option<Kept> {
        self.0.pop_front()
    }

    /// When the connection that was kept longest was used last.
    pub(super) fn oldest_since(&self) -> Option<Instant> {
        self.0.iter().map(|kept| kept.idle_since).min()
    }
}
