//! Webhook requests: implements the port [`Post`] with hyper.
//!
//! One call is one request (contract 5): no redirect, no proxy, no retry. The deadline spans name resolution to the
//! last byte read. The guard checks literal addresses before anything is sent, and resolved ones once they are known.
//! The connection goes to exactly those addresses, so a second DNS answer can't change the target.

mod body;
mod connection;
mod failure;
mod pool;
mod preamble;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{ACCEPT, HOST, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, Response};
use rustls::RootCertStore;
use rustls::pki_types::ServerName;
use tokio::time::{timeout, timeout_at};
use tokio_rustls::TlsConnector;
use url::{Host, Position, Url};

use self::pool::Pool;
use crate::engine::ports::{BoxFuture, Post, PostError, PostOutcome, Requester, WebhookRequest};
use crate::net::dns::HostAddresses;
use crate::net::network_guard::Guard;
use crate::net::tls;

pub(super) use self::connection::{Connection, connect};
pub(super) use self::failure::word;

/// Time limit of a whole attempt, including name resolution (contract 5).
pub const DEADLINE: Duration = Duration::from_secs(10);
/// Share of the deadline for name resolution, so that a silent name server and a silent receiver are reported
/// differently. A second DNS try, after the 5 s of the first one, still fits.
const LOOKUP_SHARE: f32 = 0.8;

/// HTTP client for webhook receivers.
pub struct HttpPost {
    tls: TlsConnector,
    names: Arc<dyn HostAddresses>,
    guard: Arc<Guard>,
    deadline: Duration,
    idle: Arc<Pool>,
}

impl HttpPost {
    /// Creates a client that trusts `roots`, resolves hosts through `names`, connects only where `guard` permits, and
    /// ends requests within `deadline` ([`DEADLINE`] outside tests).
    pub fn new(roots: RootCertStore, names: Arc<dyn HostAddresses>, guard: Arc<Guard>, deadline: Duration) -> Self {
        let tls = TlsConnector::from(Arc::new(tls::client_config(roots, &["http/1.1"])));
        Self { tls, names, guard, deadline, idle: Arc::default() }
    }

    async fn attempt(&self, request: WebhookRequest, begun: &AtomicBool) -> PostOutcome {
        let started = Instant::now();
        let end = (started + self.deadline).into();
        match timeout_at(end, self.send(request, begun)).await {
            Err(_) => failed(PostError::Timeout, started),
            Ok(Err(error)) => failed(error, started),
            Ok(Ok(answer)) => self.answered(answer, end, started).await,
        }
    }

    /// Sends the request and waits for the head of the answer.
    async fn send(&self, attempt: WebhookRequest, begun: &AtomicBool) -> Result<Answer, PostError> {
        let WebhookRequest { url, headers, body, requester } = attempt;
        if url.scheme() != "https" && !self.guard.permits_plain_http() {
            return Err(PostError::Protocol);
        }
        let request = request(&url, headers, body)?;
        if literal(&url).is_some_and(|address| !self.guard.permits(address)) {
            return Err(PostError::Blocked);
        }
        let mut connection = match self.idle.take(origin(&url)) {
            Some(connection) => connection,
            None => self.open(&url, requester).await?,
        };
        begun.store(true, Ordering::Release);
        let response = connection.exchange(request).await.map_err(|error| word(&*error, PostError::Protocol))?;
        Ok(Answer { url, connection, response })
    }

    /// Opens a connection to the host of `url`, if the guard permits one of its addresses.
    pub(super) async fn open(&self, url: &Url, requester: Requester) -> Result<Connection, PostError> {
        let addresses = self.permitted(url, requester).await?;
        let name = match (literal(url), url.domain()) {
            (Some(address), _) => ServerName::from(address),
            (None, name) => ServerName::try_from(name.unwrap_or_default().to_owned()).map_err(|_| PostError::Tls)?,
        };
        let stream = connection::connect(addresses).await.map_err(|error| word(&error, PostError::Connect))?;
        let opened = match url.scheme() {
            "http" => Connection::open_plain(stream).await,
            _ => Connection::open(stream, &self.tls, name).await,
        };
        opened.map_err(|error| word(&error, PostError::Connect))
    }

    /// Returns the permitted addresses of the host of `url`; never empty.
    async fn permitted(&self, url: &Url, requester: Requester) -> Result<Vec<SocketAddr>, PostError> {
        let mut addresses = match literal(url) {
            Some(address) => vec![address],
            None => {
                let look_up = self.names.addresses(url.domain().unwrap_or_default(), requester);
                let found = timeout(self.deadline.mul_f32(LOOKUP_SHARE), look_up).await;
                found.map_err(|_| PostError::Dns)?.map_err(|_| PostError::Dns)?
            }
        };
        addresses.retain(|address| self.guard.permits(*address));
        if addresses.is_empty() {
            return Err(PostError::Blocked);
        }
        let port = url.port_or_known_default().ok_or(PostError::Protocol)?;
        Ok(addresses.into_iter().map(|address| SocketAddr::new(address, port)).collect())
    }

    /// Builds the outcome. The status line decides; the body is only stored for the attempt log.
    async fn answered(&self, answer: Answer, end: tokio::time::Instant, started: Instant) -> PostOutcome {
        let Answer { url, mut connection, response } = answer;
        let status = response.status();
        let error = if status.is_success() { None } else { Some(PostError::Status) };
        let body = body::evidence(&mut connection, response, end).await;
        let peer = Some(connection.peer);
        self.idle.put(origin(&url), connection);
        PostOutcome { status: Some(status.as_u16()), error, duration: started.elapsed(), peer, body: Some(body) }
    }
}

/// The head of an answer. The body is still to be read.
struct Answer {
    url: Url,
    connection: Connection,
    response: Response<Incoming>,
}

/// Builds the outcome of an attempt without a status line.
fn failed(error: PostError, started: Instant) -> PostOutcome {
    PostOutcome { status: None, error: Some(error), duration: started.elapsed(), peer: None, body: None }
}

/// Builds the HTTP request.
fn request(url: &Url, headers: Vec<(&'static str, String)>, body: Bytes) -> Result<Request<Full<Bytes>>, PostError> {
    let value = |text: &str| HeaderValue::from_str(text).map_err(|_| PostError::Protocol);
    let mut all = HeaderMap::with_capacity(headers.len() + 3);
    all.insert(HOST, value(host_and_port(url))?);
    all.insert(ACCEPT, HeaderValue::from_static("*/*"));
    for (name, text) in headers {
        let text = HeaderValue::try_from(text).map_err(|_| PostError::Protocol)?;
        all.insert(HeaderName::try_from(name).map_err(|_| PostError::Protocol)?, text);
    }
    let target = &url[Position::BeforePath..Position::AfterQuery];
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = target.parse().map_err(|_| PostError::Protocol)?;
    *request.headers_mut() = all;
    Ok(request)
}

/// Returns the address if the URL's host is one, in any notation.
fn literal(url: &Url) -> Option<IpAddr> {
    match url.host()? {
        Host::Ipv4(v4) => Some(IpAddr::V4(v4)),
        Host::Ipv6(v6) => Some(IpAddr::V6(v6)),
        Host::Domain(_) => None,
    }
}

/// Returns the origin with the scheme, so that connections of two schemes are kept apart.
fn origin(url: &Url) -> &str {
    &url[..Position::AfterPort]
}

/// Returns host and port as written in the URL: the scheme's default port is left out.
pub(super) fn host_and_port(url: &Url) -> &str {
    &url[Position::BeforeHost..Position::AfterPort]
}

impl Post for HttpPost {
    fn post<'a>(&'a self, request: WebhookRequest, begun: &'a AtomicBool) -> BoxFuture<'a, PostOutcome> {
        Box::pin(self.attempt(request, begun))
    }
}
