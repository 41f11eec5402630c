//! A job: one operation on its way through the writer, and whoever waits for its answer.

use super::content::Carried;
use super::error::{Stop, StoreError};
use super::op::Op;
use super::tables::{Applied, Batch, Moment, Tables};
use crate::base::id::Ulid;

/// What a finished operation answers.
pub(super) type Answer<O> = Result<<O as Op>::Reply, Stop<<O as Op>::Refusal>>;

/// Whether somebody waits for an operation's answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Urgency {
    /// A caller does.
    Awaited,
    /// Nobody does: it may wait for company.
    Patient,
}

/// An operation with its type forgotten.
pub(super) trait Job: Send {
    /// Applies the operation to the batch. What it did is returned where it succeeded; a refusal changes nothing.
    fn apply(&mut self, batch: &mut Batch, moment: Moment, last_id: Ulid) -> Result<Option<Applied>, StoreError>;

    /// Whether somebody waits.
    fn urgency(&self) -> Urgency;

    /// Takes the body that is to stand in the same record.
    fn take_carried(&mut self) -> Option<Carried>;

    /// Answers the caller: after the commit's sync, or with the reason why there was none.
    fn release(self: Box<Self>, committed: Result<(), StoreError>);
}

/// A job of operation `O`.
pub(super) struct Pending<O: Op, F: FnOnce(Answer<O>) + Send> {
    op: O,
    urgency: Urgency,
    carried: Option<Carried>,
    answer: Option<Answer<O>>,
    done: F,
}

impl<O: Op, F: FnOnce(Answer<O>) + Send> Pending<O, F> {
    pub(super) const fn new(op: O, urgency: Urgency, done: F) -> Self {
        Self { op, urgency, carried: None, answer: None, done }
    }

    pub(super) fn carrying(self, carried: Option<Carried>) -> Self {
        Self { carried, ..self }
    }
}

impl<O: Op, F: FnOnce(Answer<O>) + Send> Job for Pending<O, F> {
    fn apply(&mut self, batch: &mut Batch, moment: Moment, last_id: Ulid) -> Result<Option<Applied>, StoreError> {
        let mut tables = Tables::new(batch, moment, last_id);
        match self.op.apply(&mut tables) {
            Ok(reply) => {
                let applied = tables.join()?;
                self.answer = Some(Ok(reply));
                Ok(Some(applied))
            }
            Err(Stop::Refused(refusal)) => {
                self.answer = Some(Err(Stop::Refused(refusal)));
                Ok(None)
            }
            // A row that does not decode is the fault of the operations that need it, not the end of the process.
            Err(Stop::Failed(error @ StoreError::Row { .. })) => {
                tracing::error!(%error, "an operation of the store was dropped whole");
                self.answer = Some(Err(Stop::Failed(error)));
                Ok(None)
            }
            Err(Stop::Failed(error)) => Err(error),
        }
    }

    fn urgency(&self) -> Urgency {
        self.urgency
    }

    fn take_carried(&mut self) -> Option<Carried> {
        self.carried.take()
    }

    fn release(self: Box<Self>, committed: Result<(), StoreError>) {
        let answer = match (committed, self.answer) {
            (Ok(()), Some(answer)) => answer,
            (Ok(()), None) => Err(Stop::Failed(StoreError::Panicked)),
            (Err(error), _) => Err(Stop::Failed(error)),
        };
        (self.done)(answer);
    }
}
