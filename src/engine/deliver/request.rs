//! The signed request of one attempt (contract 5).

use bytes::Bytes;

use crate::base::id::{AccountId, DeliveryId, EndpointId};
use crate::base::time::Timestamp;
use crate::domain::stream::Stream;
use crate::engine::ports::{Requester, WebhookRequest};
use crate::engine::webhook::WebhookCall;
use crate::store::Store;
use crate::store::error::StoreError;
use crate::store::read::Read;
use crate::store::row::delivery::{DeliveryPayload, DeliveryRow};
use crate::store::row::endpoint::EndpointRow;
use crate::store::schema::{self, Table};
use crate::store::snapshot::Snapshot;

/// Data of one attempt.
pub(super) struct AttemptInput<'a> {
    pub(super) account: AccountId,
    pub(super) endpoint: EndpointId,
    pub(super) delivery: DeliveryId,
    pub(super) row: &'a DeliveryRow,
    /// Attempt number, 1 to 7.
    pub(super) number: u8,
    /// Wall-clock time of the attempt, which the signature contains.
    pub(super) at: Timestamp,
}

impl AttemptInput<'_> {
    /// Returns the request, signed with the current secret: it may have been rotated while the attempt waited.
    pub(super) fn request(&self, store: &Store) -> Result<WebhookRequest, StoreError> {
        let damaged = |fault: String| StoreError::Row { table: Table::Endpoints, fault };
        let snapshot = store.snapshot()?;
        let endpoint = snapshot.row::<EndpointRow>(&schema::endpoint(self.account, self.endpoint))?;
        let endpoint = endpoint.ok_or_else(|| damaged("the endpoint was deleted".to_owned()))?;
        let secret = store
            .master_key()
            .open(&EndpointRow::secret_context(self.endpoint), &endpoint.secret.0)
            .map_err(|error| damaged(error.to_string()))?;
        let url = url::Url::parse(&endpoint.url).map_err(|error| damaged(error.to_string()))?;
        let body = self.body(&snapshot)?;
        let event = self.row.event.to_string();
        let telling = WebhookCall {
            event: &event,
            kind: self.row.owed.event_type(),
            delivery: self.delivery,
            number: self.number,
            at: self.at,
            body: &body,
        };
        let headers = telling.headers(&secret);
        // An endpoint counts as an account: the mail of its own account never delays the lookup of its host, and no
        // attempt fails because of that.
        let requester = Requester { account: AccountId(self.endpoint.0), stream: Stream::Transactional };
        Ok(WebhookRequest { url, headers, body: Bytes::from(body), requester })
    }

    /// Returns the event's bytes as they were committed.
    fn body(&self, snapshot: &Snapshot) -> Result<Vec<u8>, StoreError> {
        match &self.row.owed {
            DeliveryPayload::Test { body } => Ok(body.clone()),
            DeliveryPayload::Event { message, .. } => {
                let gone = || StoreError::Row { table: Table::Timeline, fault: "its event is missing".into() };
                let key = schema::timeline(self.account, *message, self.row.event);
                snapshot.get(Table::Timeline, &key)?.ok_or_else(gone)
            }
        }
    }
}
