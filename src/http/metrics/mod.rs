//! `GET /metrics` in OpenMetrics format, on a separate listener over plain http without a key: it is for the machine's
//! own network (contract 8).
//!
//! `app` creates the service and the listener. A scrape reads counters, file system sizes and a limited number of rows;
//! it never scans the store.

mod exposition;
mod page;
mod process;
mod replica;

use std::sync::Arc;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use tokio::sync::watch;

use self::exposition::Exposition;
pub use self::process::Process;
use super::meters::RequestMeters;
use crate::engine::Engine;
use crate::engine::blocking::OPERATOR;
use crate::engine::bucket::meters::BucketMeters;
use crate::engine::replica::ReplicaStatus;
use crate::net::http_body::Body;
use crate::net::http_listener::{Connection, Serve};
use crate::net::tls_settings::PresentedCertificate;

/// State of the metrics listener.
pub struct MetricsService {
    engine: Arc<Engine>,
    requests: Arc<RequestMeters>,
    process: Process,
    certificate: Option<Arc<PresentedCertificate>>,
}

impl MetricsService {
    /// Creates the page over these meters. `certificate` is the one that HTTP presents, if it uses TLS.
    pub const fn new(
        engine: Arc<Engine>,
        requests: Arc<RequestMeters>,
        process: Process,
        certificate: Option<Arc<PresentedCertificate>>,
    ) -> Self {
        Self { engine, requests, process, certificate }
    }

    async fn page(&self) -> Response<Body> {
        let (engine, requests) = (Arc::clone(&self.engine), Arc::clone(&self.requests));
        let (process, certificate) = (self.process.clone(), self.certificate.clone());
        let reader = Arc::clone(&self.engine);
        let written = reader.blocking(OPERATOR, move || {
            let now = engine.clock.now();
            let certificate = certificate.as_ref().map(|presented| &presented.meters);
            page::page(&engine, &requests, &process, certificate, now)
        });
        match written.await {
            Ok(Ok(text)) => answer(StatusCode::OK, exposition::MEDIA_TYPE, text),
            Ok(Err(error)) => {
                tracing::error!(%error, "could not read the metrics; the scrape failed");
                plain(StatusCode::SERVICE_UNAVAILABLE)
            }
            Err(_) => plain(StatusCode::INTERNAL_SERVER_ERROR),
        }
    }
}

impl Serve for MetricsService {
    async fn serve(&self, request: Request<Incoming>, _: &Arc<Connection>) -> Response<Body> {
        respond(&request, self.page()).await
    }
}

/// The metrics listener of a standby, whose store is not open.
pub struct StandbyMetricsService {
    status: watch::Receiver<ReplicaStatus>,
    meters: Arc<BucketMeters>,
    process: Process,
}

impl StandbyMetricsService {
    /// Creates the page over `status` and the `meters` of the bucket.
    pub const fn new(status: watch::Receiver<ReplicaStatus>, meters: Arc<BucketMeters>, process: Process) -> Self {
        Self { status, meters, process }
    }

    fn page(&self) -> Response<Body> {
        let mut text = Exposition::default();
        replica::write_standby(&mut text, &self.status.borrow(), &self.meters);
        self.process.write(&mut text);
        answer(StatusCode::OK, exposition::MEDIA_TYPE, text.finish())
    }
}

impl Serve for StandbyMetricsService {
    async fn serve(&self, request: Request<Incoming>, _: &Arc<Connection>) -> Response<Body> {
        respond(&request, async { self.page() }).await
    }
}

/// Answers a request with the text of `page`.
async fn respond(request: &Request<Incoming>, page: impl Future<Output = Response<Body>>) -> Response<Body> {
    let mut response = match (request.method(), request.uri().path()) {
        (&Method::GET | &Method::HEAD, "/metrics") => page.await,
        (_, "/metrics") => {
            let mut refusal = plain(StatusCode::METHOD_NOT_ALLOWED);
            refusal.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            refusal
        }
        (_, _) => plain(StatusCode::NOT_FOUND),
    };
    if request.method() == Method::HEAD {
        *response.body_mut() = Body::empty();
    }
    response
}

fn plain(status: StatusCode) -> Response<Body> {
    let reason = status.canonical_reason().unwrap_or_default();
    answer(status, "text/plain; charset=utf-8", format!("{reason}. The metrics are at /metrics.\n"))
}

fn answer(status: StatusCode, media_type: &'static str, text: String) -> Response<Body> {
    let mut response = Response::new(Body::Whole(Bytes::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
