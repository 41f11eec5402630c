//! An S3-compatible bucket in memory, for rows with replication. It runs on a thread of its own in this process, so its
//! CPU time does not count for the server.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{IF_NONE_MATCH, RANGE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use crate::Outcome;

/// Name of the bucket.
const NAME: &str = "mail-replica";
const KEYS_MAX: usize = 1000;

/// The running bucket.
pub(crate) struct Bucket {
    address: SocketAddr,
    objects: Arc<Objects>,
}

#[derive(Default)]
struct Objects {
    by_name: Mutex<BTreeMap<String, Bytes>>,
    /// Time by which each answer is delayed.
    delay: Duration,
    requests: AtomicU64,
}

impl Bucket {
    /// Starts an empty bucket whose answers take `delay` longer.
    pub(crate) fn start(delay: Duration) -> Outcome<Self> {
        let objects = Arc::new(Objects { delay, ..Objects::default() });
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let served = Arc::clone(&objects);
        std::thread::Builder::new()
            .name("bucket".to_owned())
            .spawn(move || runtime.block_on(serve(listener, served)))?;
        Ok(Self { address, objects })
    }

    /// Returns the section of the configuration, with `mode` as in the contract.
    pub(crate) fn section(&self, mode: &str) -> String {
        let address = self.address;
        format!("\n[replica]\nurl = \"s3://{NAME}/bench\"\nendpoint = \"http://{address}\"\nmode = \"{mode}\"\n")
    }

    /// Returns the number of requests so far.
    #[allow(dead_code, reason = "only the main job counts them")]
    pub(crate) fn requests(&self) -> u64 {
        self.objects.requests.load(Ordering::Relaxed)
    }
}

async fn serve(listener: std::net::TcpListener, objects: Arc<Objects>) {
    let Ok(listener) = TcpListener::from_std(listener) else { return };
    while let Ok((stream, _)) = listener.accept().await {
        // Otherwise each answer waits for the client's delayed acknowledgement.
        let _ = stream.set_nodelay(true);
        let objects = Arc::clone(&objects);
        let service = service_fn(move |request| {
            let objects = Arc::clone(&objects);
            async move { Ok::<_, Infallible>(objects.answer(request).await) }
        });
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}

impl Objects {
    async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let (head, body) = request.into_parts();
        let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        tokio::time::sleep(self.delay).await;
        let name = decoded(head.uri.path()).trim_start_matches('/').to_owned();
        let name = name.strip_prefix(NAME).unwrap_or_default().trim_start_matches('/').to_owned();
        let mut by_name = self.by_name.lock().unwrap_or_else(PoisonError::into_inner);
        let (status, body) = match head.method {
            Method::PUT if head.headers.contains_key(IF_NONE_MATCH) && by_name.contains_key(&name) => {
                (StatusCode::PRECONDITION_FAILED, refusal("PreconditionFailed"))
            }
            Method::PUT => {
                by_name.insert(name, body);
                (StatusCode::OK, Bytes::new())
            }
            Method::DELETE => {
                by_name.remove(&name);
                (StatusCode::NO_CONTENT, Bytes::new())
            }
            Method::GET if name.is_empty() => (StatusCode::OK, list(&by_name, head.uri.query().unwrap_or_default())),
            Method::GET => match by_name.get(&name) {
                Some(object) => part(object, head.headers.get(RANGE).and_then(|range| range.to_str().ok())),
                None => (StatusCode::NOT_FOUND, refusal("NoSuchKey")),
            },
            _ => (StatusCode::NOT_IMPLEMENTED, refusal("NotImplemented")),
        };
        drop(by_name);
        let mut response = Response::new(Full::new(body));
        *response.status_mut() = status;
        response
    }
}

fn refusal(code: &str) -> Bytes {
    format!("<Error><Code>{code}</Code></Error>").into()
}

/// Returns the bytes of `bytes=FROM-LAST`, or the whole object.
fn part(object: &Bytes, range: Option<&str>) -> (StatusCode, Bytes) {
    let bounds = range.and_then(|range| range.strip_prefix("bytes=")?.split_once('-'));
    let bounds = bounds.and_then(|(from, last)| Some((from.parse().ok()?, last.parse::<usize>().ok()?)));
    match bounds {
        None => (StatusCode::OK, object.clone()),
        Some((from, _)) if from >= object.len() => (StatusCode::RANGE_NOT_SATISFIABLE, refusal("InvalidRange")),
        Some((from, last)) => {
            (StatusCode::PARTIAL_CONTENT, object.slice(from..last.saturating_add(1).min(object.len())))
        }
    }
}

/// Returns a page of names (ListObjectsV2).
fn list(by_name: &BTreeMap<String, Bytes>, query: &str) -> Bytes {
    let value = |wanted: &str| {
        let pair = query.split('&').find_map(|pair| pair.strip_prefix(wanted)?.strip_prefix('='));
        pair.map(decoded).unwrap_or_default()
    };
    let (prefix, after) = (value("prefix"), value("start-after"));
    let from = if after > prefix { Bound::Excluded(after) } else { Bound::Included(prefix.clone()) };
    let mut found = by_name.range((from, Bound::Unbounded)).take_while(|(name, _)| name.starts_with(&prefix));
    let objects: String = (found.by_ref().take(KEYS_MAX))
        .map(|(name, object)| format!("<Contents><Key>{name}</Key><Size>{}</Size></Contents>", object.len()))
        .collect();
    let is_truncated = found.next().is_some();
    format!("<ListBucketResult><IsTruncated>{is_truncated}</IsTruncated>{objects}</ListBucketResult>").into()
}

/// Decodes percent escapes.
fn decoded(text: &str) -> String {
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let (code, rest) = part.split_at_checked(2).unwrap_or((part, ""));
        bytes.extend(u8::from_str_radix(code, 16));
        bytes.extend_from_slice(rest.as_bytes());
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
