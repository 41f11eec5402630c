//! The bodies of one operation that accepts several messages: appended one after another, and named by the operation
//! once all of them are durable, or carried by its record.
//!
//! Whoever appends them one by one holds one of them in memory at a time. Bodies whose operation is refused stay in
//! their segments without a message, until their bucket ends.

use super::Store;
use super::content::{Append, Place, Placed, SealedBody};
use super::error::{Stop, StoreError};
use super::gather::Announcement;
use super::job::{Answer, Job, Urgency};
use super::op::Op;

/// Bodies that are appended, and not named by a commit yet.
pub struct AppendedBodies {
    /// Counts the first body until it is appended.
    announcement: Option<Announcement>,
    placed: Vec<Placed>,
}

impl Store {
    /// Announces bodies of one operation, before the first of them is composed and signed: bodies of other callers wait
    /// for it and share its sync.
    pub fn announce_bodies(&self) -> AppendedBodies {
        AppendedBodies { announcement: Some(self.announce()), placed: Vec::new() }
    }

    /// Appends bodies behind those that `appended` has already. They share a sync where they need one.
    ///
    /// # Errors
    /// The store's failure; [`StoreError::Full`] where a body found no room. The operation must not be committed then.
    pub async fn append_bodies(
        &self,
        appended: &mut AppendedBodies,
        bodies: Vec<SealedBody>,
    ) -> Result<(), StoreError> {
        let doors = self.doors().ok_or(StoreError::Closed)?;
        // All are announced first: the appender waits for bodies that it knows to come.
        let mut announce = || appended.announcement.take().unwrap_or_else(|| self.announce());
        let announced: Vec<_> = bodies.into_iter().map(|body| (announce(), body)).collect();
        let mut answers = Vec::with_capacity(announced.len());
        for (announcement, body) in announced {
            let (sender, answer) = tokio::sync::oneshot::channel();
            let job = Box::new(move |placed| {
                drop(sender.send(placed));
                None
            });
            self.append(&doors, Append { announcement, body, job });
            answers.push(answer);
        }
        for answer in answers {
            appended.placed.push(answer.await.unwrap_or(Err(StoreError::Closed))?);
        }
        Ok(())
    }

    /// Commits the operation that names the appended bodies, whose places are given in the order of appending. `done`
    /// is called on a thread of the store, or at once; it must be quick, and must take no snapshot.
    pub fn post_appended<O: Op>(
        &self,
        appended: AppendedBodies,
        op: impl FnOnce(Vec<Place>) -> O,
        done: impl FnOnce(Answer<O>) + Send + 'static,
    ) {
        let Some(doors) = self.doors() else { return done(Err(Stop::Failed(StoreError::Closed))) };
        let places = appended.placed.iter().map(|placed| placed.place).collect();
        let carried = appended.placed.into_iter().filter_map(|placed| placed.carried);
        doors.hand(Job::new(op(places), Urgency::Awaited, done).carrying(carried));
    }

    /// The same, and waits for the answer.
    ///
    /// # Errors
    /// The operation's refusal, or the store's failure.
    pub async fn commit_appended<O: Op>(
        &self,
        appended: AppendedBodies,
        op: impl FnOnce(Vec<Place>) -> O + Send,
    ) -> Answer<O> {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        self.post_appended(appended, op, move |answer| drop(sender.send(answer)));
        receiver.await.unwrap_or(Err(Stop::Failed(StoreError::Closed)))
    }
}
