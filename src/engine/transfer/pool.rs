//! The connections of a lane that are kept for its next messages.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::held::Agreement;
use crate::engine::ports::{Session, Target};
use crate::engine::room::Taken;
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
    pub(super) place: Taken,
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

/// The kept connections of a lane, the one kept longest first.
#[derive(Default)]
pub(super) struct Pool(Mutex<VecDeque<Kept>>);

impl Pool {
    fn kept(&self) -> MutexGuard<'_, VecDeque<Kept>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection to one of `targets`. What is past its time takes leave.
    pub(super) fn take<'a>(
        &self,
        targets: impl IntoIterator<Item = &'a Target>,
        limits: &Limits,
        now: Instant,
    ) -> Option<Kept> {
        let targets: Vec<_> = targets.into_iter().collect();
        let mut kept = self.kept();
        let (good, bad): (VecDeque<_>, VecDeque<_>) = kept.drain(..).partition(|one| one.is_good(limits, now));
        *kept = good;
        // The last one used is the least likely to have been closed.
        let at = kept.iter().rposition(|one| targets.iter().any(|target| target.is_same_server(&one.target)));
        let found = at.and_then(|at| kept.remove(at));
        drop(kept);
        bad.into_iter().for_each(Kept::leave);
        found
    }

    /// Keeps a connection.
    pub(super) fn put(&self, kept: Kept) {
        self.kept().push_back(kept);
    }

    pub(super) fn len(&self) -> usize {
        self.kept().len()
    }

    /// The connection that was kept longest.
    pub(super) fn oldest(&self) -> Option<Kept> {
        self.kept().pop_front()
    }
}
