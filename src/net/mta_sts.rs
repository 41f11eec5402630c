//! The hosts of MTA-STS policies over HTTPS (RFC 8461 3.3): implements the port [`PolicyHosts`].
//!
//! One GET: no redirect, no proxy, no second try, a minute in all, 64 KiB of `text/plain` and not an octet more.
//! Recipients' domains are chosen by customers, so the connection goes through the guard like any other.

use std::sync::Arc;
use std::time::Duration;

use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, Response, StatusCode};
use rustls::RootCertStore;
use tokio::time::timeout;

use crate::domain::hostname::DomainName;
use crate::engine::ports::{BoxFuture, PolicyHosts, PostError, StsFetchFailure, Unfetched};
use crate::net::dns::HostAddresses;
use crate::net::guard::Guard;
use crate::net::guarded_client::{GuardedNames, classify, guarded, was_unasked};
use crate::smtp::tls_policy::TlsFault;

/// What a whole fetch may take, name resolution included (RFC 8461 3.3).
pub const DEADLINE: Duration = Duration::from_secs(60);
/// Octets of a policy (RFC 8461 3.3 proposes as much).
const OCTETS_MAX: usize = 64 * 1024;

/// The way to policy hosts.
pub struct HttpsPolicyHosts {
    client: Client,
    port: u16,
    deadline: Duration,
}

impl HttpsPolicyHosts {
    /// Fetches from `port` (443 on the internet), trusting `roots`, finding hosts through `names`, connecting only
    /// where `guard` permits, each within `deadline` (which is [`DEADLINE`] outside tests).
    ///
    /// # Errors
    /// Those of the HTTP client's construction, which does no I/O.
    pub fn new(
        roots: RootCertStore,
        names: Arc<dyn HostAddresses>,
        guard: Arc<Guard>,
        port: u16,
        deadline: Duration,
    ) -> Result<Self, reqwest::Error> {
        // Policies are asked for once a day at most: no connection is worth keeping.
        let client =
            guarded(roots, GuardedNames { names, guard, patience: deadline }).pool_max_idle_per_host(0).build()?;
        Ok(Self { client, port, deadline })
    }

    async fn fetch(&self, domain: &DomainName) -> Result<String, Unfetched> {
        let url = format!("https://mta-sts.{domain}:{}/.well-known/mta-sts.txt", self.port);
        let fetched = async {
            let response = self.client.get(url).send().await.map_err(|error| not_fetched(&error))?;
            read(response).await
        };
        timeout(self.deadline, fetched).await.unwrap_or_else(|_| Err(failed("the policy host did not answer in time")))
    }
}

impl PolicyHosts for HttpsPolicyHosts {
    fn sts_policy<'a>(&'a self, domain: &'a DomainName) -> BoxFuture<'a, Result<String, Unfetched>> {
        Box::pin(self.fetch(domain))
    }
}

async fn read(mut response: Response) -> Result<String, Unfetched> {
    if response.status() != StatusCode::OK {
        return Err(failed(&format!("the policy host answered {}", response.status().as_u16())));
    }
    if !is_plain_text(&response) {
        return Err(failed("the policy host's answer is not text/plain"));
    }
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| not_fetched(&error))? {
        if body.len() + chunk.len() > OCTETS_MAX {
            return Err(failed("the policy is larger than 64 KiB"));
        }
        body.extend_from_slice(&chunk);
    }
    String::from_utf8(body).map_err(|_| failed("the policy is not UTF-8"))
}

fn is_plain_text(response: &Response) -> bool {
    let content_type = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = content_type.split(';').next().unwrap_or_default();
    essence.trim().eq_ignore_ascii_case("text/plain")
}

fn failed(why: &str) -> Unfetched {
    Unfetched::Failed(StsFetchFailure { fault: TlsFault::StsPolicyFetchError, why: why.to_owned() })
}

fn not_fetched(error: &reqwest::Error) -> Unfetched {
    if was_unasked(error) {
        return Unfetched::Unasked;
    }
    match classify(error) {
        PostError::Tls => {
            let why = "the policy host's certificate does not verify".to_owned();
            Unfetched::Failed(StsFetchFailure { fault: TlsFault::StsWebPkiInvalid, why })
        }
        PostError::Blocked => failed("no address of the policy host may be reached"),
        PostError::Dns => failed("the policy host's name did not resolve"),
        other => failed(&format!("the policy host could not be asked ({})", other.as_str())),
    }
}

#[cfg(test)]
mod tests;
