//! One row of the route table, and the call that its handler gets.
//!
//! Access rule and handler are one value, so a handler that needs a caller can't be put on an open path: its [`Call`]
//! proves that the checks before it have passed.

use std::sync::Arc;

use bytes::Bytes;
use hyper::Method;
use hyper::header::{HOST, HeaderMap, HeaderName};

use super::answer::Answer;
use super::body::ReadBody;
use super::body_budget::BudgetHolder;
use super::compat::service::CompatService;
use super::error::ApiError;
use super::json;
use super::query::Query;
use super::service::Authenticator;
use crate::domain::api_key::Scopes;
use crate::domain::fields::{Fields, PARAMETER};
use crate::domain::violation::Violations;
use crate::engine::ports::BoxFuture;
use crate::net::http_client::Client;
use crate::net::http_listener::Connection;

/// Handler of a call: an `async fn handler(state: &S, call: Call<C>)`, boxed by the row of the table:
/// `|state, call| Box::pin(handler(state, call))`.
pub type Handler<S, C> = for<'a> fn(&'a S, Call<C>) -> BoxFuture<'a, Result<Answer, ApiError>>;

/// Decides before the body is read whether a page accepts a call. Returns the holder that the body is charged to, or
/// the answer that refuses it.
pub type PageCheck<S> = for<'a> fn(&'a S, &'a Call<()>) -> Result<BudgetHolder, Box<Answer>>;

/// Access rule and handler of a route.
pub enum Access<S: Authenticator> {
    /// Any client, without a key.
    Open(Handler<S, ()>),
    /// The page itself decides: people have a session, not a key. On the operator's socket the path is unknown. The
    /// check runs before the body is read, and again with the handler.
    Page(PageCheck<S>, Handler<S, ()>),
    /// Clients on this machine, as far as [`super::dev_guard`] allows.
    Loopback(Handler<S, ()>),
    /// Commands on the operator's socket; for other clients the path is unknown.
    Operator(Handler<S, ()>),
    /// Any key.
    Key(Handler<S, S::Caller>),
    /// A key that has all of the scopes.
    Scoped(Scopes, Handler<S, S::Caller>),
}

/// Whether a request's body is read, and which types are accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyRule {
    /// The body is not read.
    Ignored,
    /// The body must be empty, or an object without members ([`Call::no_members`]).
    Nothing,
    /// Any media type is accepted.
    OfAnyType,
    /// One of these types, or none, is accepted.
    Of(&'static [&'static str]),
}

/// Represents every type in the list of a route's types.
pub(super) const ANY_TYPE: &[&str] = &["*/*"];

impl BodyRule {
    /// `application/json`.
    pub const JSON: Self = Self::Of(&["application/json"]);

    /// Returns the accepted types; `None` if no body is read.
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
    /// JSON that is not a message.
    Json,
    /// A list or a file, from an authenticated caller.
    Upload,
    /// A message.
    Message,
}

/// The decoded parameters of a path, by name.
pub(super) type Params = Vec<(&'static str, String)>;

/// One row of the table.
pub struct Route<S: Authenticator> {
    /// HTTP method. HEAD is added to GET.
    pub method: Method,
    /// Path, such as `/v1/messages/{id}`.
    pub path: &'static str,
    /// Name in the log, such as `messages.show`.
    pub name: &'static str,
    /// Access rule and handler.
    pub access: Access<S>,
    /// Rule for the body.
    pub body: BodyRule,
    /// Maximum size of the body.
    pub size: BodySize,
    /// The other service whose clients use the route, if it is one of a compatible API.
    pub service: Option<CompatService>,
}

impl<S: Authenticator> Route<S> {
    /// Creates a row. POST, PUT and PATCH accept JSON, the other methods no body.
    pub fn new(method: Method, path: &'static str, name: &'static str, access: Access<S>) -> Self {
        let reads = matches!(method, Method::POST | Method::PUT | Method::PATCH);
        let body = if reads { BodyRule::JSON } else { BodyRule::Ignored };
        Self { method, path, name, access, body, size: BodySize::Json, service: None }
    }

    /// Creates a row for any key.
    pub fn key(method: Method, path: &'static str, name: &'static str, handler: Handler<S, S::Caller>) -> Self {
        Self::new(method, path, name, Access::Key(handler))
    }

    /// Creates a row for keys with all of `scopes`.
    pub fn scoped(
        method: Method,
        path: &'static str,
        name: &'static str,
        scopes: impl Into<Scopes>,
        handler: Handler<S, S::Caller>,
    ) -> Self {
        Self::new(method, path, name, Access::Scoped(scopes.into(), handler))
    }

    /// Creates a row without authentication.
    pub fn open(method: Method, path: &'static str, name: &'static str, handler: Handler<S, ()>) -> Self {
        Self::new(method, path, name, Access::Open(handler))
    }

    /// Returns the row with another rule for its body.
    #[must_use]
    pub const fn with_body(mut self, body: BodyRule) -> Self {
        self.body = body;
        self
    }

    /// Returns the row for clients of another service.
    #[must_use]
    pub(super) const fn of_service(mut self, service: CompatService) -> Self {
        self.service = Some(service);
        self
    }

    /// Returns the row with another maximum size of bodies.
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
    /// The method; HEAD if a GET route was matched.
    pub method: Method,
    /// The request's headers.
    pub headers: HeaderMap,
    /// The ID under which the request is logged.
    pub request_id: Arc<str>,
    pub(super) uri: hyper::Uri,
    pub(super) params: Params,
    pub(super) body: ReadBody,
    pub(super) connection: Arc<Connection>,
    pub(super) client: Client,
}

impl<C> Call<C> {
    /// Returns a decoded parameter of the path; empty if the path has none with that name.
    pub fn param(&self, name: &str) -> &str {
        self.params.iter().find(|(known, _)| *known == name).map_or("", |(_, value)| value)
    }

    /// Returns the requested path.
    pub fn path(&self) -> &str {
        self.uri.path()
    }

    /// Returns the requested path and query.
    pub fn path_and_query(&self) -> &str {
        self.uri.path_and_query().map_or("/", hyper::http::uri::PathAndQuery::as_str)
    }

    /// Returns the requested host: `:authority` in HTTP/2, the `Host` header in HTTP/1.
    pub fn host(&self) -> Option<&str> {
        self.uri.authority().map(hyper::http::uri::Authority::as_str).or_else(|| self.header(&HOST))
    }

    /// Takes the body out, so that its memory is freed as soon as the result is dropped.
    pub fn take_body(&mut self) -> Bytes {
        std::mem::replace(&mut self.body, ReadBody::none()).bytes
    }

    /// Parses the query, which may only contain the parameters of `known`. Errors go to `violations`.
    pub fn query(&self, known: &[&'static str], violations: &mut Violations) -> Query {
        Query::parse(self.uri.query().unwrap_or(""), known, violations)
    }

    /// Returns the raw body; empty if the route reads none.
    pub const fn body(&self) -> &Bytes {
        &self.body.bytes
    }

    /// Parses the body as a strict JSON object. Query parameters, which requests with a body must not have, become
    /// members that [`Fields`] refuses together with the errors of the body (contract 1).
    ///
    /// # Errors
    /// [`ApiError::InvalidJson`].
    pub fn json(&self) -> Result<serde_json::Map<String, serde_json::Value>, ApiError> {
        let mut object = json::parse_object(self.body())?;
        let mut violations = Violations::new();
        self.query(&[], &mut violations);
        let parameters = violations.by_field().keys().map(|name| format!("{PARAMETER}{name}"));
        object.extend(parameters.map(|name| (name, serde_json::Value::Null)));
        Ok(object)
    }

    /// Refuses a query, and a body with members.
    ///
    /// # Errors
    /// A violation for each parameter or member; [`ApiError::InvalidJson`].
    pub fn no_members(&self) -> Result<(), ApiError> {
        if self.body().is_empty() {
            return self.no_query();
        }
        let mut violations = Violations::new();
        Fields::new(self.json()?, &mut violations).finish();
        Ok(violations.or(|| Some(()))?)
    }

    /// Refuses a query.
    ///
    /// # Errors
    /// A violation for each of its parameters.
    pub fn no_query(&self) -> Result<(), ApiError> {
        let mut violations = Violations::new();
        self.query(&[], &mut violations);
        Ok(violations.or(|| Some(()))?)
    }

    /// Returns the text of a header that is given once and is visible ASCII.
    pub fn header(&self, name: &HeaderName) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// Returns the client of the request, according to a trusted proxy if there is one.
    pub const fn client(&self) -> Client {
        self.client
    }

    /// Returns whether the connection is encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.connection.encrypted
    }
}
