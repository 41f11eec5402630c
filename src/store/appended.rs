//! Bodies of one operation that accepts several messages. They are appended one after another; once all are durable,
//! the operation that names them is committed. Small bodies are inlined in its journal record.
//!
//! A caller that appends them one at a time has only one in memory. If the operation is refused, its bodies stay in
//! their segments without a message until their bucket ends.

use super::Store;
use super::batcher::PendingGuard;
use super::content::{Append, BodyPlacement, Place, SealedBody};
use super::error::{OpError, StoreError};
use super::job::{Answer, Job, Urgency};
use super::op::Op;

/// Bodies that are appended but not yet named by a commit.
pub struct AppendedBodies {
    /// Announces the first body until it is appended.
    announcement: Option<PendingGuard>,
    placed: Vec<BodyPlacement>,
}

impl Store {
    /// Announces the bodies of one operation before the first is composed and signed. Bodies of other callers wait for
    /// it and share its sync.
    pub fn announce_bodies(&self) -> AppendedBodies {
        AppendedBodies { announcement: Some(self.announce()), placed: Vec::new() }
    }

    /// Appends bodies after those already in `appended`. They share a sync if they need one.
    ///
    /// # Errors
    /// Store failures; [`StoreError::Full`] if a body does not fit on the device. The operation must not be committed
    /// then.
    pub async fn append_bodies(
        &self,
        appended: &mut AppendedBodies,
        bodies: Vec<SealedBody>,
    ) -> Result<(), StoreError> {
        let channels = self.channels().ok_or(StoreError::Closed)?;
        // Announce all bodies first: the appender waits for announced bodies.
        let mut announce = || appended.announcement.take().unwrap_or_else(|| self.announce());
        let announced: Vec<_> = bodies.into_iter().map(|body| (announce(), body)).collect();
        let mut answers = Vec::with_capacity(announced.len());
        for (announcement, body) in announced {
            let (sender, answer) = tokio::sync::oneshot::channel();
            let job = Box::new(move |placed| {
                drop(sender.send(placed));
                None
            });
            self.append(&channels, Append { announcement, body, job });
            answers.push(answer);
        }
        for answer in answers {
            appended.placed.push(answer.await.unwrap_or(Err(StoreError::Closed))?);
        }
        Ok(())
    }

    /// Commits the operation that names the appended bodies; it gets their places in the order of appending. `done` is
    /// called on a thread of the store, or immediately. It must be quick and must not take a snapshot.
    pub fn post_appended<O: Op>(
        &self,
        appended: AppendedBodies,
        op: impl FnOnce(Vec<Place>) -> O,
        done: impl FnOnce(Answer<O>) + Send + 'static,
    ) {
        let Some(channels) = self.channels() else { return done(Err(OpError::Failed(StoreError::Closed))) };
        let places = appended.placed.iter().map(|placed| placed.place).collect();
        let carried = appended.placed.into_iter().filter_map(|placed| placed.carried);
        channels.hand(Job::new(op(places), Urgency::Awaited, done).carrying(carried));
    }

    /// Like [`Store::post_appended`], but waits for the answer.
    ///
    /// # Errors
    /// The operation's refusal or a store failure.
    pub async fn commit_appended<O: Op>(
        &self,
        appended: AppendedBodies,
        op: impl FnOnce(Vec<Place>) -> O + Send,
    ) -> Answer<O> {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        self.post_appended(appended, op, move |answer| drop(sender.send(answer)));
        receiver.await.unwrap_or(Err(OpError::Failed(StoreError::Closed)))
    }
}
