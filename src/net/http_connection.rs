//! One HTTP connection, from the TLS handshake to its end: its protocol, its deadlines, and the completion of running
//! requests when the listener stops.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::header::HeaderMap;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use hyper_util::server::graceful::GracefulConnection;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_rustls::TlsAcceptor;

use super::acme::challenges;
use super::connection_activity::{Activity, BodyWait, BusyGuard, Lingering, PendingPart, Protocol, Verdict};
use super::connection_limit::ConnectionPlace;
use super::http_body::Body;
use super::http_client::Client;
use super::http_guard::Guard;
use super::http_listener::{HttpLimits, ListenerKind, Serve};
use super::http_stream::TrackedStream;
use super::tls_settings::TlsSettings;
use crate::domain::network::Network;

/// Beginning of an HTTP/2 connection (RFC 9113 3.4).
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Maximum number of streams that a client opened and reset before they were served (CVE-2023-44487).
const RESET_STREAMS_MAX: usize = 20;
const H2_STREAM_WINDOW: u32 = 256 * 1024;
const H2_CONNECTION_WINDOW: u32 = 1024 * 1024;
/// Read buffer of HTTP/1. Without this limit one connection may hold 400 KiB.
const H1_BUFFER: usize = 64 * 1024;

/// The connection of a request.
pub struct Connection {
    /// The client's address; absent on a Unix socket.
    pub peer: Option<SocketAddr>,
    /// The listener that accepted the connection.
    pub kind: ListenerKind,
    /// Whether the connection is encrypted.
    pub encrypted: bool,
    proxies: Arc<[Network]>,
    activity: Arc<Activity>,
}

impl Connection {
    /// Returns the client of a request with `headers`.
    pub fn client(&self, headers: &HeaderMap) -> Client {
        Client::of(self.peer, headers, &self.proxies)
    }

    /// Keeps the connection open while a refused body is read after its answer, unless another connection needs its
    /// place.
    pub fn linger(&self) -> Lingering {
        self.activity.linger()
    }

    /// Marks a request that waits for its body. Meanwhile its connection may be closed for another one; connections of
    /// authenticated clients (`is_known`) are the last to be closed.
    pub fn await_body(&self, is_known: bool) -> BodyWait {
        self.activity.await_body(is_known)
    }

    /// Closes the connection once its requests are answered.
    pub fn close_after_answers(&self) {
        self.activity.close();
    }
}

/// An accepted connection: its peer and its permit.
pub(super) struct Arrival {
    pub(super) peer: Option<SocketAddr>,
    pub(super) place: Arc<ConnectionPlace>,
}

/// State that a listener shares with each of its connections.
pub(super) struct Shared<T> {
    pub(super) service: Arc<T>,
    pub(super) limits: HttpLimits,
    pub(super) stop: watch::Receiver<bool>,
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self { service: Arc::clone(&self.service), limits: self.limits.clone(), stop: self.stop.clone() }
    }
}

impl<T> Shared<T> {
    /// Returns the same state for another service.
    pub(super) fn with<U>(self, service: Arc<U>) -> Shared<U> {
        Shared { service, limits: self.limits, stop: self.stop }
    }
}

impl<T: Serve> Shared<T> {
    /// Serves `stream` after a TLS handshake, which has a separate deadline.
    pub(super) async fn serve_tls<S>(self, stream: S, tls: Arc<TlsSettings>, arrival: Arrival)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let deadline = Instant::now() + self.limits.handshake;
        let handshake = TlsAcceptor::from(tls.current()).accept(stream);
        let Ok(Ok(stream)) = timeout_at(deadline, handshake).await else {
            tracing::debug!("a TLS handshake failed or took too long");
            return;
        };
        let agreed = match stream.get_ref().1.alpn_protocol() {
            Some(b"h2") => Some(Protocol::Http2),
            Some(b"http/1.1") => Some(Protocol::Http1),
            // For the authority the handshake is the whole check (RFC 8737 3).
            Some(challenges::ALPN) => return,
            Some(_) | None => None,
        };
        self.serve(stream, agreed, arrival, ListenerKind::Public, true).await;
    }

    /// Serves `stream` without TLS.
    pub(super) async fn serve_clear<S>(self, stream: S, arrival: Arrival, kind: ListenerKind)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        self.serve(stream, None, arrival, kind, false).await;
    }

    async fn serve<S>(
        self,
        mut stream: S,
        agreed: Option<Protocol>,
        Arrival { peer, place }: Arrival,
        kind: ListenerKind,
        encrypted: bool,
    ) where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let opened = Instant::now();
        let (protocol, prefix) = match agreed {
            Some(protocol) => (protocol, Bytes::new()),
            None => match timeout_at(opened + self.limits.head_read, detect_protocol(&mut stream)).await {
                Ok(Ok(detected)) => detected,
                // A client that sends nothing, or half a preface, gets no answer: its protocol is unknown.
                Ok(Err(_)) | Err(_) => return,
            },
        };
        let activity = Arc::new(Activity::new(opened, protocol));
        place.set_activity(&activity);
        let proxies = Arc::clone(&self.limits.proxies);
        let connection = Arc::new(Connection { peer, kind, encrypted, proxies, activity: Arc::clone(&activity) });
        let guard = match protocol {
            Protocol::Http1 => Some(Guard::new(self.limits.head_bytes)),
            Protocol::Http2 => None,
        };
        let io = TrackedStream::new(stream, prefix, Arc::clone(&activity), guard);
        let service = Arc::clone(&self.service);
        let handler = service_fn(move |request: Request<Incoming>| {
            let service = Arc::clone(&service);
            let connection = Arc::clone(&connection);
            let busy = connection.activity.begin();
            async move {
                let answer: Response<Body> = service.serve(request, &connection).await;
                Ok::<_, Infallible>(answer.map(|body| TrackedBody { body, offer: Some(busy.offer()), busy }))
            }
        });
        match protocol {
            Protocol::Http1 => self.drive(http1(&self.limits).serve_connection(io, handler), &activity, &place).await,
            Protocol::Http2 => self.drive(http2(&self.limits).serve_connection(io, handler), &activity, &place).await,
        }
    }

    /// Runs one connection until it ends, a deadline passes or the listener stops.
    async fn drive<C>(&self, connection: C, activity: &Activity, place: &ConnectionPlace)
    where
        C: GracefulConnection<Error = hyper::Error>,
    {
        let mut connection = pin!(connection);
        let mut stop = self.stop.clone();
        let mut closing = *stop.borrow_and_update();
        if closing {
            connection.as_mut().graceful_shutdown();
        }
        let mut timer = pin!(sleep_until(Instant::now() + self.limits.head_read.min(self.limits.idle_pressed)));
        loop {
            tokio::select! {
                biased;
                ended = connection.as_mut() => return note_end(ended),
                _ = stop.changed(), if !closing => {
                    closing = true;
                    connection.as_mut().graceful_shutdown();
                }
                () = activity.closing(), if !closing => {
                    closing = true;
                    connection.as_mut().graceful_shutdown();
                }
                () = timer.as_mut() => match activity.judge(Instant::now(), &self.limits, place.is_pressed()) {
                    Verdict::Wait(until) => timer.as_mut().reset(until),
                    Verdict::Idle if !closing => {
                        closing = true;
                        connection.as_mut().graceful_shutdown();
                        timer.as_mut().reset(Instant::now() + self.limits.head_read);
                    }
                    Verdict::SlowHead => {
                        // The stream answers at its next read, when hyper is polled.
                        activity.expire();
                        let grace = Instant::now() + self.limits.head_read;
                        let _ended = timeout_at(grace, connection.as_mut()).await;
                        return;
                    }
                    Verdict::Idle | Verdict::Stuck => return,
                },
            }
        }
    }
}

/// Reads until the bytes are the HTTP/2 preface, or can't become it.
async fn detect_protocol<S: AsyncRead + Unpin>(stream: &mut S) -> io::Result<(Protocol, Bytes)> {
    let mut start = [0; PREFACE.len()];
    let mut length = 0;
    while length < PREFACE.len() {
        let read = stream.read(&mut start[length..]).await?;
        if read == 0 && length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        length += read;
        if read == 0 || start[..length] != PREFACE[..length] {
            return Ok((Protocol::Http1, Bytes::copy_from_slice(&start[..length])));
        }
    }
    Ok((Protocol::Http2, Bytes::copy_from_slice(PREFACE)))
}

fn http1(limits: &HttpLimits) -> http1::Builder {
    let mut builder = http1::Builder::new();
    // Hyper's own limit of 100 headers applies. Its read timeout would also end idle connections, so ours is used.
    builder.max_header_size(limits.head_bytes).max_buf_size(H1_BUFFER).header_read_timeout(None);
    builder
}

fn http2(limits: &HttpLimits) -> http2::Builder<TokioExecutor> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.streams)
        .max_pending_accept_reset_streams(RESET_STREAMS_MAX)
        .max_local_error_reset_streams(RESET_STREAMS_MAX)
        .max_header_list_size(u32::try_from(limits.head_bytes).unwrap_or(u32::MAX))
        .initial_stream_window_size(H2_STREAM_WINDOW)
        .initial_connection_window_size(H2_CONNECTION_WINDOW)
        .keep_alive_interval(limits.head_read)
        .keep_alive_timeout(limits.head_read);
    builder
}

fn note_end(ended: Result<(), hyper::Error>) {
    if let Err(error) = ended {
        tracing::debug!(%error, "an HTTP connection ended early");
    }
}

/// The body of an answer, with the guards of its connection. The connection does not count as idle until the body is
/// sent. A client that reads nothing can't hold the connection for ever. Over HTTP/2 a blocked write does not show
/// that; hyper only stops requesting frames.
struct TrackedBody {
    body: Body,
    /// Set while the client has to read.
    offer: Option<PendingPart>,
    busy: BusyGuard,
}

impl hyper::body::Body for TrackedBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        self.offer = None;
        let poll = Pin::new(&mut self.body).poll_frame(cx);
        if let Poll::Ready(Some(_)) = poll {
            self.offer = Some(self.busy.offer());
        }
        poll
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
