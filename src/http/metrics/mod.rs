//! `GET /metrics` in OpenMetrics form, on a listener of its own and in clear: it is for the machine's own network, and
//! no key opens it (contract 8 "Running").
//!
//! `app` makes the service and listens. A scrape reads counters, asks the file system for sizes and looks at a bounded
//! number of rows; it never walks the store.

mod exposition;
mod page;
mod process;

use std::sync::Arc;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};

pub use self::process::Process;
use super::meters::RequestMeters;
use crate::engine::Engine;
use crate::engine::blocking::OPERATOR;
use crate::net::http_body::Body;
use crate::net::http_listener::{Connection, Serve};
use crate::net::tls_settings::Presented;

/// What the metrics listener serves.
pub struct MetricsService {
    engine: Arc<Engine>,
    requests: Arc<RequestMeters>,
    process: Process,
    certificate: Option<Arc<Presented>>,
}

impl MetricsService {
    /// The page over the meters of these. `certificate` is what HTTP presents, where it speaks TLS.
    pub const fn new(
        engine: Arc<Engine>,
        requests: Arc<RequestMeters>,
        process: Process,
        certificate: Option<Arc<Presented>>,
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
                tracing::error!(%error, "the metrics could not be read");
                plain(StatusCode::SERVICE_UNAVAILABLE)
            }
            Err(_) => plain(StatusCode::INTERNAL_SERVER_ERROR),
        }
    }
}

impl Serve for MetricsService {
    async fn serve(&self, request: Request<Incoming>, _: &Arc<Connection>) -> Response<Body> {
        let is_head = request.method() == Method::HEAD;
        let mut response = match (request.method(), request.uri().path()) {
            (&Method::GET | &Method::HEAD, "/metrics") => self.page().await,
            (_, "/metrics") => {
                let mut refusal = plain(StatusCode::METHOD_NOT_ALLOWED);
                refusal.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
                refusal
            }
            (_, _) => plain(StatusCode::NOT_FOUND),
        };
        if is_head {
            *response.body_mut() = Body::empty();
        }
        response
    }
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
