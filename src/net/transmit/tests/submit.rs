//! Sessions with smarthosts: nothing is sent before their certificate verifies.

use super::*;
use crate::engine::ports::{Security, Submission};

/// Returns the result of a session with a smarthost called `host` that has a certificate for [`NAME`].
async fn submitted(security: Security, offers: Offers, host: &str) -> Result<TlsFacts, Outcome> {
    let (listener, mut target) = listener().await;
    target.host = host.into();
    target.submission = Some(Arc::new(Submission { security, login: None }));
    let (pem, acceptor) = certificate();
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        if security == Security::StartTls && serve(&mut stream, offers, "220 mx\r\n").await.is_some() {
            return;
        }
        let greets = if security == Security::StartTls { "" } else { "220 mx\r\n" };
        if let Ok(mut stream) = acceptor.accept(stream).await {
            drop(serve(&mut stream, Offers::Clear, greets).await);
        }
    });
    let transmitter = transmitter(Some(pem.as_bytes()));
    let opened = transmitter.connect(&target).await;
    let sent = match opened {
        Ok(mut session) => {
            let outcome = session.send(&envelope(), &mut Bytes::from_static(b"Subject: a\r\n\r\nb\r\n")).await;
            assert!(is_delivered(&outcome), "{outcome:?}");
            session.quit().await;
            Ok(outcome.tls.unwrap())
        }
        Err(outcome) => Err(outcome),
    };
    server.abort();
    sent
}

#[tokio::test]
async fn a_smarthost_session_requires_a_certificate_that_verifies_for_its_name() {
    for security in [Security::StartTls, Security::Implicit] {
        let facts = submitted(security, Offers::StartTls, NAME).await.unwrap();
        assert_eq!(facts.authenticated, Authenticated::Pkix);
        let outcome = submitted(security, Offers::StartTls, "other.example.test").await.unwrap_err();
        assert!(matches!((outcome.phase, &outcome.ending), (Phase::StartTls, Ending::TlsFailed(_))), "{outcome:?}");
    }
    let outcome = submitted(Security::StartTls, Offers::Clear, NAME).await.unwrap_err();
    assert!(matches!((outcome.phase, &outcome.ending), (Phase::StartTls, Ending::PolicyFailed { .. })), "{outcome:?}");
}
