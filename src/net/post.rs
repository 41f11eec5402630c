//! Webhook requests: the port [`Post`] over reqwest.
//!
//! One call is one request (contract 5): no redirect, no proxy, no second try. The deadline spans name resolution to
//! the last byte read. The guard judges literal addresses before anything is sent, and resolved ones inside the
//! connector, which then connects to exactly what was judged: a name cannot change its mind in between.

mod body;
mod fault;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use reqwest::dns::{Addrs, Name, Resolving};
use reqwest::{Client, ClientBuilder, RequestBuilder, Response};
use rustls::RootCertStore;
use tokio::time::{timeout, timeout_at};
use url::{Host, Url};

use crate::engine::ports::{BoxFuture, LookupFailure, Post, PostError, PostOutcome, WebhookRequest};
use crate::net::dns::HostAddresses;
use crate::net::guard::Guard;
use crate::net::tls;

use self::fault::Refused;

pub(super) use self::fault::{Unresolved, classify, was_unasked};

/// What a whole attempt may take, name resolution included (contract 5).
pub const DEADLINE: Duration = Duration::from_secs(10);
/// The part of it that the name may take, so that a silent name server is told from a silent receiver. A second try,
/// after the 5 s that the first one has, still fits.
const LOOKUP_SHARE: f32 = 0.8;
/// Idle connections go before common servers close them (2 s is the shortest default seen), since a request written
/// into a closing connection fails, and is not sent again.
const IDLE_MAX: Duration = Duration::from_millis(1500);
/// Contract 5: an account has at most 10 endpoints, and each at most 8 attempts at once. All of them may stand at one
/// host, and a connection that is thrown away costs four times what the delivery does.
const IDLE_PER_HOST: usize = 80;
/// Header lines of an answer. Their bytes are bounded by hyper, to 408 KiB.
const HEADERS_MAX: usize = 100;

/// The way to webhook receivers.
pub struct HttpPost {
    client: Client,
    guard: Arc<Guard>,
    deadline: Duration,
}

impl HttpPost {
    /// Requests that trust `roots`, find hosts through `names`, connect only where `guard` permits, and end within
    /// `deadline` (which is [`DEADLINE`] outside tests).
    ///
    /// # Errors
    /// Those of the HTTP client's construction, which does no I/O.
    pub fn new(
        roots: RootCertStore,
        names: Arc<dyn HostAddresses>,
        guard: Arc<Guard>,
        deadline: Duration,
    ) -> Result<Self, reqwest::Error> {
        let names = GuardedNames { names, guard: Arc::clone(&guard), patience: deadline.mul_f32(LOOKUP_SHARE) };
        let client = guarded(roots, names).pool_idle_timeout(IDLE_MAX).pool_max_idle_per_host(IDLE_PER_HOST).build()?;
        Ok(Self { client, guard, deadline })
    }

    /// The connector never asks the resolver about a literal address, in whatever spelling.
    fn refuses_literal(&self, url: &Url) -> bool {
        let address = match url.host() {
            Some(Host::Ipv4(v4)) => IpAddr::V4(v4),
            Some(Host::Ipv6(v6)) => IpAddr::V6(v6),
            Some(Host::Domain(_)) | None => return false,
        };
        !self.guard.permits(address)
    }

    fn request(&self, request: WebhookRequest) -> RequestBuilder {
        let builder = self.client.post(request.url).body(request.body);
        request.headers.into_iter().fold(builder, |builder, (name, value)| builder.header(name, value))
    }

    async fn attempt(&self, request: WebhookRequest) -> PostOutcome {
        let started = Instant::now();
        if self.refuses_literal(&request.url) {
            return failed(PostError::Blocked, started);
        }
        let end = (started + self.deadline).into();
        match timeout_at(end, self.request(request).send()).await {
            Err(_) => failed(PostError::Timeout, started),
            Ok(Err(error)) => failed(classify(&error), started),
            Ok(Ok(response)) => answered(response, end, started).await,
        }
    }
}

/// No status line came.
fn failed(error: PostError, started: Instant) -> PostOutcome {
    PostOutcome { status: None, error: Some(error), duration: started.elapsed(), peer: None, body: None }
}

/// The status line decides. The body is evidence, and what becomes of it changes nothing.
async fn answered(response: Response, end: tokio::time::Instant, started: Instant) -> PostOutcome {
    let status = response.status();
    let error = if status.is_success() { None } else { Some(PostError::Status) };
    let peer = response.remote_addr().map(|peer| peer.ip());
    let body = body::evidence(response, end).await;
    PostOutcome { status: Some(status.as_u16()), error, duration: started.elapsed(), peer, body: Some(body) }
}

impl Post for HttpPost {
    fn post(&self, request: WebhookRequest) -> BoxFuture<'_, PostOutcome> {
        Box::pin(self.attempt(request))
    }
}

/// A client for hosts that strangers name: https alone, `roots` and `names` alone to trust, and one request for each
/// that is asked for, without redirect, proxy or second try.
pub(super) fn guarded(roots: RootCertStore, names: GuardedNames) -> ClientBuilder {
    Client::builder()
        .tls_backend_preconfigured(tls::client_config(roots, &["http/1.1"]))
        .https_only(true)
        .http1_only()
        .http1_max_headers(HEADERS_MAX)
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .no_proxy()
        .referer(false)
        .dns_resolver(names)
}

/// The resolver inside the connector: only what the guard permits comes out of it.
pub(super) struct GuardedNames {
    pub(super) names: Arc<dyn HostAddresses>,
    pub(super) guard: Arc<Guard>,
    /// What a look-up may take.
    pub(super) patience: Duration,
}

impl reqwest::dns::Resolve for GuardedNames {
    fn resolve(&self, name: Name) -> Resolving {
        let (names, guard, patience) = (Arc::clone(&self.names), Arc::clone(&self.guard), self.patience);
        Box::pin(async move {
            let found = timeout(patience, names.addresses(name.as_str())).await;
            let silent = |_| LookupFailure::Temporary("no name server has answered in time".to_owned());
            let mut addresses = found.map_err(silent).flatten().map_err(Unresolved)?;
            addresses.retain(|address| guard.permits(*address));
            if addresses.is_empty() {
                return Err(Refused.into());
            }
            // Port 0 stands for the URL's.
            let addresses: Addrs = Box::new(addresses.into_iter().map(|address| SocketAddr::new(address, 0)));
            Ok(addresses)
        })
    }
}
