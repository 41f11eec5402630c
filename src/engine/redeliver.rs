//! Deliveries on request: a test, a repetition of one event, or a replay of many events (contract 5).

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use super::Engine;
use super::audit::Behalf;
use super::deliveries::DeliveryRecord;
use crate::base::id::{AccountId, DeliveryId, EndpointId, Ulid};
use crate::base::time::Timestamp;
use crate::domain::audit::{Action, Change};
use crate::store::error::{OpError, StoreError};
use crate::store::op::redeliver::{Redeliver, RedeliverRefusal, Replay, ReplayOf, ReplaySlice, TestEndpoint};
use crate::store::read::Read as _;
use crate::store::schema::{Table, meta};

impl Engine {
    /// Adds a delivery of a new event of type `test`.
    ///
    /// # Errors
    /// The refusal, or the store's failure.
    pub async fn test_endpoint(
        &self,
        on: impl Into<Behalf>,
        endpoint: EndpointId,
    ) -> Result<DeliveryRecord, OpError<RedeliverRefusal>> {
        let on = on.into();
        let account = on.account;
        let id = self.commit_on(on, TestEndpoint { account, endpoint }).await?;
        self.made(account, id)
    }

    /// Adds a delivery of the same event as an existing delivery.
    ///
    /// # Errors
    /// The refusal, or the store's failure.
    pub async fn redeliver(
        &self,
        on: impl Into<Behalf>,
        delivery: DeliveryId,
    ) -> Result<DeliveryRecord, OpError<RedeliverRefusal>> {
        let on = on.into();
        let account = on.account;
        let id = self.commit_on(on, Redeliver { account, delivery }).await?;
        self.made(account, id)
    }

    fn made(&self, account: AccountId, id: DeliveryId) -> Result<DeliveryRecord, OpError<RedeliverRefusal>> {
        let found = self.delivery(account, id)?;
        found.map(|(record, _)| record).ok_or(OpError::Refused(RedeliverRefusal::NotFound))
    }

    /// Adds deliveries of an endpoint's events since a given time, and returns their number. Events with an outstanding
    /// delivery to the endpoint are skipped. The replay continues even if the caller is cancelled.
    ///
    /// # Errors
    /// The refusal, or the store's failure.
    pub async fn replay(
        self: &Arc<Self>,
        on: impl Into<Behalf>,
        endpoint: EndpointId,
        of: ReplayOf,
        since: Timestamp,
    ) -> Result<u64, OpError<RedeliverRefusal>> {
        let on = on.into();
        let account = on.account;
        let turn = self.replays.begin(account, endpoint).ok_or(OpError::Refused(RedeliverRefusal::ReplayRunning))?;
        self.note(&on, Change::new(Action::EventsReplayed, endpoint, format!("since {since}"))).await?;
        let replay = Replay { account, endpoint, of, since: Ulid::new(since, [0; 10]), until: self.next_id()? };
        let engine = Arc::clone(self);
        let replayed = tokio::spawn(async move {
            let _turn = turn;
            run(&engine, replay).await
        });
        replayed.await.unwrap_or(Err(OpError::Failed(StoreError::Panicked)))
    }

    /// Returns an identifier greater than all assigned ones.
    fn next_id(&self) -> Result<Ulid, StoreError> {
        let last = self.store.snapshot()?.get(Table::Meta, meta::LAST_ID)?;
        let last: Option<[u8; 16]> = last.and_then(|last| last.try_into().ok());
        Ok(last.map(|last| Ulid(last).next()).unwrap_or_default())
    }
}

/// Endpoints with a running replay. A replay ends with its process, so this is kept in memory.
#[derive(Default)]
pub(super) struct Replays(Arc<Mutex<HashSet<RunningReplays>>>);

type RunningReplays = (AccountId, EndpointId);

/// A running replay, until this value is dropped.
struct RunningReplay {
    running: Arc<Mutex<HashSet<RunningReplays>>>,
    own: RunningReplays,
}

impl Replays {
    /// Starts a replay for an endpoint; `None` if one is running.
    fn begin(&self, account: AccountId, endpoint: EndpointId) -> Option<RunningReplay> {
        let own = (account, endpoint);
        let is_first = self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(own);
        is_first.then(|| RunningReplay { running: Arc::clone(&self.0), own })
    }
}

impl Drop for RunningReplay {
    fn drop(&mut self) {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.own);
    }
}

/// Alternates between searching and writing. Each part is its own operation, so a long replay never blocks other work.
async fn run(engine: &Engine, replay: Replay) -> Result<u64, OpError<RedeliverRefusal>> {
    let (mut created, mut from) = (0, replay.since);
    loop {
        let searched = Arc::clone(&engine.store);
        let search = move || replay.search(&searched.snapshot()?, from);
        let found = engine.blocking(replay.account, search).await??;
        if !found.rows.is_empty() {
            engine.check_space()?;
            let slice = engine.store.commit(ReplaySlice { replay, rows: found.rows }).await?;
            created += slice.created;
            if slice.is_full {
                return Err(OpError::Refused(RedeliverRefusal::TooManyOutstanding { created }));
            }
        }
        let Some(next) = found.next else { return Ok(created) };
        from = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_has_one_replay_at_a_time() {
        let (replays, account) = (Replays::default(), AccountId::default());
        let (one, other) = (EndpointId(Ulid([1; 16])), EndpointId(Ulid([2; 16])));
        let turn = replays.begin(account, one);
        assert!(turn.is_some() && replays.begin(account, one).is_none());
        assert!(replays.begin(account, other).is_some());
        drop(turn);
        assert!(replays.begin(account, one).is_some());
    }
}
