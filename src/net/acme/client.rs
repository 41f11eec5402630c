//! HTTPS to an authority: the transport under instant-acme, over the program's own client, roots and resolver.
//!
//! The operator names the authority, so the network guard is not asked. What comes back is bounded in size and time,
//! and how long an answer asks us to wait is remembered.

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

use crate::engine::ports::LookupFailure;
use crate::net::dns::HostAddresses;
use crate::net::tls;

/// The name did not resolve.
#[derive(Debug, thiserror::Error)]
#[error("the host's name did not resolve: {0}")]
struct Unresolved(LookupFailure);

/// One request, name resolution included.
const DEADLINE: Duration = Duration::from_secs(30);
/// Bytes of an answer: a chain is some KiB.
const BYTES_MAX: usize = 1024 * 1024;

/// The way to an authority. Clones share their memory of how long to wait.
#[derive(Clone)]
pub(super) struct AcmeHttp {
    client: Client,
    wait_s: Arc<AtomicU64>,
}

impl AcmeHttp {
    /// Requests that trust `roots` and find hosts through `names`.
    ///
    /// # Errors
    /// Those of the HTTP client's construction, which does no I/O.
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

    /// Takes the time that the last refusal asked us to wait.
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
        // A date is left to the pauses that are ours.
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

/// An error with what is behind it, which is what the operator can do something about.
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
            let found = names.addresses(name.as_str()).await.map_err(Unresolved)?;
            // Port 0 stands for the URL's.
            let addresses: Addrs = Box::new(found.into_iter().map(|address| SocketAddr::new(address, 0)));
            Ok(addresses)
        })
    }
}
