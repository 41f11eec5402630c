//! Deliveries that the account asks for: a test, an event once more, or a replay of many (contract 5).

use std::sync::Arc;

use super::Engine;
use super::audit::Behalf;
use super::deliveries::DeliveryRecord;
use crate::base::id::{AccountId, DeliveryId, EndpointId, Ulid};
use crate::base::time::Timestamp;
use crate::domain::audit::{Action, Change};
use crate::store::Store;
use crate::store::error::{Stop, StoreError};
use crate::store::op::redeliver::{Redeliver, RedeliverRefusal, Replay, ReplayOf, TestEndpoint};
use crate::store::read::Read as _;
use crate::store::schema::{Table, meta};

impl Engine {
    /// Owes an endpoint an event of type `test`.
    ///
    /// # Errors
    /// The refusal, or the store's failure.
    pub async fn test_endpoint(
        &self,
        on: impl Into<Behalf>,
        endpoint: EndpointId,
    ) -> Result<DeliveryRecord, Stop<RedeliverRefusal>> {
        let on = on.into();
        let account = on.account;
        let id = self.commit_on(on, TestEndpoint { account, endpoint }).await?;
        self.made(account, id)
    }

    /// Owes an endpoint once more what it was owed by a delivery.
    ///
    /// # Errors
    /// The refusal, or the store's failure.
    pub async fn redeliver(
        &self,
        on: impl Into<Behalf>,
        delivery: DeliveryId,
    ) -> Result<DeliveryRecord, Stop<RedeliverRefusal>> {
        let on = on.into();
        let account = on.account;
        let id = self.commit_on(on, Redeliver { account, delivery }).await?;
        self.made(account, id)
    }

    fn made(&self, account: AccountId, id: DeliveryId) -> Result<DeliveryRecord, Stop<RedeliverRefusal>> {
        let found = self.delivery(account, id)?;
        found.map(|(record, _)| record).ok_or(Stop::Refused(RedeliverRefusal::NotFound))
    }

    /// Owes an endpoint its events since a moment once more; how many there were. It goes on to its end though the
    /// caller go away.
    ///
    /// # Errors
    /// The refusal, or the store's failure.
    pub async fn replay(
        &self,
        on: impl Into<Behalf>,
        endpoint: EndpointId,
        of: ReplayOf,
        since: Timestamp,
    ) -> Result<u64, Stop<RedeliverRefusal>> {
        let on = on.into();
        let account = on.account;
        self.note(&on, Change::new(Action::EventsReplayed, endpoint, format!("since {since}"))).await?;
        let since = Ulid::new(since, [0; 10]);
        let replay = Replay { account, endpoint, of, since, from: since, until: self.next_id()? };
        let replayed = tokio::spawn(run(Arc::clone(&self.store), replay));
        replayed.await.unwrap_or(Err(Stop::Failed(StoreError::Panicked)))
    }

    /// An identifier above all that the writer has given out.
    fn next_id(&self) -> Result<Ulid, StoreError> {
        let last = self.store.snapshot()?.get(Table::Meta, meta::LAST_ID)?;
        let last: Option<[u8; 16]> = last.and_then(|last| last.try_into().ok());
        Ok(last.map(|last| Ulid(last).next()).unwrap_or_default())
    }
}

/// Each slice is an operation of its own, so that a long replay holds up nobody.
async fn run(store: Arc<Store>, mut replay: Replay) -> Result<u64, Stop<RedeliverRefusal>> {
    let mut created = 0;
    loop {
        let slice = store.commit(replay.clone()).await?;
        created += slice.created;
        let Some(next) = slice.next else { return Ok(created) };
        replay.from = next;
    }
}
