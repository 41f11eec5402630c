//! A job: one operation in the writer's queue, with the callback for its answer.

use super::content::InlinedBody;
use super::error::{OpError, StoreError};
use super::op::Op;
use super::tables::{Batch, Moment, OpEffects, Tables};
use crate::base::id::Ulid;

/// Answer of a finished operation.
pub(super) type Answer<O> = Result<<O as Op>::Reply, OpError<<O as Op>::Refusal>>;

/// Whether a caller waits for an operation's answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Urgency {
    /// A caller waits.
    Awaited,
    /// No caller waits: the operation may wait for a batch.
    Patient,
}

/// An operation with its type erased.
pub(super) struct Job {
    pub(super) urgency: Urgency,
    /// Bodies to be inlined in the same record. Boxed, because a queue has space for thousands of jobs.
    carried: Vec<InlinedBody>,
    operation: Box<dyn Operation>,
}

impl Job {
    /// Creates a job that applies `op` and passes its answer to `done`.
    pub(super) fn new<O: Op>(op: O, urgency: Urgency, done: impl FnOnce(Answer<O>) + Send + 'static) -> Self {
        Self { urgency, carried: Vec::new(), operation: Box::new(Pending { op, answer: None, done }) }
    }

    pub(super) fn carrying(self, carried: impl IntoIterator<Item = InlinedBody>) -> Self {
        Self { carried: carried.into_iter().collect(), ..self }
    }

    /// Applies the operation to the batch and returns its effects. A refusal changes nothing.
    pub(super) fn apply(
        &mut self,
        batch: &mut Batch,
        moment: Moment,
        last_id: Ulid,
    ) -> Result<Option<OpEffects>, StoreError> {
        let mut tables = Tables::new(batch, moment, last_id);
        match self.operation.apply(&mut tables)? {
            End::Applied => match tables.join(std::mem::take(&mut self.carried)) {
                Err(error) if error.is_of_row() => {
                    self.operation.fail(error);
                    Ok(None)
                }
                joined => joined.map(Some),
            },
            End::Dropped => Ok(None),
        }
    }

    /// Answers the caller: after the batch is durable, or with the reason why it is not durable.
    pub(super) fn release(self, committed: Result<(), StoreError>) {
        self.operation.release(committed);
    }
}

/// Result of applying an operation.
enum End {
    /// The operation succeeded.
    Applied,
    /// The operation was refused or could not read a row; nothing is changed.
    Dropped,
}

trait Operation: Send {
    fn apply(&mut self, tables: &mut Tables<'_>) -> Result<End, StoreError>;

    /// Replaces the operation's answer by `error`; all its changes are dropped.
    fn fail(&mut self, error: StoreError);

    fn release(self: Box<Self>, committed: Result<(), StoreError>);
}

/// An operation and, once it is applied, its answer.
struct Pending<O: Op, F> {
    op: O,
    answer: Option<Answer<O>>,
    done: F,
}

impl<O: Op, F: FnOnce(Answer<O>) + Send> Operation for Pending<O, F> {
    fn apply(&mut self, tables: &mut Tables<'_>) -> Result<End, StoreError> {
        let answer = self.op.apply(tables);
        let end = match &answer {
            Ok(_) => End::Applied,
            Err(OpError::Refused(_)) => End::Dropped,
            // A row that does not decode fails only the operations that need it, not the process.
            Err(OpError::Failed(error)) if error.is_of_row() => {
                tracing::error!(%error, "store operation failed; none of its changes were applied");
                End::Dropped
            }
            Err(OpError::Failed(error)) => return Err(error.clone()),
        };
        self.answer = Some(answer);
        Ok(end)
    }

    fn fail(&mut self, error: StoreError) {
        tracing::error!(%error, "store operation failed; none of its changes were applied");
        self.answer = Some(Err(OpError::Failed(error)));
    }

    fn release(self: Box<Self>, committed: Result<(), StoreError>) {
        let answer = match (committed, self.answer) {
            (Ok(()), Some(answer)) => answer,
            (Ok(()), None) => Err(OpError::Failed(StoreError::Panicked)),
            (Err(error), _) => Err(OpError::Failed(error)),
        };
        (self.done)(answer);
    }
}
