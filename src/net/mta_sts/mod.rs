//! Fetches MTA-STS policies over HTTPS (RFC 8461 3.3): implements the port [`PolicyHosts`].
//!
//! One GET: no redirect, no proxy, no retry, at most a minute and 64 KiB of `text/plain`, with the same limit before
//! the head as for webhooks. Customers choose the recipients' domains, so the guard checks each connection.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{ACCEPT, CONTENT_TYPE, HOST};
use hyper::{Request, Response, StatusCode};
use rustls::RootCertStore;
use rustls::pki_types::ServerName;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::domain::hostname::DomainName;
use crate::engine::ports::{BoxFuture, LookupFailure, PolicyHosts, PostError, Requester, StsFetchFailure, Unfetched};
use crate::net::dns::HostAddresses;
use crate::net::network_guard::Guard;
use crate::net::post::{Connection, connect, word};
use crate::net::tls;
use crate::smtp::tls_policy::TlsFault;

/// Time limit of a whole fetch, including name resolution (RFC 8461 3.3).
pub const DEADLINE: Duration = Duration::from_secs(60);
/// Maximum size of a policy in bytes (the limit that RFC 8461 3.3 proposes).
const BYTES_MAX: usize = 64 * 1024;
/// Default port of HTTPS, which the `Host` field omits.
const HTTPS: u16 = 443;

/// HTTPS client for policy hosts.
pub struct HttpsPolicyHosts {
    tls: TlsConnector,
    names: Arc<dyn HostAddresses>,
    guard: Arc<Guard>,
    port: u16,
    deadline: Duration,
}

impl HttpsPolicyHosts {
    /// Creates a client that trusts `roots`, resolves hosts through `names`, and connects only where `guard` permits.
    /// `port` is 443 on the internet. `deadline` limits each fetch; it is [`DEADLINE`] outside tests.
    pub fn new(
        roots: RootCertStore,
        names: Arc<dyn HostAddresses>,
        guard: Arc<Guard>,
        port: u16,
        deadline: Duration,
    ) -> Self {
        let tls = TlsConnector::from(Arc::new(tls::client_config(roots, &["http/1.1"])));
        Self { tls, names, guard, port, deadline }
    }

    async fn fetch(&self, domain: &DomainName, requester: Requester) -> Result<String, Unfetched> {
        let fetched = timeout(self.deadline, self.ask(format!("mta-sts.{domain}"), requester)).await;
        fetched.unwrap_or_else(|_| Err(failed("the policy host did not answer in time")))
    }

    async fn ask(&self, host: String, requester: Requester) -> Result<String, Unfetched> {
        let addresses = self.permitted(&host, requester).await?;
        let authority = if self.port == HTTPS { host.clone() } else { format!("{host}:{}", self.port) };
        let request = Request::get("/.well-known/mta-sts.txt").header(HOST, authority).header(ACCEPT, "*/*");
        let request =
            request.body(Full::<Bytes>::default()).map_err(|error| not_fetched(&error, PostError::Protocol))?;
        let name = ServerName::try_from(host).map_err(|error| not_fetched(&error, PostError::Protocol))?;
        let stream = connect(addresses).await.map_err(|error| not_fetched(&error, PostError::Connect))?;
        let opened = Connection::open(stream, &self.tls, name).await;
        let mut connection = opened.map_err(|error| not_fetched(&error, PostError::Connect))?;
        let response = connection.exchange(request).await;
        let response = response.map_err(|error| not_fetched(&*error, PostError::Protocol))?;
        read(&mut connection, response).await
    }

    /// Returns the permitted addresses of the host; never empty.
    async fn permitted(&self, host: &str, requester: Requester) -> Result<Vec<SocketAddr>, Unfetched> {
        let found = self.names.addresses(host, requester).await.map_err(|failure| match failure {
            LookupFailure::Unasked => Unfetched::Unasked,
            LookupFailure::Absent | LookupFailure::Temporary(_) => failed("the policy host's name did not resolve"),
        })?;
        let permitted = found.into_iter().filter(|address| self.guard.permits(*address));
        let addresses: Vec<_> = permitted.map(|address| SocketAddr::new(address, self.port)).collect();
        if addresses.is_empty() { Err(failed("no address of the policy host may be reached")) } else { Ok(addresses) }
    }
}

impl PolicyHosts for HttpsPolicyHosts {
    fn sts_policy<'a>(
        &'a self,
        domain: &'a DomainName,
        requester: Requester,
    ) -> BoxFuture<'a, Result<String, Unfetched>> {
        Box::pin(self.fetch(domain, requester))
    }
}

async fn read(connection: &mut Connection, response: Response<Incoming>) -> Result<String, Unfetched> {
    if response.status() != StatusCode::OK {
        return Err(failed(&format!("the policy host answered {}", response.status().as_u16())));
    }
    if !is_plain_text(&response) {
        return Err(failed("the policy host's answer is not text/plain"));
    }
    let (mut policy, mut body) = (Vec::new(), response.into_body());
    while let Some(part) = connection.part(&mut body).await {
        let part = part.map_err(|error| not_fetched(&error, PostError::Protocol))?;
        if policy.len() + part.len() > BYTES_MAX {
            return Err(failed("the policy is larger than 64 KiB"));
        }
        policy.extend_from_slice(&part);
    }
    String::from_utf8(policy).map_err(|_| failed("the policy is not UTF-8"))
}

fn is_plain_text(response: &Response<Incoming>) -> bool {
    let content_type = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = content_type.split(';').next().unwrap_or_default();
    essence.trim().eq_ignore_ascii_case("text/plain")
}

fn failed(why: &str) -> Unfetched {
    Unfetched::Failed(StsFetchFailure { fault: TlsFault::StsPolicyFetchError, why: why.to_owned() })
}

fn not_fetched(error: &(dyn Error + 'static), otherwise: PostError) -> Unfetched {
    match word(error, otherwise) {
        PostError::Tls => {
            let why = "the policy host's certificate does not verify".to_owned();
            Unfetched::Failed(StsFetchFailure { fault: TlsFault::StsWebPkiInvalid, why })
        }
        other => failed(&format!("the policy host could not be reached ({})", other.as_str())),
    }
}

#[cfg(test)]
mod tests;
