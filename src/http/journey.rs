//! One request between its arrival and its handler, with what the service has learnt of it on the way.

use std::sync::{Arc, OnceLock};

use hyper::body::Incoming;
use hyper::http::request::Parts;

use super::body::ReadBody;
use super::body_budget::Holder;
use super::compat::door::Door;
use super::gate::Admission;
use super::route::{Call, Params};
use crate::net::http_client::Client;
use crate::net::http_listener::Connection;

/// A request on its way, and what was learnt of it.
pub(super) struct Journey<'j> {
    pub(super) head: Parts,
    pub(super) body: Incoming,
    pub(super) connection: &'j Arc<Connection>,
    pub(super) client: Client,
    pub(super) request_id: &'j Arc<str>,
    /// Whether an error is to be a page.
    pub(super) for_people: bool,
    /// The service whose client asks, where it is not one of ours.
    pub(super) door: Option<Door>,
    /// Set once the caller is known: from then on every answer tells the rate.
    pub(super) admission: &'j OnceLock<Admission>,
    /// Whom the answer is charged to; a stranger where it isn't set.
    pub(super) asker: &'j OnceLock<Holder>,
}

impl Journey<'_> {
    /// The call that the handler gets, without its body yet. Takes the headers.
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
