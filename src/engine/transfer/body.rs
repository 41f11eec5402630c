//! The body of a message that is being sent. It uses memory only after the server's 354, so a server that is silent
//! before its 354 costs no memory.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::timeout;

use super::Shared;
use super::before_mail::NotSentReason;
use super::destination_queue::DestinationQueue;
use crate::base::id::MessageId;
use crate::engine::fair_semaphore::FairPermit;
use crate::engine::lease::{Reservation, Step};
use crate::engine::ports::{Body, BoxFuture};
use crate::machine::budget::Claim;
use crate::store::content::Unreadable;
use crate::store::row::message::MessageRow;

/// Longest wait for memory. Servers wait for at least three minutes after their 354 (RFC 5321 4.5.3.2.5).
const MEMORY_WAIT_MAX: Duration = Duration::from_secs(90);

/// A body in the store. It can be read only while the store has not failed.
pub(super) struct StoredBody<'a> {
    shared: &'a Arc<Shared>,
    queue: &'a DestinationQueue,
    reservation: &'a Reservation,
    row: &'a MessageRow,
    id: MessageId,
    claim: Claim,
    memory: Option<FairPermit>,
    /// Reason why the body could not be read.
    pub(super) failure: Option<NotSentReason>,
}

impl<'a> StoredBody<'a> {
    /// Returns the body of message `id`, which requests memory as `claim` says.
    pub(super) fn new(
        (shared, queue, reservation): (&'a Arc<Shared>, &'a DestinationQueue, &'a Reservation),
        row: &'a MessageRow,
        id: MessageId,
        claim: Claim,
    ) -> Self {
        let claim = Claim { units: row.size_bytes / 1024 + 1, ..claim };
        Self { shared, queue, reservation, row, id, claim, memory: None, failure: None }
    }

    /// Waits for memory. Another account's message for the same site goes first.
    async fn memory(&self) -> Result<FairPermit, NotSentReason> {
        tokio::select! {
            biased;
            memory = timeout(MEMORY_WAIT_MAX, self.shared.bodies.take(self.claim)) => {
                memory.ok().flatten().ok_or(NotSentReason::NoMemory)
            }
            () = self.queue.is_wanted_by_others(self.claim.account, self.shared) => Err(NotSentReason::LetsPass),
        }
    }

    async fn load(&mut self) -> Result<Bytes, NotSentReason> {
        self.reservation.begins(Step::Memory);
        self.memory = Some(self.memory().await?);
        self.reservation.begins(Step::Sending);
        let store = &self.shared.engine.store;
        // The wait for a 354 or for memory may have been long. If the store failed meanwhile, the outcome could not be
        // recorded, and the message would be sent again after the restart.
        store.health().check().map_err(NotSentReason::Unreadable)?;
        if let Some(body) = store.content().fresh(self.id) {
            return Ok(body.into());
        }
        // Reading, decrypting and decompressing would block all connections.
        let (reader, place, id, now) = (Arc::clone(store), self.row.place, self.id, self.shared.expiry());
        let body_reads = &self.shared.engine.body_reads;
        let read = body_reads.run(self.claim.account, move || reader.body(place, id, now)).await;
        store.health().check().map_err(NotSentReason::Unreadable)?;
        match read.unwrap_or_else(|error| Err(Unreadable::Failed(error))) {
            Ok(body) => Ok(body.into()),
            Err(Unreadable::Gone) => Err(NotSentReason::Gone),
            Err(Unreadable::Failed(error)) => Err(NotSentReason::Damaged(error)),
        }
    }
}

impl Body for StoredBody<'_> {
    fn size(&self) -> usize {
        usize::try_from(self.row.size_bytes).unwrap_or(usize::MAX)
    }

    fn read(&mut self) -> BoxFuture<'_, Option<Bytes>> {
        Box::pin(async move { self.load().await.map_err(|failure| self.failure = Some(failure)).ok() })
    }

    fn may_end(&mut self) -> BoxFuture<'_, bool> {
        Box::pin(async {
            let may_end = self.shared.engine.may_send().await;
            if !may_end {
                self.failure = Some(NotSentReason::Unconfirmed);
            }
            may_end
        })
    }
}
