//! The driver against servers on loopback that are scripted line by line.

use std::sync::Arc;

use bytes::Bytes;
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, pem::PemObject as _};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::domain::event::{Authenticated, TlsFacts};
use crate::smtp::deadlines::Deadlines;
use crate::smtp::outcome::{Envelope, LoopCheck};
use crate::smtp::tls_policy::{DaneTerms, TlsFault};
use crate::smtp::tlsa::{Association, Matching, Selector, Usage};

mod dot;
mod submit;

const NAME: &str = "mx.example.test";

/// A transmitter that trusts only these certificates.
fn transmitter(pem: Option<&[u8]>) -> Transmitter {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem.unwrap_or_default()) {
        roots.add(certificate.unwrap()).unwrap();
    }
    Transmitter::new(roots).unwrap()
}

async fn listener() -> (TcpListener, Target) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = Target {
        host: NAME.into(),
        address: listener.local_addr().unwrap(),
        ehlo: "us.example.test".into(),
        source: Some("127.0.0.1".parse().unwrap()),
        deadlines: Deadlines::default(),
        loop_check: LoopCheck::OwnNameIsLoop,
        tls: TlsRequirement::Opportunistic,
        submission: None,
    };
    (listener, target)
}

fn envelope() -> Envelope {
    Envelope {
        mail_from: "b@r.example".to_owned(),
        rcpt_to: "a@mx.example".to_owned(),
        eight_bit: false,
        smtputf8: false,
    }
}

/// Extensions that the tested server offers.
#[derive(Clone, Copy, PartialEq)]
enum Offers {
    Clear,
    StartTls,
}

/// Serves one connection as a well-behaved server. Returns every accepted message. STARTTLS ends it with `None`.
async fn serve<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S, offers: Offers, greets: &str) -> Option<Vec<String>> {
    let mut stream = BufReader::new(stream);
    stream.write_all(greets.as_bytes()).await.unwrap();
    let (mut messages, mut line) = (Vec::new(), String::new());
    loop {
        line.clear();
        if stream.read_line(&mut line).await.unwrap_or(0) == 0 {
            return Some(messages);
        }
        let answer = match line.split_ascii_whitespace().next().unwrap() {
            "EHLO" if offers == Offers::StartTls => "250-mx\r\n250-PIPELINING\r\n250 STARTTLS\r\n",
            "EHLO" => "250-mx\r\n250 PIPELINING\r\n",
            "STARTTLS" => {
                stream.write_all(b"220 go\r\n").await.unwrap();
                return None;
            }
            "DATA" => {
                stream.write_all(b"354 go\r\n").await.unwrap();
                messages.push(body(&mut stream).await);
                "250 taken\r\n"
            }
            "QUIT" => "221 bye\r\n",
            _ => "250 ok\r\n",
        };
        stream.write_all(answer.as_bytes()).await.unwrap();
    }
}

async fn body<S: AsyncRead + Unpin>(stream: &mut BufReader<S>) -> String {
    let mut body = String::new();
    while !body.ends_with("\r\n.\r\n") && body != ".\r\n" {
        assert_ne!(stream.read_line(&mut body).await.unwrap(), 0);
    }
    body
}

fn is_delivered(outcome: &Outcome) -> bool {
    outcome.phase == Phase::Dot && matches!(&outcome.ending, Ending::Answered(reply) if reply.is_positive())
}

/// Returns a certificate for [`NAME`] and an acceptor that presents it.
fn certificate() -> (String, TlsAcceptor) {
    let made = rcgen::generate_simple_self_signed(vec![NAME.to_owned()]).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    (made.cert.pem(), TlsAcceptor::from(Arc::new(config)))
}

#[tokio::test]
async fn messages_of_any_size_share_one_connection() {
    let (listener, target) = listener().await;
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        serve(&mut stream, Offers::Clear, "220 mx\r\n").await.unwrap()
    });
    let mut session = transmitter(None).connect(&target).await.unwrap();
    let large = "a line of the message\r\n..\r\n".repeat(20_000);
    for message in ["Subject: a\r\n\r\nb\r\n", &large] {
        let outcome = session.send(&envelope(), &mut Bytes::copy_from_slice(message.as_bytes())).await;
        assert!(is_delivered(&outcome), "{outcome:?}");
        assert_eq!((outcome.peer, outcome.tls), (Some(target.address.ip()), None));
        assert!(session.is_reusable());
    }
    session.quit().await;
    let messages = server.await.unwrap();
    assert_eq!(messages[0], "Subject: a\r\n\r\nb\r\n.\r\n");
    assert_eq!(messages[1], format!("{}.\r\n", large.replace("\r\n..\r\n", "\r\n...\r\n")));
}

/// Sends one message over STARTTLS and returns how the server was authenticated.
async fn authenticated_as(host: &str, roots: impl Fn(&str) -> Option<String>) -> Authenticated {
    let (listener, mut target) = listener().await;
    target.host = host.into();
    let (pem, acceptor) = certificate();
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        assert!(serve(&mut stream, Offers::StartTls, "220 mx\r\n").await.is_none());
        let mut stream = acceptor.accept(stream).await.unwrap();
        serve(&mut stream, Offers::Clear, "").await.unwrap()
    });
    let transmitter = transmitter(roots(&pem).as_deref().map(str::as_bytes));
    let mut session = transmitter.connect(&target).await.unwrap();
    let outcome = session.send(&envelope(), &mut Bytes::from_static(b"Subject: a\r\n\r\nb\r\n")).await;
    assert!(is_delivered(&outcome), "{outcome:?}");
    session.quit().await;
    assert_eq!(server.await.unwrap().len(), 1);
    let tls = outcome.tls.unwrap();
    assert_eq!(tls.version, "TLSv1.3");
    assert!(tls.cipher.starts_with("TLS_") && !tls.cipher.contains("TLS13"), "{}", tls.cipher);
    tls.authenticated
}

#[tokio::test]
async fn any_certificate_is_accepted_and_its_verification_is_recorded() {
    assert_eq!(authenticated_as(NAME, |_| None).await, Authenticated::None);
    assert_eq!(authenticated_as(NAME, |pem| Some(pem.to_owned())).await, Authenticated::Pkix);
    assert_eq!(authenticated_as("other.example.test", |pem| Some(pem.to_owned())).await, Authenticated::None);
}

#[tokio::test]
async fn a_server_with_broken_tls_gets_clear_text_at_once_and_for_an_hour() {
    let (listener, target) = listener().await;
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        assert!(serve(&mut stream, Offers::StartTls, "220 mx\r\n").await.is_none());
        stream.write_all(b"this is no handshake").await.unwrap();
        drop(stream);
        let mut messages = Vec::new();
        for _ in 0..2 {
            let (mut stream, _) = listener.accept().await.unwrap();
            messages.extend(serve(&mut stream, Offers::StartTls, "220 mx\r\n").await.unwrap());
        }
        messages.len()
    });
    let transmitter = transmitter(None);
    for _ in 0..2 {
        let mut session = transmitter.connect(&target).await.unwrap();
        let outcome = session.send(&envelope(), &mut Bytes::from_static(b"Subject: a\r\n\r\nb\r\n")).await;
        assert!(is_delivered(&outcome) && outcome.tls.is_none(), "{outcome:?}");
        session.quit().await;
    }
    assert_eq!(server.await.unwrap(), 2);
}

#[tokio::test]
async fn a_refused_connection_is_unreachable() {
    let (listener, target) = listener().await;
    drop(listener);
    let outcome = transmitter(None).connect(&target).await.err().unwrap();
    assert_eq!(outcome.phase, Phase::Connect);
    assert_eq!(outcome.ending, Ending::Unreachable("connection refused".to_owned()));
}

#[tokio::test]
async fn a_silent_server_times_out() {
    let (listener, mut target) = listener().await;
    target.deadlines.greeting = Duration::from_millis(50);
    let outcome = transmitter(None).connect(&target).await.err().unwrap();
    assert_eq!((outcome.phase, outcome.ending), (Phase::Greeting, Ending::TimedOut));
    drop(listener);
}

#[tokio::test]
async fn a_kept_connection_that_the_server_closed_is_not_reused() {
    let (listener, target) = listener().await;
    let transmitter = transmitter(None);
    let accept = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"220 mx\r\n").await.unwrap();
        assert_ne!(stream.read(&mut [0; 64]).await.unwrap(), 0);
        stream.write_all(b"250 mx\r\n").await.unwrap();
        stream
    };
    let (stream, session) = tokio::join!(accept, transmitter.connect(&target));
    let mut session = session.unwrap();
    assert!(session.is_reusable());
    drop(stream);
    // No data on a closed connection counts as delivered, whether or not the end has been noticed.
    let outcome = session.send(&envelope(), &mut Bytes::from_static(b"a\r\n")).await;
    assert!(matches!(outcome.ending, Ending::Closed(_)), "{outcome:?}");
    assert!(!session.is_reusable());
}

#[tokio::test]
async fn the_reason_of_a_disconnect_during_the_message_is_read() {
    let (listener, target) = listener().await;
    let server = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"220 mx\r\n").await.unwrap();
        assert_ne!(stream.read(&mut [0; 64]).await.unwrap(), 0);
        stream.write_all(b"250-mx\r\n250 PIPELINING\r\n").await.unwrap();
        assert_ne!(stream.read(&mut [0; 256]).await.unwrap(), 0);
        stream.write_all(b"250 ok\r\n250 ok\r\n354 go\r\n").await.unwrap();
        assert_ne!(stream.read(&mut [0; 256]).await.unwrap(), 0);
        stream.write_all(b"552 5.3.4 too much\r\n").await.unwrap();
    };
    let transmitter = transmitter(None);
    let client = async {
        let mut session = transmitter.connect(&target).await.unwrap();
        session.send(&envelope(), &mut Bytes::from(vec![b'a'; 20_000_000])).await
    };
    let ((), outcome) = tokio::join!(server, client);
    // A reset may overtake the answer; it never counts as a delivery.
    assert!(matches!(outcome.phase, Phase::Body), "{outcome:?}");
    assert!(matches!(&outcome.ending, Ending::Closed(_) | Ending::Answered(_)), "{outcome:?}");
}

/// Sends one message over STARTTLS under this requirement, with the certificate for [`NAME`] trusted or not. Returns
/// the authentication of the server, or the failure of the session.
async fn secured_as(requirement: impl Fn(&[u8]) -> TlsRequirement, trust: Trust) -> Result<Authenticated, Ending> {
    let (listener, mut target) = listener().await;
    let (pem, acceptor) = certificate();
    target.tls = requirement(&CertificateDer::from_pem_slice(pem.as_bytes()).unwrap());
    let server = tokio::spawn(async move {
        // A refused session is not tried again, in clear text or otherwise: no other client connects.
        let (mut stream, _) = listener.accept().await.unwrap();
        assert!(serve(&mut stream, Offers::StartTls, "220 mx\r\n").await.is_none());
        if let Ok(mut stream) = acceptor.accept(stream).await {
            serve(&mut stream, Offers::Clear, "").await;
        }
        listener
    });
    let trusted = if trust == Trust::Given { pem } else { certificate().0 };
    let transmitter = transmitter(Some(trusted.as_bytes()));
    let session = match transmitter.connect(&target).await {
        Ok(session) => session,
        Err(outcome) => {
            assert_eq!((outcome.phase, outcome.tls), (Phase::StartTls, None));
            let listener = server.await.unwrap();
            assert!(!transmitter.broken.has(NAME, Instant::now()));
            assert!(timeout(Duration::from_millis(20), listener.accept()).await.is_err());
            return Err(outcome.ending);
        }
    };
    let facts = session.tls().unwrap().clone();
    assert_eq!(facts.policy, target.tls.policy());
    session.quit().await;
    server.await.unwrap();
    Ok(facts.authenticated)
}

#[derive(Clone, Copy, PartialEq)]
enum Trust {
    Given,
    Withheld,
}

fn dane(data: Vec<u8>) -> TlsRequirement {
    let (usage, selector, matching) = (Usage::Server, Selector::Certificate, Matching::Exact);
    let associations = vec![Association { usage, selector, matching, data }];
    TlsRequirement::Dane(Arc::new(DaneTerms { associations, names: vec![NAME.to_owned()] }))
}

#[tokio::test]
async fn under_dane_the_certificate_must_match_a_tlsa_record() {
    assert_eq!(secured_as(|der| dane(der.to_vec()), Trust::Withheld).await, Ok(Authenticated::Dane));
    assert_eq!(secured_as(|der| dane(der.to_vec()), Trust::Given).await, Ok(Authenticated::Pkix), "what verifies");
    let ending = secured_as(|_| dane(b"other".to_vec()), Trust::Given).await.unwrap_err();
    assert!(matches!(ending, Ending::PolicyFailed { fault: TlsFault::ValidationFailure, .. }), "{ending:?}");
}

#[tokio::test]
async fn without_a_usable_tlsa_record_any_certificate_is_accepted() {
    let nothing = |_: &[u8]| TlsRequirement::Dane(Arc::new(DaneTerms { associations: vec![], names: vec![] }));
    assert_eq!(secured_as(nothing, Trust::Withheld).await, Ok(Authenticated::None));
}

#[tokio::test]
async fn under_mta_sts_the_certificate_must_verify() {
    assert_eq!(secured_as(|_| TlsRequirement::Pkix, Trust::Given).await, Ok(Authenticated::Pkix));
    let ending = secured_as(|_| TlsRequirement::Pkix, Trust::Withheld).await.unwrap_err();
    assert!(matches!(ending, Ending::PolicyFailed { fault: TlsFault::CertificateNotTrusted, .. }), "{ending:?}");
}

#[tokio::test]
async fn with_required_tls_a_server_without_starttls_gets_no_mail() {
    for requirement in [TlsRequirement::Pkix, dane(vec![1])] {
        let (listener, mut target) = listener().await;
        target.tls = requirement;
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let taken = serve(&mut stream, Offers::Clear, "220 mx\r\n").await.unwrap();
            assert!(timeout(Duration::from_millis(20), listener.accept()).await.is_err());
            taken
        });
        let outcome = transmitter(None).connect(&target).await.err().unwrap();
        assert!(matches!(outcome.ending, Ending::PolicyFailed { fault: TlsFault::StartTlsNotSupported, .. }));
        assert!(server.await.unwrap().is_empty());
    }
}

#[tokio::test]
async fn with_required_tls_a_failed_handshake_does_not_fall_back_to_clear_text() {
    let (listener, mut target) = listener().await;
    target.tls = TlsRequirement::Pkix;
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        assert!(serve(&mut stream, Offers::StartTls, "220 mx\r\n").await.is_none());
        stream.write_all(b"this is no handshake").await.unwrap();
        drop(stream);
        assert!(timeout(Duration::from_millis(20), listener.accept()).await.is_err());
    });
    let outcome = transmitter(None).connect(&target).await.err().unwrap();
    assert!(matches!(outcome.ending, Ending::TlsFailed(_)), "{outcome:?}");
    server.await.unwrap();
}

#[tokio::test]
async fn a_foreign_source_address_makes_the_route_unusable() {
    let (listener, mut target) = listener().await;
    target.source = Some("192.0.2.1".parse().unwrap());
    let outcome = transmitter(None).connect(&target).await.err().unwrap();
    assert!(matches!(outcome.ending, Ending::Unusable(_)), "{outcome:?}");
    drop(listener);
}
