//! The context of one request, between its arrival and its handler.

use std::sync::{Arc, OnceLock};

use hyper::body::Incoming;
use hyper::http::request::Parts;

use super::authenticator::Admission;
use super::body::ReadBody;
use super::body_budget::BudgetHolder;
use super::compat::service::CompatService;
use super::route::{Call, Params};
use crate::net::http_client::Client;
use crate::net::http_listener::Connection;

/// A request and what the service knows about it so far.
pub(super) struct RequestContext<'j> {
    pub(super) head: Parts,
    pub(super) body: Incoming,
    pub(super) connection: &'j Arc<Connection>,
    pub(super) client: Client,
    pub(super) request_id: &'j Arc<str>,
    /// Whether an error should be a page.
    pub(super) for_people: bool,
    /// The other service whose client sent the request, if it is for a compatible API.
    pub(super) service: Option<CompatService>,
    /// Set once the caller is known. From then on every answer has the rate headers.
    pub(super) admission: &'j OnceLock<Admission>,
    /// Holder that the answer is charged to. If it isn't set, the client is unauthenticated.
    pub(super) asker: &'j OnceLock<BudgetHolder>,
}

impl RequestContext<'_> {
    /// Returns the call for the handler, without its body. Takes the headers.
    pub(super) fn call<C>(&mut self, caller: C, params: Params) -> Call<C> {
        Call {
            caller,
            method: self.head.method.clone(),
            headers: std::mem::take(&mut self.head.headers),
            request_id: Arc::clone(self.request_id),
            uri: self.head.uri.clone(),
            params,
            body: ReadBody::none(),
            connection: Arc::clone(self.connection),
            client: self.client,
        }
    }
}
