//! Tests of access by the operator's socket, TLS and HTTP/2, and of the shutdown of the service.

use std::os::unix::fs::PermissionsExt as _;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper::Request;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::net::UnixStream;
use tokio_rustls::TlsConnector;

use super::*;
use crate::net::http_listener::HttpTls;
use crate::net::https_redirect::HttpsRedirect;
use crate::net::tls_settings::TlsSettings;

#[tokio::test]
async fn the_operators_socket_needs_no_key_and_takes_an_account_header() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("admin.sock");
    std::fs::write(&path, "left by a dead process").unwrap();
    let (mut server, _) = server(HttpLimits::default(), ServiceLimits::default());
    server.listen_unix(&path).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);

    let mut client = Client::over(UnixStream::connect(&path).await.unwrap());
    let reply = client.ask("GET /v1/messages/1", "", "X-Postrider-Account: acc_1\r\n", "").await;
    assert_eq!((reply.status, reply.body.as_str()), (200, "\"1 for operator of acc_1\""));
    assert_eq!(reply.header("ratelimit"), "");
    assert_eq!(client.get("/v1/messages/1", "").await.body, "\"1 for operator of nobody\"");
    assert_eq!(client.get("/queue", "").await.status, 200);
    assert_eq!(client.get("/v1/nothing", "").await.status, 404);
}

/// Creates a certificate for `localhost` with the settings of both sides.
fn pair() -> (ServerConfig, ClientConfig) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let provider = || Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    let server = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions().unwrap();
    let mut server = server.with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key).unwrap();
    server.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let client = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions().unwrap();
    (server, client.with_root_certificates(roots).with_no_client_auth())
}

fn http_tls(settings: &Arc<TlsSettings>) -> HttpTls {
    let clear = Arc::new(HttpsRedirect::new(Arc::default(), "https://localhost"));
    HttpTls { settings: Arc::clone(settings), clear }
}

async fn secured(
    address: SocketAddr,
    config: ClientConfig,
) -> std::io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
    let stream = TcpStream::connect(address).await?;
    TlsConnector::from(Arc::new(config)).connect(ServerName::try_from("localhost").unwrap(), stream).await
}

#[tokio::test]
async fn tls_serves_both_protocols_and_a_new_certificate_applies_to_new_connections() {
    let (config, client_config) = pair();
    let settings = Arc::new(TlsSettings::new(config));
    let (mut server, _) = server(HttpLimits::default(), ServiceLimits::default());
    let address = server.listen_tcp(([127, 0, 0, 1], 0).into(), Some(http_tls(&settings))).await.unwrap();

    let mut old = Client::over(secured(address, client_config.clone()).await.unwrap());
    assert_eq!(old.post("{}").await.status, 202);
    let mut offering = client_config.clone();
    offering.alpn_protocols = vec![b"h2".to_vec()];
    let stream = secured(address, offering).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    assert_eq!(ask_http2(stream).await, (202, "{\"a\":1}".to_owned()));

    let (renewed, new_client_config) = pair();
    settings.swap(renewed);
    assert!(secured(address, client_config).await.is_err());
    let mut new = Client::over(secured(address, new_client_config).await.unwrap());
    assert_eq!(new.post("{}").await.status, 202);
    assert_eq!(old.post("{}").await.status, 202);
}

/// No key is accepted in clear text on a TLS listener.
#[tokio::test]
async fn plain_http_on_a_tls_port_is_redirected() {
    let (config, client_config) = pair();
    let (mut server, _) = server(HttpLimits::default(), ServiceLimits::default());
    let tls = http_tls(&Arc::new(TlsSettings::new(config)));
    let address = server.listen_tcp(([127, 0, 0, 1], 0).into(), Some(tls)).await.unwrap();

    let mut clear = Client::over(TcpStream::connect(address).await.unwrap());
    let reply = clear.get("/v1/messages/1", "").await;
    assert_eq!((reply.status, reply.header("location")), (404, ""));
    assert!(reply.body.contains("use https://localhost"), "{}", reply.body);
    let reply = clear.get("/queue", "").await;
    assert_eq!((reply.status, reply.header("location")), (308, "https://localhost/queue"));
    let mut safe = Client::over(secured(address, client_config).await.unwrap());
    assert_eq!(safe.post("{}").await.status, 202);
}

async fn ask_http2<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(stream: S) -> (u16, String) {
    let io = TokioIo::new(stream);
    let (mut sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
    let driven = tokio::spawn(connection);
    let request = Request::post("http://localhost/v1/messages").header("authorization", "Bearer all");
    let body = http_body_util::Full::new(Bytes::from_static(b"{\"a\":1}"));
    let response = sender.send_request(request.body(body).unwrap()).await.unwrap();
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    drop(sender);
    let _ended = driven.await.unwrap();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn http2_without_tls_is_served_by_prior_knowledge() {
    let (_server, address) = listening(HttpLimits::default(), ServiceLimits::default()).await;
    assert_eq!(ask_http2(TcpStream::connect(address).await.unwrap()).await, (202, "{\"a\":1}".to_owned()));

    let io = TokioIo::new(TcpStream::connect(address).await.unwrap());
    let (mut sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
    tokio::spawn(connection);
    let request = Request::head("http://localhost/healthz").body(Empty::<Bytes>::new()).unwrap();
    let response = sender.send_request(request).await.unwrap();
    assert_eq!((response.status().as_u16(), response.headers()["content-length"].as_bytes()), (200, &b"3"[..]));
    assert!(response.into_body().collect().await.unwrap().to_bytes().is_empty());
}

#[tokio::test]
async fn the_shutdown_stops_accepting_and_finishes_running_requests() {
    let (mut server, toy) = server(HttpLimits::default(), ServiceLimits::default());
    let address = server.listen_tcp(([127, 0, 0, 1], 0).into(), None).await.unwrap();
    let (mut idle, mut running) = (Client::open(address).await, Client::open(address).await);
    assert_eq!(idle.get("/healthz", "").await.status, 200);
    running.write("GET /wait HTTP/1.1\r\nHost: test\r\n\r\n").await;
    toy.entered.notified().await;

    let ending = tokio::spawn(server.shutdown(Duration::from_secs(60)));
    assert!(idle.is_closed().await);
    assert!(TcpStream::connect(address).await.is_err());
    toy.released.notify_one();
    assert_eq!(running.read().await.status, 204);
    assert!(ending.await.unwrap());
}

#[tokio::test]
async fn the_shutdown_does_not_exceed_its_grace_period() {
    let (mut server, toy) = server(HttpLimits::default(), ServiceLimits::default());
    let address = server.listen_tcp(([127, 0, 0, 1], 0).into(), None).await.unwrap();
    let mut running = Client::open(address).await;
    running.write("GET /wait HTTP/1.1\r\nHost: test\r\n\r\n").await;
    toy.entered.notified().await;
    assert!(!server.shutdown(Duration::from_millis(20)).await);
    assert!(running.is_closed().await);
}

#[tokio::test]
async fn only_a_trusted_proxys_client_address_is_believed() {
    let forwarded = "X-Forwarded-For: 127.0.0.1\r\n";
    let (_server, mut client) = connected().await;
    assert_eq!(client.ask("GET /dev/mail", "", forwarded, "").await.status, 200, "no proxy is trusted");
    let limits = HttpLimits { proxies: Arc::new(["127.0.0.0/8".parse().unwrap()]), ..HttpLimits::default() };
    let (_server, address) = listening(limits, ServiceLimits::default()).await;
    let mut client = Client::open(address).await;
    let refused = client.ask("GET /dev/mail", "all", forwarded, "").await;
    assert_eq!((refused.status, refused.body.contains("\"dev_forbidden\"")), (403, true), "{}", refused.body);
    assert_eq!(client.get("/dev/mail", "").await.status, 200, "the proxy's own machine");
}
