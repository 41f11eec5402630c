//! Webhook requests against receivers on loopback with a test authority, with behaviour of every kind.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::*;
use crate::engine::ports::{LookupFailure, Requester};

mod interim;

/// Short enough for tests that must reach it, and long enough for those that must not.
const TEST_DEADLINE: Duration = Duration::from_secs(1);
const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Behaviour of a receiver for a request.
#[derive(Clone)]
enum Does {
    /// Writes these bytes and closes.
    Answers(Vec<u8>),
    /// Writes these bytes, and then serves the next request on the same connection.
    KeepsAlive(&'static str),
    /// Writes these bytes, and closes without an answer when the next request has come on the same connection.
    AnswersOnce(&'static str),
    /// Writes these bytes, then repeats the same byte for ever.
    Endless(&'static str),
    /// Writes these bytes again and again.
    Repeats(&'static str),
    /// Writes these bytes, then says nothing.
    Stalls(&'static str),
    /// Closes without a TLS `close_notify`.
    Resets,
    /// Does not speak TLS at all.
    SpeaksPlain,
}

fn answers(text: &str) -> Does {
    Does::Answers(text.as_bytes().to_vec())
}

/// A receiver, its authority, and a client that knows both.
struct World {
    port: u16,
    requests: Arc<AtomicUsize>,
    connections: Arc<AtomicUsize>,
    /// Notified when the receiver has closed a connection.
    closed: Arc<Notify>,
    names: Arc<Names>,
    post: HttpPost,
    /// Whether a request was begun.
    begun: AtomicBool,
}

/// The addresses of the receiver's name. If there are none, lookups fail.
struct Names(Mutex<Result<Vec<IpAddr>, LookupFailure>>);

impl HostAddresses for Names {
    fn addresses<'a>(&'a self, host: &'a str, _: Requester) -> BoxFuture<'a, Result<Vec<IpAddr>, LookupFailure>> {
        assert_eq!(host, "hook.example");
        let addresses = self.0.lock().unwrap().clone();
        Box::pin(async {
            match addresses {
                Ok(none) if none.is_empty() => std::future::pending().await,
                answer => answer,
            }
        })
    }
}

impl World {
    async fn new(does: Does) -> Self {
        Self::with(does, "hook.example").await
    }

    async fn with(does: Does, certified: &str) -> Self {
        let (roots, acceptor) = authority(certified);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (requests, connections) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let closed = Arc::<Notify>::default();
        let receiver = Receiver { does, requests: Arc::clone(&requests), connections: Arc::clone(&connections) };
        tokio::spawn(receiver.serve(listener, acceptor, Arc::clone(&closed)));
        let names = Arc::new(Names(Mutex::new(Ok(vec![LOOPBACK]))));
        let guard = Arc::new(Guard::new(vec!["127.0.0.0/8".parse().unwrap()]));
        let post = HttpPost::new(roots, names.clone(), guard, TEST_DEADLINE);
        Self { port, requests, connections, closed, names, post, begun: AtomicBool::new(false) }
    }

    async fn post(&self) -> PostOutcome {
        self.post_to(&format!("https://hook.example:{}/in?a=b", self.port)).await
    }

    async fn post_to(&self, url: &str) -> PostOutcome {
        let headers = vec![("Content-Type", "application/json".to_owned()), ("X-Service-Attempt", "1".to_owned())];
        let body = bytes::Bytes::from_static(b"{\"id\":\"evt_1\"}");
        let requester = Requester::SERVICE;
        let request = WebhookRequest { url: url.parse().unwrap(), headers, body, requester };
        let outcome = self.post.post(request, &self.begun).await;
        assert!(outcome.duration < TEST_DEADLINE * 2, "{outcome:?}");
        outcome
    }

    fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

/// Returns a root store with a new test authority, and an acceptor with a certificate for `name` (and for loopback).
fn authority(name: &str) -> (RootCertStore, TlsAcceptor) {
    let ca_key = KeyPair::generate().unwrap();
    let mut ca = CertificateParams::new(Vec::new()).unwrap();
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let root = ca.self_signed(&ca_key).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(root.der().clone()).unwrap();
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec![name.to_owned(), "127.0.0.1".to_owned()]).unwrap();
    let leaf: CertificateDer<'static> = params.signed_by(&key, &Issuer::new(ca, ca_key)).unwrap().der().clone();
    let config = rustls::ServerConfig::builder_with_provider(tls::provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![leaf], PrivateKeyDer::Pkcs8(key.serialize_der().into()))
        .unwrap();
    (roots, TlsAcceptor::from(Arc::new(config)))
}

/// The receiving side.
#[derive(Clone)]
struct Receiver {
    does: Does,
    requests: Arc<AtomicUsize>,
    connections: Arc<AtomicUsize>,
}

impl Receiver {
    async fn serve(self, listener: TcpListener, acceptor: TlsAcceptor, closed: Arc<Notify>) {
        while let Ok((mut stream, _)) = listener.accept().await {
            self.connections.fetch_add(1, Ordering::SeqCst);
            let (acceptor, receiver, closed) = (acceptor.clone(), self.clone(), Arc::clone(&closed));
            tokio::spawn(async move {
                if matches!(receiver.does, Does::SpeaksPlain) {
                    let _ = stream.write_all(b"220 mail.example ESMTP\r\n").await;
                    return;
                }
                let Ok(stream) = acceptor.accept(stream).await else { return };
                receive(stream, receiver.does, &receiver.requests).await;
                closed.notify_one();
            });
        }
    }
}

async fn receive(mut stream: TlsStream<TcpStream>, does: Does, requests: &AtomicUsize) {
    while read_request(&mut stream).await {
        requests.fetch_add(1, Ordering::SeqCst);
        match &does {
            Does::Answers(bytes) => {
                let _ = stream.write_all(bytes).await;
                let _ = stream.shutdown().await;
                return;
            }
            Does::AnswersOnce(text) => {
                stream.write_all(text.as_bytes()).await.unwrap();
                if read_request(&mut stream).await {
                    requests.fetch_add(1, Ordering::SeqCst);
                }
                return;
            }
            Does::KeepsAlive(text) => stream.write_all(text.as_bytes()).await.unwrap(),
            Does::Endless(head) => {
                let _ = stream.write_all(head.as_bytes()).await;
                while stream.write_all(&[b'x'; 1024]).await.is_ok() {}
                return;
            }
            Does::Repeats(text) => {
                while stream.write_all(text.as_bytes()).await.is_ok() {}
                return;
            }
            Does::Stalls(head) => {
                let _ = stream.write_all(head.as_bytes()).await;
                let _ = stream.flush().await;
                std::future::pending::<()>().await;
            }
            Does::Resets | Does::SpeaksPlain => return,
        }
    }
}

/// Reads one whole request and checks that it is the expected one.
async fn read_request(stream: &mut TlsStream<TcpStream>) -> bool {
    let mut seen = Vec::new();
    while !seen.ends_with(b"{\"id\":\"evt_1\"}") {
        let mut chunk = [0; 1024];
        match stream.read(&mut chunk).await {
            Ok(0) | Err(_) => return false,
            Ok(length) => seen.extend_from_slice(&chunk[..length]),
        }
    }
    let text = String::from_utf8(seen).unwrap().to_ascii_lowercase();
    assert!(text.starts_with("post /in?a=b http/1.1\r\n"), "{text}");
    for header in ["content-type: application/json\r\n", "x-service-attempt: 1\r\n", "content-length: 14\r\n"] {
        assert!(text.contains(header), "{text}");
    }
    for header in ["cookie:", "accept-encoding:", "referer:"] {
        assert!(!text.contains(header), "{text}");
    }
    true
}

#[tokio::test]
async fn a_2xx_is_a_success_and_its_body_is_stored() {
    let world = World::new(answers("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfine")).await;
    let outcome = world.post().await;
    assert_eq!((outcome.status, outcome.error, outcome.peer), (Some(200), None, Some(LOOPBACK)));
    assert_eq!(outcome.body.as_deref(), Some("fine"));
    let world = World::new(answers("HTTP/1.1 204 No Content\r\n\r\n")).await;
    let outcome = world.post().await;
    assert_eq!((outcome.status, outcome.error, outcome.body.as_deref()), (Some(204), None, Some("")));
}

#[tokio::test]
async fn any_other_status_is_a_failure_and_a_redirect_is_not_followed() {
    for (head, status) in [
        ("HTTP/1.1 301 Moved\r\nLocation: https://hook.example/other\r\nContent-Length: 0\r\n\r\n", 301),
        ("HTTP/1.1 307 Moved\r\nLocation: https://169.254.169.254/\r\nContent-Length: 0\r\n\r\n", 307),
        ("HTTP/1.1 410 Gone\r\nContent-Length: 0\r\n\r\n", 410),
        ("HTTP/1.1 500 Oops\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n", 500),
        ("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n", 101),
        ("HTTP/1.1 999 Odd\r\nContent-Length: 0\r\n\r\n", 999),
    ] {
        let world = World::new(answers(head)).await;
        let outcome = world.post().await;
        assert_eq!((outcome.status, outcome.error), (Some(status), Some(PostError::Status)));
        assert_eq!(world.requests(), 1, "{status}");
    }
}

#[tokio::test]
async fn the_status_line_decides_even_if_the_body_fails() {
    for does in [
        Does::Endless("HTTP/1.1 200 OK\r\n\r\n"),
        Does::Stalls("HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\npart"),
        answers("HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\npart"),
        answers("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nnot a chunk"),
    ] {
        let outcome = World::new(does).await.post().await;
        assert_eq!((outcome.status, outcome.error), (Some(200), None));
        assert!(outcome.body.is_some_and(|body| body.len() <= 4096));
    }
}

#[tokio::test]
async fn a_stalled_receiver_is_aborted_at_the_deadline() {
    let mut stalled = tokio::task::JoinSet::new();
    for head in ["", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 100 Continue\r\n\r\n", "HTTP/1.1 200 OK\r\nX-Drip: a"] {
        stalled.spawn(async move {
            let world = World::new(Does::Stalls(head)).await;
            let outcome = world.post().await;
            assert_eq!((outcome.status, outcome.error), (None, Some(PostError::Timeout)), "{head}");
            assert!(outcome.duration >= TEST_DEADLINE);
            assert_eq!(world.requests(), 1);
        });
    }
    stalled.join_all().await;
}

#[tokio::test]
async fn a_connection_lost_before_the_status_line_is_a_reset_without_retransmission() {
    for does in [Does::Resets, answers(""), answers("HTTP/1.1 20")] {
        let world = World::new(does).await;
        let outcome = world.post().await;
        assert_eq!((outcome.status, outcome.error), (None, Some(PostError::Reset)));
        assert_eq!(world.requests(), 1);
    }
}

#[tokio::test]
async fn an_answer_that_is_not_http_is_a_protocol_error() {
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "X-A: b\r\n".repeat(500));
    let large = format!("HTTP/1.1 200 OK\r\nX-A: {}\r\n\r\n", "b".repeat(1 << 20));
    for text in ["SSH-2.0-OpenSSH_9.9\r\n", "\0\0\0\0\0\0\0\0\r\n\r\n", &many, &large] {
        let outcome = World::new(answers(text)).await.post().await;
        assert_eq!((outcome.status, outcome.error), (None, Some(PostError::Protocol)), "{:.40}", text);
    }
}

#[tokio::test]
async fn a_certificate_must_be_trusted_and_match_the_name() {
    let stranger = World::with(answers("HTTP/1.1 200 OK\r\n\r\n"), "other.example").await;
    let plain = World::new(Does::SpeaksPlain).await;
    let mut untrusted = World::new(answers("HTTP/1.1 200 OK\r\n\r\n")).await;
    untrusted.post = World::new(Does::Resets).await.post;
    for world in [stranger, plain, untrusted] {
        let outcome = world.post().await;
        assert_eq!((outcome.status, outcome.error), (None, Some(PostError::Tls)));
        assert_eq!(world.requests(), 0);
    }
}

#[tokio::test]
async fn failed_connections_and_failed_lookups_have_separate_error_names() {
    let world = World::new(Does::Resets).await;
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let outcome = world.post_to(&format!("https://hook.example:{closed}/")).await;
    assert_eq!(outcome.error, Some(PostError::Connect));
    for failure in [LookupFailure::Absent, LookupFailure::Temporary("servfail".to_owned())] {
        *world.names.0.lock().unwrap() = Err(failure);
        assert_eq!(world.post().await.error, Some(PostError::Dns));
    }
    *world.names.0.lock().unwrap() = Ok(Vec::new());
    assert_eq!(world.post().await.error, Some(PostError::Dns), "a silent name server");
}

#[tokio::test]
async fn a_name_that_resolves_to_a_refused_address_is_blocked() {
    let world = World::new(answers("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")).await;
    assert_eq!(world.post().await.error, None);
    for address in ["10.0.0.1", "169.254.169.254", "::1", "::ffff:10.0.0.1", "64:ff9b::7f00:1"] {
        *world.names.0.lock().unwrap() = Ok(vec![address.parse().unwrap()]);
        let outcome = world.post().await;
        assert_eq!((outcome.status, outcome.error), (None, Some(PostError::Blocked)), "{address}");
    }
    *world.names.0.lock().unwrap() = Ok(vec!["10.0.0.1".parse().unwrap(), LOOPBACK]);
    assert_eq!(world.post().await.error, None, "the permitted address among them is used");
    assert_eq!(world.requests(), 2);
}

#[tokio::test]
async fn a_literal_address_is_checked_in_every_notation_before_anything_is_sent() {
    let mut world = World::new(answers("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")).await;
    let allowed = world.post_to(&format!("https://2130706433:{}/in?a=b", world.port)).await;
    assert_eq!((allowed.status, allowed.error), (Some(200), None));
    world.post.guard = Arc::new(Guard::default());
    for host in ["127.0.0.1", "127.1", "2130706433", "017700000001", "0x7f.1", "[::1]", "[::ffff:127.0.0.1]"] {
        let outcome = world.post_to(&format!("https://{host}:{}/in?a=b", world.port)).await;
        assert_eq!((outcome.status, outcome.error), (None, Some(PostError::Blocked)), "{host}");
    }
    assert_eq!((world.requests(), world.connections.load(Ordering::SeqCst)), (1, 1));
}

#[tokio::test]
async fn plain_http_is_never_used() {
    let world = World::new(Does::SpeaksPlain).await;
    let outcome = world.post_to(&format!("http://hook.example:{}/", world.port)).await;
    assert_eq!(outcome.status, None);
    assert_eq!(world.connections.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_connection_is_reused() {
    let world = World::new(Does::KeepsAlive("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")).await;
    for _ in 0..3 {
        assert_eq!(world.post().await.error, None);
    }
    assert_eq!((world.requests(), world.connections.load(Ordering::SeqCst)), (3, 1));
}

#[tokio::test]
async fn a_connection_closed_by_the_receiver_is_not_reused() {
    let world = World::new(answers("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")).await;
    for _ in 0..3 {
        assert_eq!(world.post().await.error, None);
        world.closed.notified().await;
        // The close is in the kernel by now; this connection makes the runtime process it.
        drop(TcpStream::connect((LOOPBACK, world.port)).await.unwrap());
    }
    assert_eq!(world.requests(), 3);
}

#[tokio::test]
async fn a_connection_with_an_unfinished_answer_is_not_reused() {
    let long = format!("HTTP/1.1 200 OK\r\nContent-Length: 65536\r\n\r\n{}", "x".repeat(65_536));
    let world = World::new(Does::KeepsAlive(long.leak())).await;
    for _ in 0..2 {
        assert_eq!(world.post().await.error, None);
    }
    assert_eq!(world.connections.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_request_that_fails_on_a_reused_connection_is_not_sent_again() {
    let world = World::new(Does::AnswersOnce("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")).await;
    assert_eq!(world.post().await.error, None);
    assert_eq!(world.post().await.error, Some(PostError::Reset));
    assert_eq!((world.requests(), world.connections.load(Ordering::SeqCst)), (2, 1));
}
