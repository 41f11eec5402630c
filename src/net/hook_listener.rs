//! Receives webhooks over plain http on this machine, for `postrider webhook listen --receive`: behind a proxy or
//! tunnel that terminates TLS, or directly from a `--forward-to`. The caller decides whether a request is authentic.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

/// Maximum size of a request body in bytes, far above any event.
const BODY_BYTES_MAX: usize = 1 << 20;
const CONNECTIONS_MAX: usize = 64;
/// Time limit for a request's head, and again for its body.
const PATIENCE: Duration = Duration::from_secs(10);
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// Decides whether a request is authentic, and describes it.
pub type Judge = dyn Fn(&HeaderMap, Bytes) -> Verdict + Send + Sync;

/// Answer to the sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The request is authentic: 204.
    Believed,
    /// The request is not authentic: 401.
    Refused,
}

/// A bound listener.
pub struct HookListener {
    listener: TcpListener,
}

impl HookListener {
    /// Binds `address`.
    ///
    /// # Errors
    /// Errors of binding.
    pub async fn bind(address: SocketAddr) -> io::Result<Self> {
        Ok(Self { listener: TcpListener::bind(address).await? })
    }

    /// Returns the bound address.
    ///
    /// # Errors
    /// The socket has no address.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until the future is dropped.
    pub async fn serve(&self, judge: Arc<Judge>) {
        let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        loop {
            let Ok(place) = Arc::clone(&room).acquire_owned().await else { return };
            let Ok((stream, _)) = self.listener.accept().await else {
                sleep(ACCEPT_BACKOFF).await;
                continue;
            };
            let judge = Arc::clone(&judge);
            tokio::spawn(async move {
                let service = service_fn(|request| answer(request, Arc::clone(&judge)));
                let mut builder = http1::Builder::new();
                builder.timer(TokioTimer::new()).header_read_timeout(PATIENCE);
                // A sender whose connection fails tries again.
                let _ = builder.serve_connection(TokioIo::new(stream), service).await;
                drop(place);
            });
        }
    }
}

async fn answer(request: Request<Incoming>, judge: Arc<Judge>) -> Result<Response<Empty<Bytes>>, hyper::Error> {
    let status = if request.method() == Method::POST {
        let (head, body) = request.into_parts();
        match timeout(PATIENCE, Limited::new(body, BODY_BYTES_MAX).collect()).await {
            Ok(Ok(body)) => match judge(&head.headers, body.to_bytes()) {
                Verdict::Believed => StatusCode::NO_CONTENT,
                Verdict::Refused => StatusCode::UNAUTHORIZED,
            },
            Ok(Err(_)) => StatusCode::PAYLOAD_TOO_LARGE,
            Err(_) => StatusCode::REQUEST_TIMEOUT,
        }
    } else {
        StatusCode::METHOD_NOT_ALLOWED
    };
    let mut response = Response::new(Empty::new());
    *response.status_mut() = status;
    Ok(response)
}
