//! Keys of ACME orders: private keys, certificate signing requests, and the tls-alpn-01 certificates.

use std::sync::Arc;

use rcgen::{CertificateParams, CustomExtension, DistinguishedName, KeyPair};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::sign::CertifiedKey;

use crate::net::tls;

/// Creates a private key (P-256, which every client supports), in PEM.
///
/// # Errors
/// The cryptographic library fails. All errors of this module are sentences.
pub(super) fn new_key() -> Result<String, String> {
    KeyPair::generate().map(|key| key.serialize_pem()).map_err(|error| error.to_string())
}

/// Creates the signing request for `names` with the private key in `pem`.
pub(super) fn signing_request(names: &[String], pem: &str) -> Result<Vec<u8>, String> {
    let made = || {
        let key = KeyPair::from_pem(pem)?;
        let request = nameless(names)?.serialize_request(&key)?;
        Ok(request.der().to_vec())
    };
    made().map_err(|error: rcgen::Error| error.to_string())
}

/// Creates the certificate that proves `name` by `digest`, the hash of the key authorization (RFC 8737 3).
pub(super) fn proof(name: &str, digest: &[u8]) -> Result<Arc<CertifiedKey>, String> {
    let made = || {
        let key = KeyPair::generate()?;
        let mut params = nameless(&[name.to_owned()])?;
        params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
        let certificate = params.self_signed(&key)?;
        Ok((certificate.der().clone(), PrivatePkcs8KeyDer::from(key.serialize_der())))
    };
    let (certificate, key) = made().map_err(|error: rcgen::Error| error.to_string())?;
    let key = tls::provider().key_provider.load_private_key(key.into()).map_err(|error| error.to_string())?;
    // `from_der` is not used: it parses the certificate and refuses a critical extension that it does not know.
    Ok(Arc::new(CertifiedKey::new(vec![certificate], key)))
}

/// Certificate parameters with an empty subject: the names are only in the subject alternative name extension.
fn nameless(names: &[String]) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name = DistinguishedName::new();
    Ok(params)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signing_request_has_its_names_and_its_key_s_signature() {
        let key = new_key().unwrap();
        let names = ["a.example", "b.example"].map(str::to_owned);
        let request = signing_request(&names, &key).unwrap();
        for name in names {
            assert!(request.windows(name.len()).any(|window| window == name.as_bytes()));
        }
        assert!(signing_request(&[], "no key").is_err());
    }

    #[test]
    fn a_proof_certificate_carries_the_digest_in_the_acme_identifier_extension() {
        let pair = proof("a.example", &[7; 32]).unwrap();
        // id-pe-acmeIdentifier 1.3.6.1.5.5.7.1.31, critical: an OCTET STRING inside an OCTET STRING.
        let shown = [&[0x06, 8, 0x2b, 6, 1, 5, 5, 7, 1, 0x1f, 1, 1, 0xff, 4, 34, 4, 32][..], &[7; 32]].concat();
        assert!(pair.cert[0].windows(shown.len()).any(|window| window == shown), "{:02x?}", pair.cert[0].as_ref());
    }
}
