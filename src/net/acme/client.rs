//! HTTPS client for the ACME authority: the transport under instant-acme, with the program's own HTTP client, roots and
//! resolver.
//!
//! The operator configures the authority, so the network guard does not apply. Responses are limited in size and time.
//! The client remembers the `Retry-After` of the last refusal.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt as _, Full};
use hyper::header::RETRY_AFTER;
use hyper::{Request, StatusCode};
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use reqwest::dns::{Addrs, Name, Resolving};
use reqwest::{Client, Response};
use rustls::RootCertStore;

use crate::engine::ports::{LookupFailure, Requester};
use crate::net::dns::HostAddresses;
use crate::net::tls;

/// The name did not resolve.
#[derive(Debug, thiserror::Error)]
#[error("the host's name did not resolve: {0}")]
struct Unresolved(LookupFailure);

/// Time limit of one request, including name resolution.
const DEADLINE: Duration = Duration::from_secs(30);
/// Maximum size of a response in bytes. A certificate chain has some KiB.
const BYTES_MAX: usize = 1024 * 1024;

/// HTTP client for an authority. Clones share the stored `Retry-After`.
#[derive(Clone)]
pub(super) struct AcmeHttp {
    client: Client,
    wait_s: Arc<AtomicU64>,
}

impl AcmeHttp {
    /// Creates a client that trusts `roots` and resolves hosts through `names`.
    ///
    /// # Errors
    /// The errors of building the HTTP client, which does no I/O.
    pub(super) fn new(roots: RootCertStore, names: Arc<dyn HostAddresses>) -> Result<Self, reqwest::Error> {
        let client = Client::builder()
            .tls_backend_preconfigured(tls::client_config(roots, &["http/1.1"]))
            .https_only(true)
            .http1_only()
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .no_proxy()
            .referer(false)
            .timeout(DEADLINE)
            .dns_resolver(Names(names))
            .build()?;
        Ok(Self { client, wait_s: Arc::default() })
    }

    /// Takes the `Retry-After` of the last refusal.
    pub(super) fn take_retry_after(&self) -> Option<Duration> {
        match self.wait_s.swap(0, Relaxed) {
            0 => None,
            seconds => Some(Duration::from_secs(seconds)),
        }
    }

    async fn ask(self, request: Request<BodyWrapper<Bytes>>) -> Result<BytesResponse, Error> {
        let (head, body) = request.into_parts();
        let body = body.collect().await.map_or_else(|never| match never {}, |body| body.to_bytes());
        let sent = self.client.request(head.method, head.uri.to_string()).headers(head.headers).body(body).send();
        let response = sent.await.map_err(|error| Error::Other(said(&error).into()))?;
        let refuses = matches!(response.status(), StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
        // A `Retry-After` that is a date is ignored; our own backoff applies.
        let wait = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse().ok());
        if let (true, Some(seconds)) = (refuses, wait) {
            self.wait_s.store(seconds, Relaxed);
        }
        read(response).await
    }
}

impl HttpClient for AcmeHttp {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        Box::pin(self.clone().ask(request))
    }
}

async fn read(mut response: Response) -> Result<BytesResponse, Error> {
    let mut answer = hyper::Response::new(());
    *answer.status_mut() = response.status();
    *answer.headers_mut() = std::mem::take(response.headers_mut());
    let mut body = BytesMut::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| Error::Other(said(&error).into()))? {
        if body.len() + chunk.len() > BYTES_MAX {
            return Err(Error::Other("an answer is larger than 1 MiB".into()));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(answer.map(|()| Full::new(body.freeze())).into())
}

/// Formats an error with its causes: the operator can act on the innermost one.
fn said(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text = format!("{text}: {next}");
        cause = next.source();
    }
    text
}

struct Names(Arc<dyn HostAddresses>);

impl reqwest::dns::Resolve for Names {
    fn resolve(&self, name: Name) -> Resolving {
        let names = Arc::clone(&self.0);
        Box::pin(async move {
            let found = names.addresses(name.as_str(), Requester::SERVICE).await.map_err(Unresolved)?;
            // Port 0 means the port of the URL.
            let addresses: Addrs = Box::new(found.into_iter().map(|address| SocketAddr::new(address, 0)));
            Ok(addresses)
        })
    }
}
