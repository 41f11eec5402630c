//! Webhook endpoints: creating, changing, deleting and reading them (contract 5).

use super::Engine;
use super::audit::Behalf;
use super::listing::{self, Page, PageRequest};
use crate::base::entropy;
use crate::base::id::{AccountId, EndpointId};
use crate::base::secret::{SealedSecret, Secret};
use crate::base::signature::webhook_secret;
use crate::domain::event::EventType;
use crate::domain::webhook_url::WebhookUrl;
use crate::machine::endpoint;
use crate::store::error::{OpError, StoreError};
use crate::store::op::endpoint::{CreateEndpoint, EndpointRefusal, RotateSecret, UpdateEndpoint};
use crate::store::op::endpoint_end::DeleteEndpoint;
use crate::store::read::Read as _;
use crate::store::row::endpoint::EndpointRow;
use crate::store::schema;

/// Properties of a new endpoint.
#[derive(Clone, Debug)]
pub struct NewEndpoint {
    /// URL that events are posted to.
    pub url: WebhookUrl,
    /// Event types to send; `None` for all.
    pub events: Option<Vec<EventType>>,
    /// Description, chosen by the account.
    pub description: Option<String>,
}

/// Changes of an endpoint; `None` leaves a member unchanged.
#[derive(Clone, Debug, Default)]
pub struct EndpointChange {
    /// URL that events are posted to.
    pub url: Option<WebhookUrl>,
    /// Event types to send; `Some(None)` for all.
    pub events: Option<Option<Vec<EventType>>>,
    /// Description, chosen by the account.
    pub description: Option<Option<String>>,
    /// Whether the endpoint is enabled.
    pub enabled: Option<bool>,
}

impl Engine {
    /// Creates an endpoint with a new secret, which is returned only once.
    ///
    /// # Errors
    /// The refusal, or the store's failure.
    pub async fn create_endpoint(
        &self,
        on: impl Into<Behalf>,
        new: NewEndpoint,
    ) -> Result<(EndpointId, EndpointRow, Secret), OpError<EndpointRefusal>> {
        let secret = webhook_secret(&entropy::bytes(&*self.entropy));
        let (id, row) = self.create_endpoint_with(on, new, &secret).await?;
        Ok((id, row, secret))
    }

    /// Creates an endpoint with this secret.
    ///
    /// # Errors
    /// The refusal, or the store's failure.
    pub(super) async fn create_endpoint_with(
        &self,
        on: impl Into<Behalf>,
        new: NewEndpoint,
        secret: &Secret,
    ) -> Result<(EndpointId, EndpointRow), OpError<EndpointRefusal>> {
        let (on, now) = (on.into(), self.clock.now());
        let id: EndpointId = self.store.reserve_id(now);
        let sealed = self.sealed(id, secret);
        let row = EndpointRow {
            url: new.url.into(),
            events: new.events,
            description: new.description,
            secret: sealed,
            state: endpoint::State::default(),
            failed: Vec::new(),
            last_success_at: None,
            last_failure_at: None,
            created_at: now,
            updated_at: now,
        };
        let op = CreateEndpoint { account: on.account, id, row };
        let row = self.commit_on(on, op).await?;
        Ok((id, row))
    }

    /// Changes an endpoint.
    ///
    /// # Errors
    /// The refusal, or the store's failure.
    pub async fn update_endpoint(
        &self,
        on: impl Into<Behalf>,
        endpoint: EndpointId,
        change: EndpointChange,
    ) -> Result<EndpointRow, OpError<EndpointRefusal>> {
        let EndpointChange { url, events, description, enabled } = change;
        let (on, url) = (on.into(), url.map(String::from));
        let op = UpdateEndpoint { account: on.account, endpoint, url, events, description, enabled };
        self.commit_on(on, op).await
    }

    /// Deletes an endpoint. Its outstanding deliveries end as failed.
    ///
    /// # Errors
    /// The refusal, or the store's failure.
    pub async fn delete_endpoint(
        &self,
        on: impl Into<Behalf>,
        endpoint: EndpointId,
    ) -> Result<(), OpError<EndpointRefusal>> {
        let on = on.into();
        let op = DeleteEndpoint { account: on.account, endpoint };
        self.commit_on(on, op).await.map(drop)
    }

    /// Replaces an endpoint's secret. The new one is returned only once.
    ///
    /// # Errors
    /// The refusal, or the store's failure.
    pub async fn rotate_secret(
        &self,
        on: impl Into<Behalf>,
        endpoint: EndpointId,
    ) -> Result<(EndpointRow, Secret), OpError<EndpointRefusal>> {
        let on = on.into();
        let (secret, sealed) = self.new_secret(endpoint);
        let op = RotateSecret { account: on.account, endpoint, secret: sealed };
        let row = self.commit_on(on, op).await?;
        Ok((row, secret))
    }

    /// Returns a new secret, in the clear and sealed for the endpoint.
    fn new_secret(&self, id: EndpointId) -> (Secret, SealedSecret) {
        let secret = webhook_secret(&entropy::bytes(&*self.entropy));
        let sealed = self.sealed(id, &secret);
        (secret, sealed)
    }

    /// Seals a secret for the endpoint.
    pub(super) fn sealed(&self, id: EndpointId, secret: &Secret) -> SealedSecret {
        self.store.master_key().seal(&EndpointRow::secret_context(id), secret.expose(), &*self.entropy)
    }

    /// Returns an endpoint of the account.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn endpoint(&self, account: AccountId, id: EndpointId) -> Result<Option<EndpointRow>, StoreError> {
        self.store.snapshot()?.row(&schema::endpoint(account, id))
    }

    /// Returns a page of the account's endpoints.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn endpoints(
        &self,
        account: AccountId,
        page: PageRequest,
    ) -> Result<Page<(EndpointId, EndpointRow)>, StoreError> {
        let Page { rows, next } = listing::rows(&self.store.snapshot()?, account.as_bytes(), page)?;
        Ok(Page { rows: rows.into_iter().map(|(id, row)| (EndpointId(id), row)).collect(), next })
    }
}
