//! Webhook endpoints and what is owed to them: registering, changing, deleting and looking (contract 5).

use super::Engine;
use super::listing::{self, Page, PageRequest};
use crate::base::entropy;
use crate::base::id::{AccountId, DeliveryId, EndpointId};
use crate::base::secret::{Sealed, Secret};
use crate::base::signature::webhook_secret;
use crate::domain::event::EventType;
use crate::domain::webhook_url::WebhookUrl;
use crate::machine::delivery::ATTEMPTS_MAX;
use crate::machine::endpoint;
use crate::store::error::{Stop, StoreError};
use crate::store::op::endpoint::{CreateEndpoint, EndpointRefusal, RotateSecret, UpdateEndpoint};
use crate::store::op::endpoint_end::DeleteEndpoint;
use crate::store::read::Read;
use crate::store::row::delivery::{AttemptRow, DeliveryRow};
use crate::store::row::endpoint::EndpointRow;
use crate::store::schema::{self, Table};

/// What a new endpoint is to be.
#[derive(Clone, Debug)]
pub struct NewEndpoint {
    /// Where events are posted.
    pub url: WebhookUrl,
    /// Which events; all where absent.
    pub events: Option<Vec<EventType>>,
    /// The account's own words.
    pub description: Option<String>,
}

/// What is to change of an endpoint; absent members stay as they are.
#[derive(Clone, Debug, Default)]
pub struct EndpointChange {
    /// Where events are posted.
    pub url: Option<WebhookUrl>,
    /// Which events; all where it is set to none.
    pub events: Option<Option<Vec<EventType>>>,
    /// The account's own words.
    pub description: Option<Option<String>>,
    /// Whether it may be attempted.
    pub enabled: Option<bool>,
}

/// A delivery with what its record shows beside its row.
#[derive(Clone, Debug)]
pub struct DeliveryRecord {
    /// Its identifier.
    pub id: DeliveryId,
    /// Its row.
    pub row: DeliveryRow,
    /// How its endpoint stands.
    pub endpoint: EndpointStanding,
}

/// Whether an endpoint may be attempted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EndpointStanding {
    /// It may.
    Enabled,
    /// Not now: what waits for it is held.
    Disabled,
    /// It was deleted: what waited for it is over.
    Gone,
}

impl EndpointStanding {
    const fn of(row: &EndpointRow) -> Self {
        if row.state.is_enabled() { Self::Enabled } else { Self::Disabled }
    }
}

/// The attempts of a delivery, each with its number.
pub type NumberedAttempts = Vec<(u8, AttemptRow)>;

impl Engine {
    /// Registers an endpoint with a new secret, which is given out this once.
    ///
    /// # Errors
    /// The refusal, or the store's failure.
    pub async fn create_endpoint(
        &self,
        account: AccountId,
        new: NewEndpoint,
    ) -> Result<(EndpointId, EndpointRow, Secret), Stop<EndpointRefusal>> {
        let now = self.clock.now();
        let id: EndpointId = self.store.reserve_id(now);
        let (secret, sealed) = self.new_secret(id);
        let row = EndpointRow {
            url: new.url.into(),
            events: new.events,
            description: new.description,
            secret: sealed,
            state: endpoint::State::default(),
            last_success_at: None,
            last_failure_at: None,
            created_at: now,
            updated_at: now,
        };
        let row = self.store.commit(CreateEndpoint { account, id, row }).await?;
        Ok((id, row, secret))
    }

    /// Changes an endpoint.
    ///
    /// # Errors
    /// The refusal, or the store's failure.
    pub async fn update_endpoint(
        &self,
        account: AccountId,
        endpoint: EndpointId,
        change: EndpointChange,
    ) -> Result<EndpointRow, Stop<EndpointRefusal>> {
        let EndpointChange { url, events, description, enabled } = change;
        let url = url.map(String::from);
        self.store.commit(UpdateEndpoint { account, endpoint, url, events, description, enabled }).await
    }

    /// Deletes an endpoint. What it was still owed ends as failed.
    ///
    /// # Errors
    /// The refusal, or the store's failure.
    pub async fn delete_endpoint(&self, account: AccountId, endpoint: EndpointId) -> Result<(), Stop<EndpointRefusal>> {
        self.store.commit(DeleteEndpoint { account, endpoint }).await
    }

    /// Gives an endpoint a new secret, which is given out this once.
    ///
    /// # Errors
    /// The refusal, or the store's failure.
    pub async fn rotate_secret(
        &self,
        account: AccountId,
        endpoint: EndpointId,
    ) -> Result<(EndpointRow, Secret), Stop<EndpointRefusal>> {
        let (secret, sealed) = self.new_secret(endpoint);
        let row = self.store.commit(RotateSecret { account, endpoint, secret: sealed }).await?;
        Ok((row, secret))
    }

    /// A new secret, and the same sealed for the endpoint.
    fn new_secret(&self, id: EndpointId) -> (Secret, Sealed) {
        let secret = webhook_secret(&entropy::bytes(&*self.entropy));
        let sealed = self.store.master_key().seal(&EndpointRow::secret_context(id), secret.expose(), &*self.entropy);
        (secret, sealed)
    }

    /// An endpoint of the account.
    ///
    /// # Errors
    /// Those of the store.
    pub fn endpoint(&self, account: AccountId, id: EndpointId) -> Result<Option<EndpointRow>, StoreError> {
        self.store.snapshot()?.row(&schema::endpoint(account, id))
    }

    /// A page of the account's endpoints.
    ///
    /// # Errors
    /// Those of the store.
    pub fn endpoints(
        &self,
        account: AccountId,
        page: PageRequest,
    ) -> Result<Page<(EndpointId, EndpointRow)>, StoreError> {
        let Page { rows, next } = listing::rows(&self.store.snapshot()?, account.as_bytes(), page)?;
        Ok(Page { rows: rows.into_iter().map(|(id, row)| (EndpointId(id), row)).collect(), next })
    }

    /// A delivery of the account, with its attempts by number.
    ///
    /// # Errors
    /// Those of the store.
    pub fn delivery(
        &self,
        account: AccountId,
        id: DeliveryId,
    ) -> Result<Option<(DeliveryRecord, NumberedAttempts)>, StoreError> {
        let snapshot = self.store.snapshot()?;
        let key = schema::delivery(account, id);
        let Some(row) = snapshot.row::<DeliveryRow>(&key)? else { return Ok(None) };
        let attempts = snapshot.rows::<AttemptRow>(&key, usize::from(ATTEMPTS_MAX))?;
        let attempts = attempts.into_iter().filter_map(|(key, row)| Some((*key.last()?, row))).collect();
        let endpoint = snapshot.row::<EndpointRow>(&schema::endpoint(account, row.endpoint))?;
        let endpoint = endpoint.as_ref().map_or(EndpointStanding::Gone, EndpointStanding::of);
        Ok(Some((DeliveryRecord { id, row, endpoint }, attempts)))
    }

    /// A page of the deliveries of an endpoint; none where there is no such endpoint.
    ///
    /// # Errors
    /// Those of the store.
    pub fn deliveries(
        &self,
        account: AccountId,
        endpoint: EndpointId,
        page: PageRequest,
    ) -> Result<Option<Page<DeliveryRecord>>, StoreError> {
        let snapshot = self.store.snapshot()?;
        let prefix = schema::endpoint(account, endpoint);
        let Some(of) = snapshot.row::<EndpointRow>(&prefix)? else { return Ok(None) };
        let endpoint = EndpointStanding::of(&of);
        let Page { rows: ids, next } = listing::ids(&snapshot, Table::DeliveriesByEndpoint, &prefix, page)?;
        let mut rows = Vec::with_capacity(ids.len());
        for id in ids.into_iter().map(DeliveryId) {
            if let Some(row) = snapshot.row::<DeliveryRow>(&schema::delivery(account, id))? {
                rows.push(DeliveryRecord { id, row, endpoint });
            }
        }
        Ok(Some(Page { rows, next }))
    }
}
