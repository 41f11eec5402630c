//! Identity providers over HTTPS: implements the port [`IdentityProvider`] with the connections of webhooks.
//!
//! One call is one request: no redirect, no proxy, no retry, and at most 256 KiB of the answer. The operator configures
//! the provider, but the provider's document names further addresses. So the guard checks all of them.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{ACCEPT, AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, HOST, HeaderMap, HeaderValue};
use hyper::{Method, Request, Response};
use rustls::RootCertStore;
use tokio::time::timeout;
use url::Position;

use crate::engine::ports::{BoxFuture, IdentityProvider, PostError, ProviderAnswer, ProviderRequest, Requester};
use crate::net::dns::HostAddresses;
use crate::net::network_guard::Guard;
use crate::net::post::{Connection, HttpPost, host_and_port, word};

/// Time limit of a request, including name resolution.
pub const DEADLINE: Duration = Duration::from_secs(10);
/// Maximum size of an answer in bytes.
const ANSWER_MAX: usize = 256 * 1024;

/// HTTPS client for identity providers.
pub struct HttpsIdentityProvider {
    way: HttpPost,
    deadline: Duration,
}

impl HttpsIdentityProvider {
    /// Creates a client that trusts `roots`, resolves hosts through `names`, connects only where `guard` permits, and
    /// ends requests within `deadline` ([`DEADLINE`] outside tests).
    pub fn new(roots: RootCertStore, names: Arc<dyn HostAddresses>, guard: Arc<Guard>, deadline: Duration) -> Self {
        Self { way: HttpPost::new(roots, names, guard, deadline), deadline }
    }

    async fn exchange(&self, request: ProviderRequest) -> Result<ProviderAnswer, PostError> {
        if request.url.scheme() != "https" {
            return Err(PostError::Protocol);
        }
        let written = written(&request)?;
        let mut connection = self.way.open(&request.url, Requester::SERVICE).await?;
        let response = connection.exchange(written).await.map_err(|error| word(&*error, PostError::Protocol))?;
        let (status, lifetime) = (response.status().as_u16(), lifetime(response.headers()));
        let body = read(&mut connection, response).await?;
        Ok(ProviderAnswer { status, body, lifetime })
    }
}

impl IdentityProvider for HttpsIdentityProvider {
    fn ask(&self, request: ProviderRequest) -> BoxFuture<'_, Result<ProviderAnswer, PostError>> {
        Box::pin(async { timeout(self.deadline, self.exchange(request)).await.unwrap_or(Err(PostError::Timeout)) })
    }
}

/// Builds the HTTP request.
fn written(request: &ProviderRequest) -> Result<Request<Full<Bytes>>, PostError> {
    let value = |text: &str| HeaderValue::from_str(text).map_err(|_| PostError::Protocol);
    let mut headers = HeaderMap::new();
    headers.insert(HOST, value(host_and_port(&request.url))?);
    headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    if let Some(authorization) = &request.authorization {
        let mut value = value(authorization.expose_text())?;
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
    let body = request.form.as_ref().map(|form| Bytes::copy_from_slice(form.expose()));
    let method = if body.is_some() { Method::POST } else { Method::GET };
    if body.is_some() {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
    }
    let target = &request.url[Position::BeforePath..Position::AfterQuery];
    let mut written = Request::new(Full::new(body.unwrap_or_default()));
    *written.method_mut() = method;
    *written.uri_mut() = target.parse().map_err(|_| PostError::Protocol)?;
    *written.headers_mut() = headers;
    Ok(written)
}

async fn read(connection: &mut Connection, response: Response<Incoming>) -> Result<Vec<u8>, PostError> {
    let (mut read, mut body) = (Vec::new(), response.into_body());
    while let Some(part) = connection.part(&mut body).await {
        let part = part.map_err(|error| word(&error, PostError::Protocol))?;
        if read.len() + part.len() > ANSWER_MAX {
            return Err(PostError::Protocol);
        }
        read.extend_from_slice(&part);
    }
    Ok(read)
}

/// Returns the time for which an answer may be cached (RFC 9111 5.2.2); `None` if its headers don't say.
fn lifetime(headers: &HeaderMap) -> Option<Duration> {
    let lines = headers.get_all(CACHE_CONTROL).iter().filter_map(|line| line.to_str().ok());
    let mut lifetime = None;
    for directive in lines.flat_map(|line| line.split(',')) {
        let (name, value) = directive.split_once('=').unwrap_or((directive, ""));
        match name.trim().to_ascii_lowercase().as_str() {
            "no-store" | "no-cache" => return Some(Duration::ZERO),
            "max-age" => lifetime = value.trim().trim_matches('"').parse().ok().map(Duration::from_secs),
            _ => {}
        }
    }
    lifetime
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::secret::Secret;

    #[test]
    fn an_answer_is_cached_for_the_time_in_its_headers() {
        let of =
            |line: &'static str| lifetime(&HeaderMap::from_iter([(CACHE_CONTROL, HeaderValue::from_static(line))]));
        assert_eq!(of("public, max-age=3600, must-revalidate"), Some(Duration::from_secs(3600)));
        assert_eq!(of("Max-Age=\"5\""), Some(Duration::from_secs(5)));
        assert_eq!(of("max-age=60, no-store"), Some(Duration::ZERO));
        assert_eq!((of("private"), of("max-age=soon"), lifetime(&HeaderMap::new())), (None, None, None));
    }

    #[test]
    fn a_form_is_sent_by_post_and_any_other_request_by_get() {
        let url: url::Url = "https://login.example.com:8443/token?tenant=1".parse().unwrap();
        let request = ProviderRequest { url: url.clone(), form: None, authorization: None };
        let asked = written(&request).unwrap();
        assert_eq!((asked.method(), asked.uri().to_string()), (&Method::GET, "/token?tenant=1".to_owned()));
        assert_eq!(asked.headers()[HOST], "login.example.com:8443");
        let (form, authorization) = (Some(Secret::new("a=1")), Some(Secret::new("Basic eA==")));
        let posted = written(&ProviderRequest { url, form, authorization }).unwrap();
        assert_eq!((posted.method(), posted.headers().len()), (&Method::POST, 4));
        assert!(posted.headers()[AUTHORIZATION].is_sensitive());
    }
}
