//! Watches the service's clock: logs and records each doubt about the wall clock, and settles its end so that deadlines
//! continue.

use std::sync::Arc;
use std::time::Duration;

use super::Engine;
use crate::base::id::MessageId;
use crate::machine::service_clock::Effect;
use crate::store::error::{OpError, StoreError};
use crate::store::op::Infallible;
use crate::store::op::clock_doubt::{BeginDoubt, EndDoubt, SettleDoubt};

impl Engine {
    /// Watches the clock as long as the future is polled.
    pub async fn watch_clock(self: &Arc<Self>) {
        loop {
            if let Err(error) = self.settle_clock().await {
                tracing::error!(%error, "could not record the clock state; deadlines are suspended");
            }
            self.clock.next_comparison().await;
        }
    }

    /// Accepts the wall clock as correct, and waits until deadlines follow it.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn accept_clock(&self) -> Result<(), StoreError> {
        self.clock.accept();
        self.settle_clock().await
    }

    /// Handles the changes since the last call.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub(super) async fn settle_clock(&self) -> Result<(), StoreError> {
        let mut unrecorded = self.clock_changes.lock().await;
        self.clock.time();
        for change in self.clock.changes() {
            log(&change);
            unrecorded.push_back(change);
        }
        while let Some(change) = unrecorded.front() {
            match *change {
                Effect::Doubted { number, .. } => done(self.store.commit(BeginDoubt { number }).await)?,
                Effect::Ended { number, until, offset_ms, .. } => {
                    // From here on all identifiers are later than those of the rows that the step concerns.
                    let _: MessageId = self.store.reserve_id(until.moved_by(1));
                    done(self.store.commit(EndDoubt { number, until, offset_ms }).await)?;
                    self.clock.recorded();
                    let view = self.queue_view().filter(|_| offset_ms < 0);
                    view.into_iter().for_each(|view| view.set_back(Duration::from_millis(offset_ms.unsigned_abs())));
                }
            }
            unrecorded.pop_front();
        }
        if !self.clock.time().is_frozen {
            return Ok(());
        }
        for number in self.store.unsettled_doubts()? {
            while !done(self.store.commit(SettleDoubt { number }).await)? {}
        }
        self.clock.settle();
        Ok(())
    }
}

fn done<T>(answer: Result<T, OpError<Infallible>>) -> Result<T, StoreError> {
    answer.map_err(|stop| match stop {
        OpError::Failed(error) => error,
        OpError::Refused(never) => match never {},
    })
}

fn log(change: &Effect) {
    match change {
        Effect::Doubted { cause, difference_ms, .. } => tracing::warn!(
            cause = cause.as_str(),
            difference_s = difference_ms / 1000,
            "wall clock is doubtful: mail is still sent, but nothing is deleted, expires or fails until the doubt \
             ends; correct the clock, or run `postrider clock accept` if it is right"
        ),
        Effect::Ended { resolution, offset_ms, .. } => {
            tracing::info!(resolution = resolution.as_str(), set_by_s = offset_ms / 1000, "wall clock is trusted again")
        }
    }
}
