//! The HTTP listeners: TCP with or without TLS, and the Unix socket of the operator's commands.
//!
//! `app` calls it with the service. Each accepted connection is a task that its listener joins. Requests have no task
//! of their own (HTTP/2 streams excepted, where hyper creates one).

use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::{Request, Response};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::address_limit::{AddressCounts, CountedAddress};
use super::connection_limit::{ConnectionPlace, ConnectionPlaces};
use super::http_body::Body;
pub use super::http_connection::Connection;
use super::http_connection::{Arrival, Shared};
use super::https_redirect::{self, HttpsRedirect};
use super::tls_settings::TlsSettings;
use crate::domain::network::Network;

/// Connections reserved for the operator's socket, regardless of the load of the public listeners.
const ADMIN_CONNECTIONS: usize = 64;
/// Pause after a failed accept (EMFILE, ENFILE, ENOMEM). The missing resource is freed when connections end.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// Kind of the listener that accepted a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListenerKind {
    /// The network.
    Public,
    /// The Unix socket in the data directory, whose file mode is its authentication.
    Admin,
}

/// Limits and deadlines of connections.
#[derive(Debug, Clone)]
pub struct HttpLimits {
    /// Maximum number of open connections on all TCP listeners.
    pub connections: usize,
    /// Maximum number of open connections of one client address or one IPv6 /64. One IPv6 /48 may have four times as
    /// many.
    pub connections_each: usize,
    /// Networks without a limit per client: this machine. The proxies have none either.
    pub uncounted: Vec<Network>,
    /// Proxies whose `X-Forwarded-For` is trusted (`http.trusted_proxies`).
    pub proxies: Arc<[Network]>,
    /// Time limit of a TLS handshake.
    pub handshake: Duration,
    /// Time limit of a request's head, from its first byte (from the connection's start for the first request).
    pub head_read: Duration,
    /// Maximum time between requests of a connection.
    pub idle: Duration,
    /// Idle time when three quarters of all connections are open.
    pub idle_pressed: Duration,
    /// Maximum time for which a client may read no bytes of an answer.
    pub write_stall: Duration,
    /// Maximum size of a request's head in bytes.
    pub head_bytes: usize,
    /// Maximum number of open HTTP/2 streams on one connection.
    pub streams: u32,
}

impl Default for HttpLimits {
    fn default() -> Self {
        Self {
            connections: 1024,
            connections_each: 256,
            uncounted: vec![
                Network::around(Ipv4Addr::LOCALHOST.into(), 8),
                Network::around(Ipv6Addr::LOCALHOST.into(), 128),
            ],
            proxies: Arc::new([]),
            handshake: Duration::from_secs(10),
            head_read: Duration::from_secs(10),
            idle: Duration::from_secs(75),
            idle_pressed: Duration::from_secs(5),
            write_stall: Duration::from_secs(30),
            head_bytes: 16 * 1024,
            streams: 100,
        }
    }
}

/// The TLS of an HTTP listener.
#[derive(Clone)]
pub struct HttpTls {
    /// The certificate.
    pub settings: Arc<TlsSettings>,
    /// Handler for plain HTTP.
    pub clear: Arc<HttpsRedirect>,
}

/// Handler for requests.
pub trait Serve: Send + Sync + 'static {
    /// Answers one request. It must not panic: that would end the connection.
    fn serve(
        &self,
        request: Request<Incoming>,
        connection: &Arc<Connection>,
    ) -> impl Future<Output = Response<Body>> + Send;
}

/// The listeners of one service.
pub struct HttpServer<T> {
    shared: Shared<T>,
    stop: watch::Sender<bool>,
    public: ConnectionLimits,
    admin: ConnectionLimits,
    listeners: JoinSet<()>,
}

/// Connection limits.
#[derive(Clone)]
struct ConnectionLimits {
    places: Arc<ConnectionPlaces>,
    addresses: Arc<AddressCounts>,
}

impl ConnectionLimits {
    fn new(places: usize, addresses: &Arc<AddressCounts>) -> Self {
        Self { places: ConnectionPlaces::new(places), addresses: Arc::clone(addresses) }
    }
}

impl<T: Serve> HttpServer<T> {
    /// Creates a server without listeners.
    pub fn new(service: Arc<T>, limits: HttpLimits) -> Self {
        let (stop, stopped) = watch::channel(false);
        let uncounted = limits.uncounted.iter().chain(&*limits.proxies).copied().collect();
        let addresses = Arc::new(AddressCounts::new(limits.connections_each, uncounted));
        Self {
            public: ConnectionLimits::new(limits.connections, &addresses),
            admin: ConnectionLimits::new(ADMIN_CONNECTIONS, &addresses),
            shared: Shared { service, limits, stop: stopped },
            stop,
            listeners: JoinSet::new(),
        }
    }

    /// Listens on `address`, with TLS if `tls` is given. Returns the bound address, which has the port if 0 was
    /// requested.
    ///
    /// # Errors
    /// Errors of binding the socket.
    pub async fn listen_tcp(&mut self, address: SocketAddr, tls: Option<HttpTls>) -> io::Result<SocketAddr> {
        self.listen_on(TcpListener::bind(address).await?, tls)
    }

    /// Listens on `socket`; otherwise like [`Self::listen_tcp`].
    ///
    /// # Errors
    /// The socket's address can't be read.
    pub fn listen_on(&mut self, socket: TcpListener, tls: Option<HttpTls>) -> io::Result<SocketAddr> {
        let bound = socket.local_addr()?;
        self.listeners.spawn(accept(PublicSocket { socket, tls }, self.shared.clone(), self.public.clone()));
        Ok(bound)
    }

    /// Listens on the Unix socket at `path`, which only this user may open. A socket left by a dead process is removed:
    /// the lock of the data directory ensures that no live process uses it.
    ///
    /// # Errors
    /// Errors of binding the socket and setting its mode.
    pub fn listen_unix(&mut self, path: &Path) -> io::Result<()> {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let socket = UnixListener::bind(path)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
        self.listeners.spawn(accept(AdminSocket { socket }, self.shared.clone(), self.admin.clone()));
        Ok(())
    }

    /// Serves one connection that does not come from a socket, as a public listener would. Dropping the returned future
    /// closes the connection.
    #[cfg(test)]
    pub(crate) fn serve_stream<S>(&self, stream: S) -> impl Future<Output = ()> + Send + use<S, T>
    where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin + 'static,
    {
        let (shared, places) = (self.shared.clone(), Arc::clone(&self.public.places));
        async move {
            let Some(place) = places.take().await else { return };
            let arrival = Arrival { peer: None, place: Arc::new(place) };
            shared.serve_clear(stream, arrival, ListenerKind::Public).await;
        }
    }

    /// Stops accepting and waits at most `grace` for running requests, then aborts them. Returns whether all of them
    /// finished.
    pub async fn shutdown(mut self, grace: Duration) -> bool {
        self.stop.send_replace(true);
        let finished = timeout(grace, async { while self.listeners.join_next().await.is_some() {} }).await.is_ok();
        self.listeners.shutdown().await;
        finished
    }
}

/// A listening socket.
trait ListeningSocket: Send + 'static {
    type Stream: Send;
    fn next(&self) -> impl Future<Output = io::Result<(Self::Stream, Option<SocketAddr>)>> + Send;
    /// Serves one connection to its end.
    fn serve<T: Serve>(
        &self,
        shared: Shared<T>,
        stream: Self::Stream,
        arrival: Arrival,
    ) -> impl Future<Output = ()> + Send + 'static;
}

struct PublicSocket {
    socket: TcpListener,
    tls: Option<HttpTls>,
}

impl ListeningSocket for PublicSocket {
    type Stream = TcpStream;

    async fn next(&self) -> io::Result<(TcpStream, Option<SocketAddr>)> {
        self.socket.accept().await.map(|(stream, peer)| (stream, Some(peer)))
    }

    fn serve<T: Serve>(
        &self,
        shared: Shared<T>,
        stream: TcpStream,
        arrival: Arrival,
    ) -> impl Future<Output = ()> + Send + 'static {
        let tls = self.tls.clone();
        async move {
            // Answers are written as a whole, so Nagle's algorithm would only delay them. An error of a dead socket
            // shows up later.
            let _set = stream.set_nodelay(true);
            match tls {
                Some(tls) => match timeout(shared.limits.handshake, https_redirect::is_tls(&stream)).await {
                    Ok(true) => shared.serve_tls(stream, tls.settings, arrival).await,
                    Ok(false) => shared.with(tls.clear).serve_clear(stream, arrival, ListenerKind::Public).await,
                    Err(_) => tracing::debug!("a TLS client sent no byte before the deadline"),
                },
                None => shared.serve_clear(stream, arrival, ListenerKind::Public).await,
            }
        }
    }
}

struct AdminSocket {
    socket: UnixListener,
}

impl ListeningSocket for AdminSocket {
    type Stream = UnixStream;

    async fn next(&self) -> io::Result<(UnixStream, Option<SocketAddr>)> {
        self.socket.accept().await.map(|(stream, _)| (stream, None))
    }

    fn serve<T: Serve>(
        &self,
        shared: Shared<T>,
        stream: UnixStream,
        arrival: Arrival,
    ) -> impl Future<Output = ()> + Send + 'static {
        shared.serve_clear(stream, arrival, ListenerKind::Admin)
    }
}

/// Accepts until the server stops, then closes the socket and waits for the connections.
async fn accept<D: ListeningSocket, T: Serve>(listener: D, shared: Shared<T>, limits: ConnectionLimits) {
    let mut connections = JoinSet::new();
    accept_until_stopped(&listener, &shared, &limits, &mut connections).await;
    drop(listener);
    while connections.join_next().await.is_some() {}
}

async fn accept_until_stopped<D: ListeningSocket, T: Serve>(
    listener: &D,
    shared: &Shared<T>,
    limits: &ConnectionLimits,
    connections: &mut JoinSet<()>,
) {
    let mut stop = shared.stop.clone();
    // The value is kept across iterations: it may hold a connection that waits for a permit.
    let mut arriving = pin!(next(listener, limits));
    while !*stop.borrow_and_update() {
        tokio::select! {
            biased;
            _ = stop.changed() => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            arrived = arriving.as_mut() => {
                arriving.set(next(listener, limits));
                let Some(Arrived { presence, place, stream, peer }) = arrived else { break };
                let place = Arc::new(place);
                let serving = listener.serve(shared.clone(), stream, Arrival { peer, place: Arc::clone(&place) });
                connections.spawn(async move {
                    tokio::select! {
                        biased;
                        () = place.lost() => tracing::debug!(?peer, "closed a connection in favour of a new one"),
                        () = serving => {}
                    }
                    drop(presence);
                });
            }
        }
    }
}

/// An accepted connection with its permit.
struct Arrived<S> {
    presence: CountedAddress,
    place: ConnectionPlace,
    stream: S,
    peer: Option<SocketAddr>,
}

/// Accepts the next connection and waits for its permit. At the limit, the connection that is idle longest is closed.
/// If none is idle, new connections wait in the kernel's queue, so that they are served late instead of refused. A
/// connection over its address's limit is closed at once. `None` if the permits are closed.
async fn next<D: ListeningSocket>(listener: &D, limits: &ConnectionLimits) -> Option<Arrived<D::Stream>> {
    loop {
        match listener.next().await {
            Ok((stream, peer)) => match limits.addresses.enter(peer) {
                Some(presence) => {
                    let place = limits.places.take().await?;
                    return Some(Arrived { presence, place, stream, peer });
                }
                None => tracing::debug!(?peer, "connection limit of one client address reached"),
            },
            // The client has disconnected already; accept the next one.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => {
                tracing::warn!(%error, "could not accept a connection; retrying shortly");
                sleep(ACCEPT_BACKOFF).await;
            }
        }
    }
}
