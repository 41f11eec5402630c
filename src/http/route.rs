//! One row of the route table, and what its handler gets.
//!
//! The kind of access and the handler stand in one value, so a handler that needs a caller can't be put on an open
//! path: its [`Call`] carries the proof that the checks before it were passed.

use std::sync::Arc;

use bytes::Bytes;
use hyper::Method;
use hyper::header::{HOST, HeaderMap, HeaderName};

use super::answer::Answer;
use super::body::ReadBody;
use super::body_budget::Holder;
use super::compat::door::Door;
use super::error::ApiError;
use super::json;
use super::query::Query;
use super::service::Gate;
use crate::domain::api_key::Scopes;
use crate::domain::fields::Fields;
use crate::domain::violation::Violations;
use crate::engine::ports::BoxFuture;
use crate::net::http_client::Client;
use crate::net::http_listener::Connection;

/// Handler of a call: an `async fn handler(state: &S, call: Call<C>)`, boxed by the row of the table:
/// `|state, call| Box::pin(handler(state, call))`.
pub type Handler<S, C> = for<'a> fn(&'a S, Call<C>) -> BoxFuture<'a, Result<Answer, ApiError>>;

/// Whether a page takes the body of a call, which is not read yet: whom the body is charged to, or the answer that
/// refuses it.
pub type PageCheck<S> = for<'a> fn(&'a S, &'a Call<()>) -> Result<Holder, Box<Answer>>;

/// Access rule and handler of a route.
pub enum Access<S: Gate> {
    /// Anyone.
    Open(Handler<S, ()>),
    /// The page itself decides: people come with a session, not with a key. On the operator's socket the path is
    /// unknown. The check runs before a body is read, and again with the handler.
    Page(PageCheck<S>, Handler<S, ()>),
    /// Clients on this machine, as far as [`super::dev_guard`] lets them.
    Loopback(Handler<S, ()>),
    /// Commands that come in by the operator's socket; for others the path is unknown.
    Operator(Handler<S, ()>),
    /// Any key.
    Key(Handler<S, S::Caller>),
    /// A key that has all of the scopes.
    Scoped(Scopes, Handler<S, S::Caller>),
}

/// Whether a request's body is read, and of which types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyRule {
    /// Not at all.
    Ignored,
    /// Read to be held to nothing: it is empty, or an object without members ([`Call::no_members`]).
    Nothing,
    /// Any media type is accepted.
    OfAnyType,
    /// With one of these types, or none.
    Of(&'static [&'static str]),
}

/// Stands for every type where the types of a route are listed.
pub(super) const ANY_TYPE: &[&str] = &["*/*"];

impl BodyRule {
    /// `application/json`.
    pub const JSON: Self = Self::Of(&["application/json"]);

    /// The types that are read; none where nothing is.
    pub const fn types(self) -> Option<&'static [&'static str]> {
        match self {
            Self::Ignored => None,
            Self::Nothing => Some(&["application/json"]),
            Self::OfAnyType => Some(ANY_TYPE),
            Self::Of(types) => Some(types),
        }
    }
}

/// Maximum size of a route's body ([`super::body::BodyLimits::most`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodySize {
    /// A form of the panel.
    Form,
    /// JSON that is no message.
    Json,
    /// A list or a file, of a caller who is authenticated.
    Upload,
    /// A message.
    Message,
}

/// The parameters of a path, by name, decoded.
pub(super) type Params = Vec<(&'static str, String)>;

/// One row of the table.
pub struct Route<S: Gate> {
    /// Its method. HEAD comes with GET.
    pub method: Method,
    /// Its path, such as `/v1/messages/{id}`.
    pub path: &'static str,
    /// Its name in the log, such as `messages.show`.
    pub name: &'static str,
    /// Access rule and handler.
    pub access: Access<S>,
    /// Rule for the body.
    pub body: BodyRule,
    /// Maximum size of the body.
    pub size: BodySize,
    /// The service whose clients it serves, where it is not for ours.
    pub door: Option<Door>,
}

impl<S: Gate> Route<S> {
    /// A row; POST, PUT and PATCH read JSON, the others no body.
    pub fn new(method: Method, path: &'static str, name: &'static str, access: Access<S>) -> Self {
        let reads = matches!(method, Method::POST | Method::PUT | Method::PATCH);
        let body = if reads { BodyRule::JSON } else { BodyRule::Ignored };
        Self { method, path, name, access, body, size: BodySize::Json, door: None }
    }

    /// A row for any key.
    pub fn key(method: Method, path: &'static str, name: &'static str, handler: Handler<S, S::Caller>) -> Self {
        Self::new(method, path, name, Access::Key(handler))
    }

    /// A row for keys with all of `scopes`.
    pub fn scoped(
        method: Method,
        path: &'static str,
        name: &'static str,
        scopes: impl Into<Scopes>,
        handler: Handler<S, S::Caller>,
    ) -> Self {
        Self::new(method, path, name, Access::Scoped(scopes.into(), handler))
    }

    /// A row for anyone.
    pub fn open(method: Method, path: &'static str, name: &'static str, handler: Handler<S, ()>) -> Self {
        Self::new(method, path, name, Access::Open(handler))
    }

    /// The row with another rule for its body.
    #[must_use]
    pub const fn with_body(mut self, body: BodyRule) -> Self {
        self.body = body;
        self
    }

    /// The row for clients of another service.
    #[must_use]
    pub(super) const fn of_door(mut self, door: Door) -> Self {
        self.door = Some(door);
        self
    }

    /// The row with bodies of another size.
    #[must_use]
    pub const fn with_size(mut self, size: BodySize) -> Self {
        self.size = size;
        self
    }
}

/// A request that has passed every check before its handler. `C` is the caller, or `()` on open paths.
pub struct Call<C> {
    /// Author of the request.
    pub caller: C,
    /// The method; HEAD where GET was routed.
    pub method: Method,
    /// The request's headers.
    pub headers: HeaderMap,
    /// The identifier under which the request is logged.
    pub request_id: Arc<str>,
    pub(super) uri: hyper::Uri,
    pub(super) params: Params,
    pub(super) body: ReadBody,
    pub(super) connection: Arc<Connection>,
    pub(super) client: Client,
}

impl<C> Call<C> {
    /// A parameter of the path, decoded; empty where the path has none of that name.
    pub fn param(&self, name: &str) -> &str {
        self.params.iter().find(|(known, _)| *known == name).map_or("", |(_, value)| value)
    }

    /// The path as it was asked for.
    pub fn path(&self) -> &str {
        self.uri.path()
    }

    /// The path and the query as they were asked for.
    pub fn path_and_query(&self) -> &str {
        self.uri.path_and_query().map_or("/", hyper::http::uri::PathAndQuery::as_str)
    }

    /// The host that was asked: `:authority` in HTTP/2, the `Host` header in HTTP/1.
    pub fn host(&self) -> Option<&str> {
        self.uri.authority().map(hyper::http::uri::Authority::as_str).or_else(|| self.header(&HOST))
    }

    /// Takes the body out, so that its memory is free as soon as its taker drops it.
    pub fn take_body(&mut self) -> Bytes {
        std::mem::replace(&mut self.body, ReadBody::none()).bytes
    }

    /// The query, which may only hold the parameters of `known`; what is wrong goes to `violations`.
    pub fn query(&self, known: &[&'static str], violations: &mut Violations) -> Query {
        Query::parse(self.uri.query().unwrap_or(""), known, violations)
    }

    /// The body as sent; empty where the route reads none.
    pub const fn body(&self) -> &Bytes {
        &self.body.bytes
    }

    /// The body as a strict JSON object.
    ///
    /// # Errors
    /// [`ApiError::InvalidJson`]; a query, which no request with a body takes (contract 1: unknown query parameters).
    pub fn json(&self) -> Result<serde_json::Map<String, serde_json::Value>, ApiError> {
        self.no_query()?;
        json::parse_object(self.body())
    }

    /// Refuses a query, and a body that says anything.
    ///
    /// # Errors
    /// A fault for each parameter or member; [`ApiError::InvalidJson`].
    pub fn no_members(&self) -> Result<(), ApiError> {
        self.no_query()?;
        if self.body().is_empty() {
            return Ok(());
        }
        let mut violations = Violations::new();
        Fields::new(self.json()?, &mut violations).finish();
        Ok(violations.or(|| Some(()))?)
    }

    /// Refuses a query.
    ///
    /// # Errors
    /// A fault for each of its parameters.
    pub fn no_query(&self) -> Result<(), ApiError> {
        let mut violations = Violations::new();
        self.query(&[], &mut violations);
        Ok(violations.or(|| Some(()))?)
    }

    /// The text of a header that is given once and is visible ASCII.
    pub fn header(&self, name: &HeaderName) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// Where the request comes from, a trusted proxy's word taken for it.
    pub const fn client(&self) -> Client {
        self.client
    }

    /// Whether the connection is encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.connection.encrypted
    }
}
