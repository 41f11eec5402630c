//! One connection to a webhook's receiver or a policy host: opened to an address that the guard permits, then used for
//! one request at a time.
//!
//! It has no task. The caller that awaits an answer also polls the connection, which saves two task switches per
//! request. An idle connection is not polled; its state is checked before it is used again.

use std::error::Error;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::preamble::{HeadLimited, Preamble};

/// Time after which the next address is tried in parallel with one that has not answered (RFC 8305 5).
const HEAD_START: Duration = Duration::from_millis(250);
/// Maximum size of an answer's head and of the read-ahead of its body, in bytes.
const BUFFER_MAX: usize = 64 * 1024;

type HttpConnection = http1::Connection<TokioIo<HeadLimited<Box<dyn Duplex>>>, Full<Bytes>>;

/// The byte stream under HTTP: TLS, or plain TCP during development.
trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl Duplex for TcpStream {}
impl Duplex for TlsStream<TcpStream> {}

/// An open connection.
pub(in crate::net) struct Connection {
    requests: SendRequest<Full<Bytes>>,
    /// The hyper connection, which moves the bytes; `None` once it has ended.
    wire: Option<Pin<Box<HttpConnection>>>,
    /// Limits on the bytes before the final head of the answer.
    preamble: Arc<Preamble>,
    /// The peer's address.
    pub(super) peer: IpAddr,
}

impl Connection {
    /// Makes a TLS handshake with the host `name`, then speaks HTTP/1.1.
    pub(in crate::net) async fn open(
        stream: TcpStream,
        tls: &TlsConnector,
        name: ServerName<'static>,
    ) -> io::Result<Self> {
        // A request is one write.
        stream.set_nodelay(true)?;
        let peer = stream.peer_addr()?.ip();
        Self::over(Box::new(tls.connect(name, stream).await?), peer).await
    }

    /// Speaks HTTP/1.1 without TLS, for a program under development.
    pub(in crate::net) async fn open_plain(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        let peer = stream.peer_addr()?.ip();
        Self::over(Box::new(stream), peer).await
    }

    async fn over(stream: Box<dyn Duplex>, peer: IpAddr) -> io::Result<Self> {
        let preamble = Arc::new(Preamble::default());
        let stream = HeadLimited::new(stream, Arc::clone(&preamble));
        let shaken = http1::Builder::new().max_buf_size(BUFFER_MAX).handshake(TokioIo::new(stream)).await;
        let (requests, wire) = shaken.map_err(io::Error::other)?;
        Ok(Self { requests, wire: Some(Box::pin(wire)), preamble, peer })
    }

    /// Sends one request and waits for the head of its answer.
    ///
    /// # Errors
    /// Errors of HTTP. [`PreambleTooLong`](super::preamble::PreambleTooLong) if more interim answers or bytes than
    /// allowed arrived before that head.
    pub(in crate::net) async fn exchange(
        &mut self,
        mut request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, Box<dyn Error + Send + Sync>> {
        let preamble = Arc::clone(&self.preamble);
        preamble.begin();
        let counted = Arc::clone(&preamble);
        hyper::ext::on_informational(&mut request, move |_| counted.count_interim());
        let answer = moving(&mut self.wire, self.requests.send_request(request)).await;
        preamble.end()?;
        Ok(answer?)
    }

    /// Returns the next part of an answer's body; `None` at its end and after an error.
    pub(super) async fn next(&mut self, body: &mut Incoming) -> Option<Bytes> {
        self.part(body).await?.ok()
    }

    /// Returns the next part of an answer's body; `None` at its end, and an error if the connection fails.
    pub(in crate::net) async fn part(&mut self, body: &mut Incoming) -> Option<hyper::Result<Bytes>> {
        loop {
            // Trailers are not part of the body.
            match moving(&mut self.wire, body.frame()).await?.map(Frame::into_data) {
                Ok(Ok(part)) => return Some(Ok(part)),
                Ok(Err(_)) => {}
                Err(error) => return Some(Err(error)),
            }
        }
    }

    /// Returns whether the connection is open and no request or answer is in flight.
    pub(super) fn is_free(&mut self) -> bool {
        let look = &mut Context::from_waker(Waker::noop());
        move_bytes(&mut self.wire, look);
        self.wire.is_some() && self.requests.is_ready()
    }
}

/// Awaits `work` and polls the connection meanwhile.
async fn moving<T>(wire: &mut Option<Pin<Box<HttpConnection>>>, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    poll_fn(|context| {
        if let Poll::Ready(done) = work.as_mut().poll(context) {
            return Poll::Ready(done);
        }
        move_bytes(wire, context);
        // The connection is polled after its end too, which `work` notices.
        work.as_mut().poll(context)
    })
    .await
}

fn move_bytes(wire: &mut Option<Pin<Box<HttpConnection>>>, context: &mut Context<'_>) {
    if wire.as_mut().is_some_and(|open| open.as_mut().poll(context).is_ready()) {
        *wire = None;
    }
}

/// Connects to the first of `addresses` that answers. They are tried in order, each with a head start over the next.
///
/// # Errors
/// Error of the last address that failed.
pub(in crate::net) async fn connect(addresses: Vec<SocketAddr>) -> io::Result<TcpStream> {
    let mut left = addresses.into_iter();
    let mut trying = JoinSet::new();
    let mut failure = io::Error::from(io::ErrorKind::AddrNotAvailable);
    loop {
        match left.next() {
            Some(address) => drop(trying.spawn(TcpStream::connect(address))),
            None if trying.is_empty() => return Err(failure),
            None => {}
        }
        tokio::select! {
            Some(tried) = trying.join_next() => match tried.map_err(io::Error::other).flatten() {
                Ok(stream) => return Ok(stream),
                Err(error) => failure = error,
            },
            () = tokio::time::sleep(HEAD_START), if left.len() > 0 => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_refused_connection_tries_the_next_address_and_the_last_failure_is_returned() {
        let open = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let closed = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap().local_addr().unwrap();
        let reached = connect(vec![closed, open.local_addr().unwrap()]).await.unwrap();
        assert_eq!(reached.peer_addr().unwrap(), open.local_addr().unwrap());
        assert_eq!(connect(vec![closed, closed]).await.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    }

    #[tokio::test]
    async fn a_silent_address_delays_the_next_one_only_briefly() {
        // The backlog of this listener is full: further connections are neither accepted nor refused.
        let silent = tokio::net::TcpSocket::new_v4().unwrap();
        silent.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let silent = silent.listen(1).unwrap();
        let address = silent.local_addr().unwrap();
        let _queued = [TcpStream::connect(address).await.unwrap(), TcpStream::connect(address).await.unwrap()];
        let open = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let reached = connect(vec![address, open.local_addr().unwrap()]).await.unwrap();
        assert_eq!(reached.peer_addr().unwrap(), open.local_addr().unwrap());
    }
}
