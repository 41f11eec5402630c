//! The client against policy hosts on loopback with a test authority, with answers of every kind.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Mutex;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::engine::ports::{LookupFailure, Requester};
use crate::net::tls;

const TEXT: &str = "version: STSv1\nmode: enforce\nmx: mx.example.test\nmax_age: 86400\n";

const INTERIM: &str = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";

/// Resolves the only host to these addresses.
struct Names(Result<Vec<IpAddr>, LookupFailure>);

impl HostAddresses for Names {
    fn addresses<'a>(&'a self, host: &'a str, _: Requester) -> BoxFuture<'a, Result<Vec<IpAddr>, LookupFailure>> {
        assert_eq!(host, "mta-sts.example.test");
        let addresses = self.0.clone();
        Box::pin(async { addresses })
    }
}

/// A host with a certificate for `name` that answers once with `answer`, and the request that it received.
struct World {
    roots: RootCertStore,
    port: u16,
    asked: Arc<Mutex<String>>,
}

impl World {
    async fn new(name: &str, answer: String) -> Self {
        let (ca_key, key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let mut ca = CertificateParams::new(Vec::new()).unwrap();
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let mut roots = RootCertStore::empty();
        roots.add(ca.self_signed(&ca_key).unwrap().der().clone()).unwrap();
        let leaf = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let leaf = leaf.signed_by(&key, &Issuer::new(ca, ca_key)).unwrap();
        let config = rustls::ServerConfig::builder_with_provider(tls::provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![leaf.der().clone()], PrivateKeyDer::Pkcs8(key.serialize_der().into()))
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (port, asked) = (listener.local_addr().unwrap().port(), Arc::<Mutex<String>>::default());
        tokio::spawn(serve(listener, TlsAcceptor::from(Arc::new(config)), answer, Arc::clone(&asked)));
        Self { roots, port, asked }
    }

    async fn fetch_under(&self, guard: Guard, addresses: Result<Vec<IpAddr>, LookupFailure>) -> Result<String, String> {
        let names = Arc::new(Names(addresses));
        let deadline = Duration::from_millis(1000);
        let hosts = HttpsPolicyHosts::new(self.roots.clone(), names, Arc::new(guard), self.port, deadline);
        let fetched = hosts.sts_policy(&"example.test".parse().unwrap(), Requester::SERVICE).await;
        fetched.map_err(|unfetched| match unfetched {
            Unfetched::Failed(failure) => format!("{}: {}", failure.fault.as_str(), failure.why),
            Unfetched::Unasked => "unasked".to_owned(),
        })
    }

    async fn fetch(&self) -> Result<String, String> {
        let guard = Guard::new(vec!["127.0.0.0/8".parse().unwrap()]);
        self.fetch_under(guard, Ok(vec![Ipv4Addr::LOCALHOST.into()])).await
    }
}

async fn serve(listener: TcpListener, acceptor: TlsAcceptor, answer: String, asked: Arc<Mutex<String>>) {
    while let Ok((stream, _)) = listener.accept().await {
        let Ok(mut stream) = acceptor.accept(stream).await else { continue };
        let mut request = vec![0; 4096];
        let length = stream.read(&mut request).await.unwrap_or(0);
        *asked.lock().unwrap() = String::from_utf8_lossy(&request[..length]).into_owned();
        if answer.is_empty() {
            // Sends nothing until the client gives up.
            let _ = stream.read(&mut request).await;
        }
        let _ = stream.write_all(answer.as_bytes()).await;
        let _ = stream.shutdown().await;
    }
}

fn answer(status: &str, content_type: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n\r\n{body}")
}

async fn fetched(answer: String) -> Result<String, String> {
    World::new("mta-sts.example.test", answer).await.fetch().await
}

#[tokio::test]
async fn a_policy_is_fetched_from_its_well_known_path() {
    let world = World::new("mta-sts.example.test", answer("200 OK", "Text/Plain; charset=utf-8", TEXT)).await;
    assert_eq!(world.fetch().await, Ok(TEXT.to_owned()));
    let asked = world.asked.lock().unwrap().clone();
    assert!(asked.starts_with("GET /.well-known/mta-sts.txt HTTP/1.1\r\n"), "{asked}");
    assert!(asked.to_lowercase().contains(&format!("host: mta-sts.example.test:{}", world.port)), "{asked}");
}

#[tokio::test]
async fn up_to_sixteen_interim_answers_are_skipped() {
    let interim = INTERIM.repeat(16);
    assert_eq!(fetched(format!("{interim}{}", answer("200 OK", "text/plain", TEXT))).await, Ok(TEXT.to_owned()));
}

#[tokio::test]
async fn a_certificate_for_another_name_is_refused() {
    let world = World::new("example.test", answer("200 OK", "text/plain", TEXT)).await;
    let fault = world.fetch().await.unwrap_err();
    assert!(fault.starts_with("sts-webpki-invalid: "), "{fault}");
}

#[tokio::test]
async fn rejects_answers_that_are_not_a_short_plain_text() {
    let moved = "HTTP/1.1 301 Moved\r\nLocation: https://mta-sts.example.test/\r\nContent-Length: 0\r\n\r\n".to_owned();
    let early = format!("HTTP/1.1 103 Early Hints\r\nLink: <{}>\r\n\r\n", "a".repeat(6000));
    let long = "mx: a.example\n".repeat(BYTES_MAX / 14 + 1);
    for (answer, why) in [
        (moved, "answered 301"),
        (answer("404 Not Found", "text/plain", TEXT), "answered 404"),
        (answer("200 OK", "text/html", TEXT), "not text/plain"),
        (answer("200 OK", "text/plain", &long), "larger than 64 KiB"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_owned(), "not text/plain"),
        (
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 9\r\n\r\nabc".to_owned(),
            "could not be reached",
        ),
        (format!("{}{}", INTERIM.repeat(17), answer("200 OK", "text/plain", TEXT)), "could not be reached (protocol"),
        (format!("{}{}", early.repeat(16), answer("200 OK", "text/plain", TEXT)), "could not be reached (protocol"),
        ("220 mail.example ESMTP\r\n".to_owned(), "could not be reached"),
        (String::new(), "did not answer in time"),
    ] {
        let fault = fetched(answer).await.unwrap_err();
        assert!(fault.starts_with("sts-policy-fetch-error: ") && fault.contains(why), "{fault}");
    }
}

#[tokio::test]
async fn a_non_global_address_is_contacted_only_if_allowed() {
    let world = World::new("mta-sts.example.test", answer("200 OK", "text/plain", TEXT)).await;
    let fault = world.fetch_under(Guard::default(), Ok(vec![Ipv4Addr::LOCALHOST.into()])).await.unwrap_err();
    assert!(fault.contains("no address of the policy host may be reached"), "{fault}");
    assert!(world.asked.lock().unwrap().is_empty());
    let fault = world.fetch_under(Guard::default(), Err(LookupFailure::Absent)).await.unwrap_err();
    assert!(fault.contains("did not resolve"), "{fault}");
}

#[tokio::test]
async fn an_unsent_lookup_says_nothing_about_the_policy() {
    let world = World::new("mta-sts.example.test", answer("200 OK", "text/plain", TEXT)).await;
    assert_eq!(world.fetch_under(Guard::default(), Err(LookupFailure::Unasked)).await, Err("unasked".to_owned()));
}
