//! TLS to mail servers (RFC 3207, RFC 7435). The handshake accepts any certificate. Afterwards the certificate is
//! verified, and checked against the receiver's policy.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};

use super::dane;
use super::root_verifier::RootVerifier;
use super::tls;
use crate::domain::event::{Authenticated, TlsFacts};
use crate::smtp::tls_policy::{TlsFault, TlsRequirement};

/// Error of a certificate, as a code for reports and as text.
pub(super) type VerifyError = (TlsFault, String);

/// TLS configuration of all sessions, and the roots that verify certificates after the handshake.
#[derive(Debug)]
pub(super) struct MailTls {
    pub(super) config: Arc<ClientConfig>,
    /// Configuration for smarthosts, whose certificate must verify for their name.
    pub(super) verified: Arc<ClientConfig>,
    /// Absent if there are no roots: then no certificate verifies.
    verifier: Option<Arc<RootVerifier>>,
}

impl MailTls {
    /// # Errors
    /// The cryptography provider lacks algorithms of TLS 1.2 or 1.3.
    pub(super) fn new(roots: RootCertStore) -> Result<Self, Error> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let any = Arc::new(AnyCertificate { provider: Arc::clone(&provider) });
        let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()?
            .dangerous()
            .with_custom_certificate_verifier(any)
            .with_no_client_auth();
        let (verified, verifier) = tls::verifying(roots);
        Ok(Self { config: Arc::new(config), verified: Arc::new(verified), verifier })
    }

    /// Returns the facts of the finished handshake of `connection` with `name`, if it meets `required`.
    ///
    /// # Errors
    /// The unmet requirement.
    pub(super) fn facts(
        &self,
        connection: &ClientConnection,
        name: &ServerName<'_>,
        required: &TlsRequirement,
    ) -> Result<TlsFacts, VerifyError> {
        let version = connection.protocol_version().and_then(|version| version.as_str()).unwrap_or("unknown");
        let suite = connection.negotiated_cipher_suite().and_then(|suite| suite.suite().as_str()).unwrap_or("unknown");
        let chain = connection.peer_certificates().unwrap_or_default();
        Ok(TlsFacts {
            // rustls writes TLSv1_3 and TLS13_AES_128_GCM_SHA256; others, and IANA, write TLSv1.3 and
            // TLS_AES_128_GCM_SHA256.
            version: version.replace('_', "."),
            cipher: suite.replacen("TLS13_", "TLS_", 1),
            authenticated: self.authenticated(chain, name, required)?,
            policy: required.policy(),
        })
    }

    /// Returns the proof of the server's identity. A certificate that verifies for its name is reported as such under
    /// any policy.
    fn authenticated(
        &self,
        chain: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        required: &TlsRequirement,
    ) -> Result<Authenticated, VerifyError> {
        let verified = self.verify(chain, name);
        let otherwise = match required {
            TlsRequirement::Opportunistic => Authenticated::None,
            TlsRequirement::Pkix => {
                return verified.map(|()| Authenticated::Pkix).map_err(|fault| verify_error(&fault));
            }
            TlsRequirement::Dane(terms) if terms.associations.is_empty() => Authenticated::None,
            TlsRequirement::Dane(terms) => {
                dane::verify(chain, terms)?;
                Authenticated::Dane
            }
        };
        Ok(if verified.is_ok() { Authenticated::Pkix } else { otherwise })
    }

    fn verify(&self, chain: &[CertificateDer<'_>], name: &ServerName<'_>) -> Result<(), Error> {
        let (Some(verifier), Some((server, intermediates))) = (&self.verifier, chain.split_first()) else {
            return Err(Error::General("there are no trusted roots, or no certificate".to_owned()));
        };
        verifier.verify_server_cert(server, intermediates, name, &[], UnixTime::now()).map(drop)
    }
}

/// Converts a certificate error to the result types of RFC 8460 4.3.
pub(super) fn verify_error(error: &Error) -> VerifyError {
    use CertificateError as Why;
    let code = match error {
        Error::InvalidCertificate(Why::NotValidForName | Why::NotValidForNameContext { .. }) => {
            TlsFault::CertificateHostMismatch
        }
        Error::InvalidCertificate(Why::Expired | Why::ExpiredContext { .. }) => TlsFault::CertificateExpired,
        Error::InvalidCertificate(_) => TlsFault::CertificateNotTrusted,
        _ => TlsFault::ValidationFailure,
    };
    (code, error.to_string())
}

/// Accepts every certificate, but requires that the server holds its key. Otherwise a verified certificate would prove
/// nothing.
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

/// Accepts a signature whose certificate can't be parsed (version 1, odd extensions). Such a certificate never
/// verifies, but encryption is better than none.
fn unless_odd(certificate: &CertificateDer<'_>, fault: Error) -> Result<HandshakeSignatureValid, Error> {
    match ParsedCertificate::try_from(certificate) {
        Ok(_) => Err(fault),
        Err(_) => Ok(HandshakeSignatureValid::assertion()),
    }
}
