//! Processes a request: ID, route, key, scope, request rate, body, handler, and the headers that every answer has. The
//! order of the checks is that of contract 1. No body is read before the request is authenticated, except small ones on
//! open paths, which have a separate budget.
//!
//! There is always an answer: a panic is a 500 whose detail stays in the log.

use std::sync::{Arc, OnceLock};

use hyper::body::{Body as _, Incoming};
use hyper::header::{CONNECTION, EXPECT, HeaderMap, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, Version};
use tokio::time::Instant;

use super::answer::Answer;
use super::answer_budget;
use super::authenticator::RATE_LIMIT;
use super::authenticator::bearer;
pub use super::authenticator::{Admission, Authenticator};
use super::body::{self, BodyLimits, ReadBody};
use super::body_budget::{BodyBudgets, BudgetHolder, BudgetSizes};
use super::compat::service::CompatService;
use super::dev_guard;
use super::error::{ApiError, Unauthenticated};
use super::error_page::{self, ErrorPage};
use super::head_limit;
use super::meters::{self, RequestMeters};
use super::request_context::RequestContext;
use super::route::{Access, Handler, PageCheck, Params, Route};
use super::router::{RouteMatch, Router};
use crate::base::entropy::{self, Entropy};
use crate::base::id::Ulid;
use crate::domain::network::Network;
use crate::engine::caught_panic::caught;
use crate::engine::ports::Clock;
use crate::net::http_body::Body;
use crate::net::http_client::Client;
use crate::net::http_listener::{Connection, ListenerKind, Serve};

/// Header with the account that a command on the operator's socket acts for.
pub const ACCOUNT_HEADER: HeaderName = HeaderName::from_static("x-postrider-account");
const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
/// The route that makes a base of the replica, which does not change the store.
const MAKES_BASE: &str = "replica.base";

/// Limits of a service.
#[derive(Debug, Clone)]
pub struct ServiceLimits {
    /// The limits of one body.
    pub body: BodyLimits,
    /// The memory budget of bodies.
    pub budgets: Arc<BodyBudgets>,
    /// Maximum size of a request's head in bytes.
    pub head_bytes: usize,
    /// Limit in `RateLimit-Policy` (`limits.requests_per_minute`).
    pub requests_per_minute: u64,
}

impl Default for ServiceLimits {
    fn default() -> Self {
        Self {
            body: BodyLimits::default(),
            budgets: Arc::new(BodyBudgets::new(&BudgetSizes::default())),
            head_bytes: 16 * 1024,
            requests_per_minute: 600,
        }
    }
}

/// The API over a shared state, as served by the listeners.
pub struct HttpService<S: Authenticator> {
    state: Arc<S>,
    router: Router<S>,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    limits: ServiceLimits,
    policy: HeaderValue,
    meters: Arc<RequestMeters>,
    error_page: Option<ErrorPage<S>>,
}

impl<S: Authenticator> HttpService<S> {
    /// Creates the service of `router` over `state`.
    pub fn new(
        state: Arc<S>,
        router: Router<S>,
        clock: Arc<dyn Clock>,
        entropy: Arc<dyn Entropy>,
        limits: ServiceLimits,
    ) -> Self {
        let policy = format!("\"key\";q={};w=60", limits.requests_per_minute);
        let policy = HeaderValue::from_str(&policy).unwrap_or_else(|_| unreachable!("digits and ASCII"));
        let meters = Arc::new(RequestMeters::new(router.routes().map(|route| route.name)));
        Self { state, router, clock, entropy, limits, policy, meters, error_page: None }
    }

    /// Adds pages for the errors that people see.
    #[must_use]
    pub fn with_error_page(mut self, page: ErrorPage<S>) -> Self {
        self.error_page = Some(page);
        self
    }

    /// Returns the counters of requests.
    pub const fn meters(&self) -> &Arc<RequestMeters> {
        &self.meters
    }

    /// Returns the handlers' state.
    pub const fn state(&self) -> &Arc<S> {
        &self.state
    }

    /// Returns the page for an error of this request if a browser asks, and the headers that the page depends on.
    fn people(
        &self,
        found: &RouteMatch<'_, S>,
        head: &Parts,
        connection: &Connection,
    ) -> Option<(ErrorPage<S>, HeaderMap)> {
        let page = self.error_page.filter(|_| connection.kind == ListenerKind::Public)?;
        let known = match found {
            RouteMatch::Row(route, _) | RouteMatch::OtherMethod(route, _) => Some(&route.access),
            RouteMatch::Nothing => None,
        };
        error_page::is_wanted(known, head).then(|| (page, head.headers.clone()))
    }

    async fn answer(&self, found: RouteMatch<'_, S>, mut context: RequestContext<'_>) -> Result<Answer, ApiError> {
        // A client that waits for `100 Continue` learns the result from the answer itself.
        let asks_first = context.head.headers.contains_key(EXPECT);
        let outcome = self.pass(found, &mut context).await;
        // A body that arrived too slowly is not read to the end. HTTP/2 only resets its stream.
        let unread = !context.body.is_end_stream() && context.head.version < Version::HTTP_2;
        if unread && !asks_first && !matches!(outcome, Err(ApiError::RequestTimeout)) {
            body::discard(context.body, &self.limits.body, context.connection).await;
        }
        outcome
    }

    async fn pass(&self, found: RouteMatch<'_, S>, context: &mut RequestContext<'_>) -> Result<Answer, ApiError> {
        if head_limit::is_too_large(&context.head, self.limits.head_bytes) {
            return Err(ApiError::HeadersTooLarge);
        }
        let known = match &found {
            RouteMatch::Row(route, _) | RouteMatch::OtherMethod(route, _) => Some(&route.access),
            RouteMatch::Nothing => None,
        };
        let is_admin = context.connection.kind == ListenerKind::Admin;
        match known {
            Some(Access::Open(handler)) => self.open(found, *handler, context).await,
            Some(Access::Page(..)) if is_admin => self.keyed(RouteMatch::Nothing, context).await,
            Some(Access::Page(check, handler)) => self.page(found, *check, *handler, context).await,
            None if context.for_people => Err(ApiError::NotFound),
            Some(Access::Loopback(handler)) => {
                let is_allowed = self.state.is_dev_client(context.client);
                let address = (!is_allowed).then_some(context.client.address);
                dev_guard::check(&context.head.uri, &context.head.headers, address)?;
                context.asker.get_or_init(|| BudgetHolder::Operator);
                self.open(found, *handler, context).await
            }
            Some(Access::Operator(handler)) if is_admin => self.open(found, *handler, context).await,
            Some(Access::Operator(_)) => self.keyed(RouteMatch::Nothing, context).await,
            Some(Access::Key(_) | Access::Scoped(..)) | None => self.keyed(found, context).await,
        }
    }

    async fn open(
        &self,
        found: RouteMatch<'_, S>,
        handler: Handler<S, ()>,
        context: &mut RequestContext<'_>,
    ) -> Result<Answer, ApiError> {
        let (route, params) = row(found)?;
        let holder = match context.connection.kind {
            ListenerKind::Admin => BudgetHolder::Operator,
            ListenerKind::Public => stranger(context.client),
        };
        let mut call = context.call((), params);
        call.body = self.body(route, holder, context, &call.headers).await?;
        if !matches!(route.access, Access::Loopback(_)) {
            self.check_replica(route).await?;
        }
        handler(&self.state, call).await
    }

    /// Refuses changes while another machine may own the replica's log.
    async fn check_replica(&self, route: &Route<S>) -> Result<(), ApiError> {
        if matches!(route.method, Method::GET | Method::HEAD) || route.name == MAKES_BASE {
            return Ok(());
        }
        self.state.check_replica().await
    }

    /// Runs the page's check before its body is read, so that no client sends a body in vain or at others' cost.
    async fn page(
        &self,
        found: RouteMatch<'_, S>,
        check: PageCheck<S>,
        handler: Handler<S, ()>,
        context: &mut RequestContext<'_>,
    ) -> Result<Answer, ApiError> {
        let (route, params) = row(found)?;
        let mut call = context.call((), params);
        if route.body.types().is_some() {
            let holder = match check(&self.state, &call) {
                Ok(holder) => holder,
                Err(answer) => return Ok(*answer),
            };
            call.body = self.body(route, holder, context, &call.headers).await?;
        }
        self.check_replica(route).await?;
        handler(&self.state, call).await
    }

    /// Checks key, path, method, scope and rate, in this order, then calls the handler.
    async fn keyed(&self, found: RouteMatch<'_, S>, context: &mut RequestContext<'_>) -> Result<Answer, ApiError> {
        let caller = self.caller(context).await?;
        let holder = match context.connection.kind {
            ListenerKind::Admin => BudgetHolder::Operator,
            ListenerKind::Public => BudgetHolder::Account(self.state.account(&caller)),
        };
        context.asker.get_or_init(|| holder);
        let (route, params) = row(found)?;
        let handler = match route.access {
            Access::Key(handler) => handler,
            Access::Scoped(scopes, handler) => {
                let lacking = scopes.as_list().into_iter().find(|scope| !self.state.may(&caller, *scope));
                match lacking {
                    Some(scope) => return Err(ApiError::ScopeForbidden(scope)),
                    None => handler,
                }
            }
            // The route found for this path needs another kind of access.
            Access::Open(_) | Access::Page(..) | Access::Loopback(_) | Access::Operator(_) => {
                return Err(ApiError::NotFound);
            }
        };
        if !matches!(context.head.method, Method::GET | Method::HEAD) {
            self.state.check_suspension(&caller)?;
        }
        if let Some(seconds) = context.admission.get().and_then(|admission| admission.refused) {
            return Err(ApiError::RateLimited(seconds));
        }
        let mut call = context.call(caller, params);
        call.body = self.body(route, holder, context, &call.headers).await?;
        self.check_replica(route).await?;
        handler(&self.state, call).await
    }

    async fn caller(&self, context: &RequestContext<'_>) -> Result<S::Caller, ApiError> {
        let headers = &context.head.headers;
        match context.connection.kind {
            // Only the operator can open the socket; the request rate applies to keys.
            ListenerKind::Admin => {
                let account = headers.get(ACCOUNT_HEADER).map(|value| value.to_str().unwrap_or(""));
                self.state.operator(account).await
            }
            ListenerKind::Public => {
                let unknown = ApiError::Unauthenticated(Unauthenticated::Unknown);
                let key = context.service.map_or_else(|| bearer(headers), |service| service.key(headers))?;
                let caller = self.state.authenticate(key).await?.ok_or(unknown)?;
                context.admission.get_or_init(|| self.state.admit(&caller));
                Ok(caller)
            }
        }
    }

    /// Reads the body of a request that may have one, charged to `holder`.
    async fn body(
        &self,
        route: &Route<S>,
        holder: BudgetHolder,
        context: &mut RequestContext<'_>,
        headers: &HeaderMap,
    ) -> Result<ReadBody, ApiError> {
        let Some(types) = route.body.types() else { return Ok(ReadBody::none()) };
        body::check_type(headers, types)?;
        let limits = &self.limits.body;
        let _turn = self.limits.budgets.await_body(&holder)?;
        let _awaited = context.connection.await_body(!matches!(holder, BudgetHolder::Unauthenticated(_)));
        body::read(&mut context.body, limits.most(route.size), limits, &self.limits.budgets, holder).await
    }

    /// Converts an answer, with the rate limits if the request was authenticated.
    fn finish(&self, answer: Answer, method: &Method, id: &str, admission: Option<&Admission>) -> Response<Body> {
        let mut response = answer.into_response(method, id);
        let headers = response.headers_mut();
        if let Some(admission) = admission {
            headers.insert(RATE_LIMIT_POLICY, self.policy.clone());
            // A list of messages counts as more than one request.
            if !headers.contains_key(RATE_LIMIT)
                && let Ok(value) = HeaderValue::try_from(admission.to_header())
            {
                headers.insert(RATE_LIMIT, value);
            }
        }
        response
    }
}

impl<S: Authenticator> Serve for HttpService<S> {
    async fn serve(&self, request: Request<Incoming>, connection: &Arc<Connection>) -> Response<Body> {
        let started = Instant::now();
        let request_id: Arc<str> = Ulid::new(self.clock.now(), entropy::bytes(&*self.entropy)).to_string().into();
        let (admission, asker) = (OnceLock::new(), OnceLock::new());
        if connection.kind == ListenerKind::Admin {
            asker.get_or_init(|| BudgetHolder::Operator);
        }
        let (head, body) = request.into_parts();
        let version = head.version;
        let method = head.method.clone();
        let path = head.uri.path().to_owned();
        let found = self.router.find(&method, &path);
        let route = match &found {
            RouteMatch::Row(route, _) | RouteMatch::OtherMethod(route, _) => route.name,
            RouteMatch::Nothing => meters::UNKNOWN,
        };
        let service = CompatService::of_request(&found, &path);
        let people = self.people(&found, &head, connection);
        let for_people = people.is_some();
        let client = connection.client(&head.headers);
        let (request_id, admission, asker) = (&request_id, &admission, &asker);
        let context =
            RequestContext { head, body, connection, client, request_id, for_people, service, admission, asker };
        let outcome = caught(self.answer(found, context)).await.unwrap_or_else(|_| {
            tracing::error!(request_id = &**request_id, route, "handler panicked; answering 500");
            Err(ApiError::Internal)
        });
        let is_too_large = matches!(outcome, Err(ApiError::PayloadTooLarge(_)));
        let refusal = |error: ApiError| {
            self.meters.refused(error.code(), self.clock.now());
            match (&people, service) {
                (Some((page, headers)), _) => page(&self.state, &error, headers, request_id),
                (None, Some(service)) => service.answer(&error, request_id),
                (None, None) => error.answer_for(request_id),
            }
        };
        let asker = asker.get().copied().unwrap_or_else(|| stranger(client));
        let answer = outcome.unwrap_or_else(refusal);
        if let Some(code) = answer.refusal() {
            self.meters.refused(code, self.clock.now());
        }
        let answer = answer_budget::charged(answer, &method, &self.limits.budgets, asker).unwrap_or_else(refusal);
        let took = started.elapsed();
        self.meters.answered(route, answer.status(), took);
        // Logs the route's name, not the path: paths may contain addresses, which must not be logged. At `debug`, since
        // a line per message would cost more than routing it.
        tracing::debug!(
            method = method.as_str(),
            route,
            status = answer.status().as_u16(),
            duration_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
            request_id = &**request_id,
            client = client.address.map(tracing::field::display),
            "request"
        );
        let mut response = self.finish(answer, &method, request_id, admission.get());
        if is_too_large {
            close(&mut response, version, connection);
        }
        response
    }
}

/// Closes the connection after this answer. HTTP/2 has no header for that.
fn close(response: &mut Response<Body>, version: Version, connection: &Connection) {
    if version < Version::HTTP_2 {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    } else {
        connection.close_after_answers();
    }
}

fn stranger(client: Client) -> BudgetHolder {
    BudgetHolder::Unauthenticated(client.address.map(Network::of_client))
}

fn row<S: Authenticator>(found: RouteMatch<'_, S>) -> Result<(&Route<S>, Params), ApiError> {
    match found {
        RouteMatch::Row(route, params) => Ok((route, params)),
        RouteMatch::OtherMethod(_, allow) => Err(ApiError::MethodNotAllowed(allow.to_owned())),
        RouteMatch::Nothing => Err(ApiError::NotFound),
    }
}
