//! Verification of a server's certificate: a trusted root issued it, or it is a trusted root itself.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{VerifierBuilderError, WebPkiServerVerifier, verify_server_name};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

/// Verifies chain, name and validity with webpki. In addition it accepts a certificate with the name and key of a
/// trusted root. An example is a self-signed certificate of `openssl req -x509`: it has `CA:TRUE`, so webpki refuses it
/// as the certificate of a server.
#[derive(Debug)]
pub(super) struct RootVerifier {
    roots: Arc<RootCertStore>,
    issued: Arc<WebPkiServerVerifier>,
}

impl RootVerifier {
    /// # Errors
    /// There are no roots.
    pub(super) fn new(roots: Arc<RootCertStore>, provider: Arc<CryptoProvider>) -> Result<Self, VerifierBuilderError> {
        let issued = WebPkiServerVerifier::builder_with_provider(Arc::clone(&roots), provider).build()?;
        Ok(Self { roots, issued })
    }

    /// Returns whether the certificate has the name and the key of a root, which must not be limited to some names. The
    /// handshake proves that the server holds the key.
    fn is_root(&self, certificate: &CertificateDer<'_>) -> bool {
        let mut own = RootCertStore::empty();
        let is_usable = own.add(certificate.clone().into_owned()).is_ok();
        is_usable && own.roots.iter().all(|own| own.name_constraints.is_none() && self.roots.roots.contains(own))
    }
}

impl ServerCertVerifier for RootVerifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match self.issued.verify_server_cert(certificate, intermediates, name, ocsp_response, now) {
            // webpki has checked the validity before.
            Err(fault) if is_authority(&fault) && self.is_root(certificate) => {
                verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
                Ok(ServerCertVerified::assertion())
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.issued.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.issued.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.issued.supported_verify_schemes()
    }
}

/// Returns whether a certificate was refused because it is an authority's.
fn is_authority(fault: &Error) -> bool {
    match fault {
        Error::InvalidCertificate(CertificateError::Other(other)) => {
            matches!(other.0.downcast_ref(), Some(webpki::Error::CaUsedAsEndEntity))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
    use rustls::pki_types::CertificateDer;

    use super::*;
    use crate::net::tls::provider;

    /// Returns a self-signed certificate of an authority, for `hooks.test`, valid in this year.
    fn authority(year: i32) -> CertificateDer<'static> {
        let mut params = CertificateParams::new(vec!["hooks.test".to_owned()]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        (params.not_before, params.not_after) = (rcgen::date_time_ymd(year, 1, 1), rcgen::date_time_ymd(year, 12, 31));
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
    }

    #[test]
    fn a_self_signed_certificate_that_is_a_root_is_accepted_for_its_names_while_it_is_valid() {
        let trusted = authority(2026);
        let mut roots = RootCertStore::empty();
        roots.add(trusted.clone()).unwrap();
        let verifier = RootVerifier::new(Arc::new(roots), provider()).unwrap();
        let verifies = |certificate: &CertificateDer<'_>, name: &str, days: u64| {
            let now = UnixTime::since_unix_epoch(Duration::from_secs(days * 86_400));
            verifier.verify_server_cert(certificate, &[], &name.try_into().unwrap(), &[], now).is_ok()
        };
        let in_2026 = 20_600;
        assert!(verifies(&trusted, "hooks.test", in_2026));
        assert!(!verifies(&trusted, "other.test", in_2026));
        assert!(!verifies(&trusted, "hooks.test", in_2026 + 365));
        assert!(!verifies(&authority(2026), "hooks.test", in_2026), "another key");
    }
}
