//! TLS towards mail servers (RFC 3207, RFC 7435): any certificate is accepted, and whether it verifies is recorded.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

use crate::domain::event::{Authenticated, TlsFacts, TlsPolicy};

/// The configuration for all sessions, and the roots against which certificates are judged afterwards.
#[derive(Debug)]
pub(super) struct MailTls {
    pub(super) config: Arc<ClientConfig>,
    /// The same for servers whose certificate has to verify for their name: smarthosts.
    pub(super) verified: Arc<ClientConfig>,
    /// Absent where there are no roots at all: then nothing verifies.
    verifier: Option<Arc<WebPkiServerVerifier>>,
}

impl MailTls {
    /// # Errors
    /// Where the cryptography provider lacks what TLS 1.2 or 1.3 need.
    pub(super) fn new(roots: RootCertStore) -> Result<Self, Error> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let any = Arc::new(AnyCertificate { provider: Arc::clone(&provider) });
        let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()?
            .dangerous()
            .with_custom_certificate_verifier(any)
            .with_no_client_auth();
        let roots = Arc::new(roots);
        let verified = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(Arc::clone(&roots))
            .with_no_client_auth();
        let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider).build().ok();
        Ok(Self { config: Arc::new(config), verified: Arc::new(verified), verifier })
    }

    /// What the finished handshake of `connection` with `name` was.
    pub(super) fn facts(&self, connection: &ClientConnection, name: &ServerName<'_>) -> TlsFacts {
        let version = connection.protocol_version().and_then(|version| version.as_str()).unwrap_or("unknown");
        let suite = connection.negotiated_cipher_suite().and_then(|suite| suite.suite().as_str()).unwrap_or("unknown");
        let is_authentic = connection.peer_certificates().is_some_and(|chain| self.verifies(chain, name));
        TlsFacts {
            // rustls writes TLSv1_3 and TLS13_AES_128_GCM_SHA256 where others, and IANA, do not.
            version: version.replace('_', "."),
            cipher: suite.replacen("TLS13_", "TLS_", 1),
            authenticated: if is_authentic { Authenticated::Pkix } else { Authenticated::None },
            policy: TlsPolicy::Opportunistic,
        }
    }

    fn verifies(&self, chain: &[CertificateDer<'_>], name: &ServerName<'_>) -> bool {
        let (Some(verifier), Some((server, intermediates))) = (&self.verifier, chain.split_first()) else {
            return false;
        };
        verifier.verify_server_cert(server, intermediates, name, &[], UnixTime::now()).is_ok()
    }
}

/// Accepts every certificate, but not a server that can't sign with it: that would make a certificate that verifies
/// prove nothing.
#[derive(Debug)]
struct AnyCertificate {
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
            .or_else(|fault| unless_odd(certificate, fault))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
            .or_else(|fault| unless_odd(certificate, fault))
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// A certificate that can't be parsed (version 1, odd extensions) never verifies, and encryption is better than none.
fn unless_odd(certificate: &CertificateDer<'_>, fault: Error) -> Result<HandshakeSignatureValid, Error> {
    match ParsedCertificate::try_from(certificate) {
        Ok(_) => Err(fault),
        Err(_) => Ok(HandshakeSignatureValid::assertion()),
    }
}
