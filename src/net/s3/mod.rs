//! A bucket of an S3-compatible service: implements the ports [`Bucket`] and
//! [`BucketSettings`](crate::engine::ports::BucketSettings).
//!
//! One call is one request: no redirect, no proxy, no retry. A create carries a signed `If-None-Match: *`, so a proxy
//! that drops it is detected. Answers are limited in size and time. The operator configures the service, so the network
//! guard does not apply. Plain http is only used to this machine and to `[network] allow`.

mod answer;
mod connection;
mod credentials;
mod list;
mod settings;
mod signature;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod xml;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use reqwest::header::{CONTENT_LENGTH, HeaderMap, RANGE};
use reqwest::{Client, Method, Response};
use rustls::RootCertStore;
use url::Url;

pub use self::connection::{Forbidden as ForbiddenEndpoint, may_speak_http};
pub use self::credentials::{CredentialSources, Credentials, NoCredentials};

use self::answer::Refusal;
use self::credentials::CredentialStore;
use self::signature::{Signable, UNSIGNED};
use super::dns::HostAddresses;
use crate::base::digest::sha256;
use crate::base::time::Timestamp;
use crate::domain::network::Network;
use crate::engine::ports::{
    BoxFuture, Bucket, BucketError, BucketErrorKind, BucketOperation, BucketResult, Creation, OBJECT_BYTES_MAX,
    ObjectPage,
};

/// Minimum rate of a body in bytes per second, in addition to the configured timeout: 64 MiB get one more minute.
const BYTES_PER_SECOND_MIN: u64 = 1 << 20;
/// Maximum size in bytes of a list, a setting or an error.
const TEXT_BYTES_MAX: usize = 4 << 20;

/// Location of a bucket and how to access it.
#[derive(Clone)]
pub struct S3Settings {
    /// URL of the service, without a path.
    pub endpoint: Url,
    /// The region that requests are signed for.
    pub region: String,
    /// Whether the bucket's name is in the path instead of the host name.
    pub path_style: bool,
    /// The bucket's name.
    pub bucket: String,
    /// Prefix of all object names: empty, or ending with a slash.
    pub prefix: String,
    /// Timeout of a request, without the time for its body.
    pub timeout: Duration,
    /// Networks that plain http may reach besides this machine.
    pub allow: Vec<Network>,
    /// The trusted roots for the service's certificate.
    pub roots: RootCertStore,
    /// Sources of credentials.
    pub credentials: CredentialSources,
}

/// A bucket of an S3-compatible service.
pub struct S3 {
    settings: S3Settings,
    client: Client,
    credentials: CredentialStore,
    now: Box<dyn Fn() -> Timestamp + Send + Sync>,
    /// The `Date` of the last answer, and when it arrived.
    date: Mutex<Option<(Timestamp, Instant)>>,
}

/// One unsigned request.
struct UnsignedRequest<'a> {
    operation: BucketOperation,
    method: Method,
    /// The object's name after the prefix; `None` for the bucket itself.
    object: Option<&'a str>,
    /// The name shown in errors.
    name: &'a str,
    query: &'a [(&'a str, &'a str)],
    headers: &'a [(&'a str, &'a str)],
    body: Bytes,
}

/// A complete answer.
struct Answer {
    status: u16,
    request: String,
    body: Bytes,
}

impl S3 {
    /// Creates a client for the bucket of `settings`, whose host is resolved through `names`. `now` is the wall clock
    /// for signatures.
    ///
    /// # Errors
    /// The errors of building the HTTP client, which does no I/O.
    pub fn new(
        settings: S3Settings,
        names: Arc<dyn HostAddresses>,
        now: impl Fn() -> Timestamp + Send + Sync + 'static,
    ) -> Result<Self, reqwest::Error> {
        let client = connection::client(&settings, names)?;
        let credentials = CredentialStore::new(settings.credentials.clone(), settings.roots.clone())?;
        Ok(Self { settings, client, credentials, now: Box::new(now), date: Mutex::default() })
    }

    /// Sends a request and reads its answer of at most `limit` bytes.
    async fn ask(&self, ask: UnsignedRequest<'_>, limit: usize) -> BucketResult<Answer> {
        let (operation, name) = (ask.operation, ask.name.to_owned());
        let error = |kind, message| BucketError { kind, operation, name: name.clone(), message };
        let seconds = ask.body.len() as u64 / BYTES_PER_SECOND_MIN;
        let deadline = self.settings.timeout + Duration::from_secs(seconds);
        let late = || {
            let message = format!("no answer within {} s", deadline.as_secs());
            error(BucketErrorKind::Unknown, message)
        };
        let send = async {
            let request = self.signed(ask).await.map_err(|why| error(BucketErrorKind::Forbidden, why.to_string()))?;
            let sent = self.client.execute(request).await;
            sent.map_err(|failure| error(connection::kind(&failure), connection::cause(&failure)))
        };
        let response = tokio::time::timeout(deadline, send).await.map_err(|_| late())??;
        self.note_date(response.headers());
        let (status, request) = (response.status().as_u16(), request_id(response.headers()));
        // Only the error document of an error answer is read.
        let limit = if (200..300).contains(&status) { limit } else { TEXT_BYTES_MAX };
        let body = self.body(response, limit).await.map_err(|(kind, message)| error(kind, message))?;
        Ok(Answer { status, request, body })
    }

    async fn body(&self, mut response: Response, limit: usize) -> Result<Bytes, (BucketErrorKind, String)> {
        let too_large = || (BucketErrorKind::Refused, format!("the answer is larger than {limit} bytes"));
        let announced = response.content_length().unwrap_or_default();
        if announced > limit as u64 {
            return Err(too_large());
        }
        let deadline = self.settings.timeout + Duration::from_secs(announced / BYTES_PER_SECOND_MIN);
        let read = async {
            let mut body = BytesMut::new();
            while let Some(part) =
                response.chunk().await.map_err(|error| (BucketErrorKind::Unknown, connection::cause(&error)))?
            {
                if body.len() + part.len() > limit {
                    return Err(too_large());
                }
                body.extend_from_slice(&part);
            }
            Ok(body.freeze())
        };
        let late = |_| (BucketErrorKind::Unknown, format!("the answer did not end within {} s", deadline.as_secs()));
        tokio::time::timeout(deadline, read).await.map_err(late)?
    }

    async fn signed(&self, ask: UnsignedRequest<'_>) -> Result<reqwest::Request, NoCredentials> {
        let now = (self.now)();
        let credentials = self.credentials.get(now).await?;
        let settings = &self.settings;
        let (host, path) = self.place(ask.object);
        let is_tls = settings.endpoint.scheme() == "https";
        let payload = if is_tls && !ask.body.is_empty() { UNSIGNED.to_owned() } else { hex::encode(sha256(&ask.body)) };
        let date = signature::amz_date(now);
        let mut headers = vec![("host", host.as_str()), ("x-amz-content-sha256", &payload), ("x-amz-date", &date)];
        if let Some(token) = &credentials.session_token {
            headers.push(("x-amz-security-token", token.expose_text()));
        }
        headers.extend_from_slice(ask.headers);
        let request = Signable {
            method: ask.method.as_str(),
            path: &path,
            query: ask.query,
            headers: &headers,
            payload: &payload,
        };
        let authorization = signature::authorization(&request, &credentials, &settings.region, &date);
        let query = signature::query_string(ask.query);
        let query = if query.is_empty() { query } else { format!("?{query}") };
        let url = format!("{}://{host}{path}{query}", settings.endpoint.scheme());
        let is_write = ask.method == Method::PUT;
        let builder = self.client.request(ask.method, url).header("authorization", authorization);
        let builder = headers
            .into_iter()
            .filter(|(name, _)| *name != "host")
            .fold(builder, |builder, (name, value)| builder.header(name, value));
        // Some services require a length for every write, even an empty one.
        let is_empty_write = is_write && ask.body.is_empty();
        let builder = if is_empty_write { builder.header(CONTENT_LENGTH, "0") } else { builder };
        let request = builder.body(ask.body).build();
        request.map_err(|error| NoCredentials(format!("the request cannot be written: {}", connection::cause(&error))))
    }

    /// Returns the host, with its port unless it is the scheme's default, and the path of an object or of the bucket.
    fn place(&self, object: Option<&str>) -> (String, String) {
        let settings = &self.settings;
        let host = settings.endpoint.host_str().unwrap_or_default();
        let host = match settings.endpoint.port() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        };
        let object = object.map(|name| format!("{}{name}", settings.prefix)).unwrap_or_default();
        if settings.path_style {
            (host, signature::encode(&format!("/{}/{object}", settings.bucket), true))
        } else {
            (format!("{}.{host}", settings.bucket), signature::encode(&format!("/{object}"), true))
        }
    }

    fn note_date(&self, headers: &HeaderMap) {
        let header = headers.get("date").and_then(|value| value.to_str().ok());
        if let Some(date) = header.and_then(answer::date) {
            *self.date.lock().unwrap_or_else(PoisonError::into_inner) = Some((date, Instant::now()));
        }
    }

    /// Converts an error answer to an error.
    fn refused(&self, operation: BucketOperation, name: &str, refusal: &Refusal) -> BucketError {
        let kind = refusal.kind();
        if kind == BucketErrorKind::Forbidden {
            self.credentials.refuse();
        }
        BucketError { kind, operation, name: name.to_owned(), message: refusal.words() }
    }

    /// Sends a write and reads its answer.
    async fn write(&self, operation: BucketOperation, name: &str, body: Bytes) -> BucketResult<Creation> {
        let is_create = operation == BucketOperation::Create;
        let headers: &[(&str, &str)] = if is_create { &[("if-none-match", "*")] } else { &[] };
        let ask =
            UnsignedRequest { operation, method: Method::PUT, object: Some(name), name, query: &[], headers, body };
        let answer = self.ask(ask, TEXT_BYTES_MAX).await?;
        match answer.status {
            200..300 => Ok(Creation::Created),
            412 if is_create => Ok(Creation::Exists),
            _ => Err(self.refused(operation, name, &answer.refusal())),
        }
    }

    async fn get(&self, name: &str, range: Option<&str>) -> BucketResult<Option<Bytes>> {
        let operation = BucketOperation::Read;
        let headers: Vec<_> = range.map(|range| (RANGE.as_str(), range)).into_iter().collect();
        let (method, body) = (Method::GET, Bytes::new());
        let ask = UnsignedRequest { operation, method, object: Some(name), name, query: &[], headers: &headers, body };
        let answer = self.ask(ask, OBJECT_BYTES_MAX).await?;
        let refusal = match answer.status {
            200..300 => return Ok(Some(answer.body)),
            _ => answer.refusal(),
        };
        match (refusal.status, refusal.code.as_str()) {
            // Some services send no code, so every 404 but `NoSuchBucket` means that the object does not exist.
            (404, code) if code != "NoSuchBucket" => Ok(None),
            (416, _) => Ok(Some(Bytes::new())),
            _ => Err(self.refused(operation, name, &refusal)),
        }
    }

    /// Returns a document about the bucket; `None` if the service says that there is none.
    async fn document(
        &self,
        operation: BucketOperation,
        name: &str,
        query: &[(&str, &str)],
    ) -> BucketResult<Option<String>> {
        let (method, body) = (Method::GET, Bytes::new());
        let answer = self
            .ask(UnsignedRequest { operation, method, object: None, name, query, headers: &[], body }, TEXT_BYTES_MAX);
        let answer = answer.await?;
        if (200..300).contains(&answer.status) {
            return Ok(Some(String::from_utf8_lossy(&answer.body).into_owned()));
        }
        let refusal = answer.refusal();
        let is_absent = ["ObjectLockConfigurationNotFoundError", "NoSuchLifecycleConfiguration"];
        if refusal.status == 404 && is_absent.contains(&refusal.code.as_str()) {
            return Ok(None);
        }
        Err(self.refused(operation, name, &refusal))
    }
}

impl Answer {
    fn refusal(&self) -> Refusal {
        Refusal::read(self.status, &self.body, &self.request)
    }
}

fn request_id(headers: &HeaderMap) -> String {
    let header = headers.get("x-amz-request-id").and_then(|value| value.to_str().ok());
    header.unwrap_or_default().to_owned()
}

impl Bucket for S3 {
    fn create<'a>(&'a self, name: &'a str, bytes: Bytes) -> BoxFuture<'a, BucketResult<Creation>> {
        Box::pin(self.write(BucketOperation::Create, name, bytes))
    }

    fn read<'a>(&'a self, name: &'a str) -> BoxFuture<'a, BucketResult<Option<Bytes>>> {
        Box::pin(self.get(name, None))
    }

    fn read_range<'a>(&'a self, name: &'a str, from: u64, length: u64) -> BoxFuture<'a, BucketResult<Option<Bytes>>> {
        Box::pin(async move {
            // An empty range can't be expressed.
            let last = from.saturating_add(length.max(1) - 1);
            let read = self.get(name, Some(&format!("bytes={from}-{last}"))).await?;
            let length = usize::try_from(length).unwrap_or(usize::MAX);
            Ok(read.map(|bytes| bytes.slice(..bytes.len().min(length))))
        })
    }

    fn list<'a>(&'a self, prefix: &'a str, after: &'a str) -> BoxFuture<'a, BucketResult<ObjectPage>> {
        Box::pin(self.page(prefix, after))
    }

    fn overwrite<'a>(&'a self, name: &'a str, bytes: Bytes) -> BoxFuture<'a, BucketResult<()>> {
        Box::pin(async move { self.write(BucketOperation::Overwrite, name, bytes).await.map(drop) })
    }

    fn remove<'a>(&'a self, name: &'a str) -> BoxFuture<'a, BucketResult<()>> {
        Box::pin(async move {
            let operation = BucketOperation::Remove;
            let (method, body) = (Method::DELETE, Bytes::new());
            let ask = UnsignedRequest { operation, method, object: Some(name), name, query: &[], headers: &[], body };
            let answer = self.ask(ask, TEXT_BYTES_MAX).await?;
            let refusal = match answer.status {
                200..300 => return Ok(()),
                _ => answer.refusal(),
            };
            let is_gone = refusal.status == 404 && refusal.code != "NoSuchBucket";
            if is_gone { Ok(()) } else { Err(self.refused(operation, name, &refusal)) }
        })
    }

    fn date(&self) -> Option<Timestamp> {
        let date = *self.date.lock().unwrap_or_else(PoisonError::into_inner);
        date.map(|(date, seen)| date + seen.elapsed())
    }
}
