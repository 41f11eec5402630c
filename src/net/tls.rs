//! TLS material: certificates and keys from PEM files, trusted roots, and the crypto provider.
//!
//! Listeners and clients use it at start and at every reload. It holds no state. Every error names the file, the
//! problem and the remedy.

use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::thread;

use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::{ClientHello, ResolvesServerCert, WantsServerCert};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, ConfigBuilder, RootCertStore, ServerConfig};

use super::acme::challenges::{self, Challenges};
use super::root_verifier::RootVerifier;

/// The error of unusable TLS material: the file, the reason, and the remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {why}; {remedy}")]
pub struct TlsFault {
    what: String,
    why: String,
    remedy: &'static str,
}

const CHAIN_REMEDY: &str = "set it to a PEM file with the server's certificate first and its intermediates after it";
const KEY_REMEDY: &str = "set it to a PEM file with one unencrypted private key that this process may read";
const PAIR_REMEDY: &str = "set the key that the certificate was issued for";
const ROOTS_REMEDY: &str = "set it to a PEM file with the authorities' certificates, or remove the setting";

/// Returns a listener's configuration from a certificate chain and its key, offering HTTP/2 and HTTP/1.1.
///
/// # Errors
/// A file can't be read or holds nothing usable, or chain and key do not match.
pub fn server_config(certificate: &Path, key: &Path) -> Result<ServerConfig, TlsFault> {
    let pair = pair(certificate, key)?;
    let mut config = builder().with_cert_resolver(Arc::new(SingleCertAndKey::from(pair)));
    config.alpn_protocols = HTTP.map(<[u8]>::to_vec).into();
    Ok(config)
}

/// Returns a listener's configuration that presents `pair`, and answers the tls-alpn-01 handshakes of `challenges`.
pub fn presenting(pair: Arc<CertifiedKey>, challenges: &Arc<Challenges>) -> ServerConfig {
    let mut config =
        builder().with_cert_resolver(Arc::new(CertificateResolver { pair, challenges: Arc::clone(challenges) }));
    config.alpn_protocols = [&HTTP[..], &[challenges::ALPN]].concat().into_iter().map(<[u8]>::to_vec).collect();
    config
}

#[derive(Debug)]
struct CertificateResolver {
    pair: Arc<CertifiedKey>,
    challenges: Arc<Challenges>,
}

impl ResolvesServerCert for CertificateResolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        match challenges::is_asked_in(&hello) {
            true => self.challenges.certificate(&hello),
            false => Some(Arc::clone(&self.pair)),
        }
    }
}

/// Reads a certificate chain and its key from PEM files, which may be one file.
///
/// # Errors
/// The errors of [`server_config`].
pub fn pair(certificate: &Path, key: &Path) -> Result<Arc<CertifiedKey>, TlsFault> {
    let what = || format!("cannot use the TLS certificate {}", certificate.display());
    let chain = certificates(certificate, what, CHAIN_REMEDY)?;
    let private = PrivateKeyDer::from_pem_file(key).map_err(|why| TlsFault {
        what: format!("cannot use the TLS key {}", key.display()),
        why: reason(&why, "no private key"),
        remedy: KEY_REMEDY,
    })?;
    let made = CertifiedKey::from_der(chain, private, &provider()).map_err(|why| TlsFault {
        what: format!("cannot use the TLS certificate {} with the key {}", certificate.display(), key.display()),
        why: match why {
            rustls::Error::InconsistentKeys(_) => "the key does not match the certificate".to_owned(),
            other => other.to_string(),
        },
        remedy: PAIR_REMEDY,
    })?;
    Ok(Arc::new(made))
}

/// Returns the same certificate for mail, without ALPN. SMTP has no protocols to choose from (RFC 3207), and a client
/// that offers some must not be refused.
pub fn for_mail(config: &ServerConfig) -> ServerConfig {
    let mut config = config.clone();
    config.alpn_protocols.clear();
    config
}

/// Creates a self-signed certificate for `names`. It is enough for mail servers, which encrypt with any certificate and
/// verify none (RFC 7435), and for browsers until an authority has issued another. It is created at each start and not
/// stored, since no client could have come to trust it.
///
/// # Errors
/// The cryptographic library fails.
pub fn self_signed_pair(names: &[String]) -> Result<Arc<CertifiedKey>, TlsFault> {
    let fault = |why: String| TlsFault {
        what: "cannot create a TLS certificate".to_owned(),
        why,
        remedy: "set certificate files in [http.tls], which serve mail too",
    };
    let made = rcgen::generate_simple_self_signed(names).map_err(|why| fault(why.to_string()))?;
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let pair = CertifiedKey::from_der(vec![made.cert.der().clone()], key.into(), &provider());
    pair.map(Arc::new).map_err(|why| fault(why.to_string()))
}

/// Makes the cryptographic library gather its entropy, on a separate thread. The first random number takes tens of
/// milliseconds, which would otherwise delay the start, a handshake or a signature.
pub fn gather_entropy() {
    let gathering = thread::Builder::new().name("entropy".to_owned());
    let gathering = gathering.spawn(|| provider().secure_random.fill(&mut [0]));
    // If there is no thread or no entropy, the next use of a random number reports it.
    drop(gathering);
}

/// Returns the configuration of a self-signed certificate for mail.
///
/// # Errors
/// The errors of [`self_signed_pair`].
pub fn self_signed(hostname: &str) -> Result<ServerConfig, TlsFault> {
    let pair = self_signed_pair(&[hostname.to_owned()])?;
    Ok(builder().with_cert_resolver(Arc::new(SingleCertAndKey::from(pair))))
}

fn builder() -> ConfigBuilder<ServerConfig, WantsServerCert> {
    ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap_or_else(|_| unreachable!("aws-lc-rs has cipher suites for TLS 1.2 and 1.3"))
        .with_no_client_auth()
}

/// The ALPN protocols of HTTP, the preferred one first.
const HTTP: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// The system's trusted roots, read once.
static SYSTEM_ROOTS: LazyLock<RootCertStore> = LazyLock::new(|| {
    let mut roots = RootCertStore::empty();
    let system = rustls_native_certs::load_native_certs();
    let (taken, _) = roots.add_parsable_certificates(system.certs);
    if taken == 0 {
        tracing::warn!(faults = ?system.errors, "no trusted root certificates found; install ca-certificates");
    }
    roots
});

/// Returns the system's roots together with those in the PEM file `extra`.
///
/// # Errors
/// `extra` can't be read or holds no certificate. A system without roots is only logged, since the roots in `extra` may
/// be enough.
pub fn trusted_roots(extra: Option<&Path>) -> Result<RootCertStore, TlsFault> {
    let mut roots = SYSTEM_ROOTS.clone();
    let Some(path) = extra else { return Ok(roots) };
    let what = || format!("cannot use the extra roots {}", path.display());
    for certificate in certificates(path, what, ROOTS_REMEDY)? {
        let unusable = |why: rustls::Error| TlsFault { what: what(), why: why.to_string(), remedy: ROOTS_REMEDY };
        roots.add(certificate).map_err(unusable)?;
    }
    Ok(roots)
}

/// Returns a client's configuration that verifies chain and name against `roots`. `alpn` is offered in that order.
pub fn client_config(roots: RootCertStore, alpn: &[&str]) -> ClientConfig {
    let (mut config, _) = verifying(roots);
    config.alpn_protocols = alpn.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    config
}

/// Returns a client's configuration that verifies chain and name against `roots`, and its verifier. Without roots there
/// is no verifier, and no certificate verifies.
pub(super) fn verifying(roots: RootCertStore) -> (ClientConfig, Option<Arc<RootVerifier>>) {
    let roots = Arc::new(roots);
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap_or_else(|_| unreachable!("aws-lc-rs has cipher suites for TLS 1.2 and 1.3"))
        .with_root_certificates(Arc::clone(&roots))
        .with_no_client_auth();
    let verifier = RootVerifier::new(roots, provider()).ok().map(Arc::new);
    if let Some(verifier) = &verifier {
        config.dangerous().set_certificate_verifier(Arc::clone(verifier) as Arc<dyn ServerCertVerifier>);
    }
    (config, verifier)
}

/// Returns the program's only crypto provider. It is passed explicitly each time, so that no other can become the
/// process default.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

fn certificates(
    path: &Path,
    what: impl Fn() -> String,
    remedy: &'static str,
) -> Result<Vec<CertificateDer<'static>>, TlsFault> {
    let fault = |why: pem::Error| TlsFault { what: what(), why: reason(&why, "no certificate"), remedy };
    let read: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path).map_err(fault)?.collect();
    let read = read.map_err(fault)?;
    if read.is_empty() { Err(fault(pem::Error::NoItemsFound)) } else { Ok(read) }
}

fn reason(why: &pem::Error, none: &str) -> String {
    match why {
        pem::Error::Io(why) => why.to_string(),
        pem::Error::NoItemsFound => format!("the file contains {none} in PEM format"),
        other => format!("the file is not valid PEM ({other})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use tempfile::TempDir;

    fn written(names: &[&str]) -> TempDir {
        let dir = tempfile::tempdir().unwrap();
        for name in names {
            let made = rcgen::generate_simple_self_signed(vec!["a.example".to_owned()]).unwrap();
            fs::write(dir.path().join(format!("{name}.crt")), made.cert.pem()).unwrap();
            fs::write(dir.path().join(format!("{name}.key")), made.signing_key.serialize_pem()).unwrap();
        }
        dir
    }

    #[test]
    fn a_certificate_with_its_key_offers_both_versions_of_http() {
        let dir = written(&["one"]);
        let config = server_config(&dir.path().join("one.crt"), &dir.path().join("one.key")).unwrap();
        assert_eq!(config.alpn_protocols, [b"h2".to_vec(), b"http/1.1".to_vec()]);
    }

    #[test]
    fn mail_gets_the_same_certificate_without_http_alpn() {
        let dir = written(&["one"]);
        let config = server_config(&dir.path().join("one.crt"), &dir.path().join("one.key")).unwrap();
        assert!(for_mail(&config).alpn_protocols.is_empty());
        assert!(self_signed("mx.example").unwrap().alpn_protocols.is_empty());
    }

    #[test]
    fn an_error_has_the_file_the_reason_and_the_remedy() {
        let dir = written(&["one", "two"]);
        let at = |name: &str| dir.path().join(name);
        fs::write(at("empty"), "").unwrap();
        fs::write(at("torn"), "-----BEGIN CERTIFICATE-----\nAAAA\n").unwrap();
        for (certificate, key, why) in [
            ("none.crt", "one.key", "No such file"),
            ("empty", "one.key", "contains no certificate in PEM format"),
            ("one.key", "one.key", "contains no certificate in PEM format"),
            ("torn", "one.key", "not valid PEM"),
            ("one.crt", "empty", "contains no private key in PEM format"),
            ("one.crt", "two.key", "the key does not match the certificate"),
        ] {
            let fault = server_config(&at(certificate), &at(key)).unwrap_err().to_string();
            assert!(fault.starts_with("cannot use the TLS ") && fault.contains(why), "{fault}");
            assert!(fault.contains("; set it to a PEM file") || fault.contains("; set the key"), "{fault}");
        }
    }

    #[test]
    fn extra_roots_are_added_to_the_system_s() {
        let dir = written(&["ca"]);
        let system = trusted_roots(None).unwrap().len();
        assert_eq!(trusted_roots(Some(&dir.path().join("ca.crt"))).unwrap().len(), system + 1);
        let fault = trusted_roots(Some(&dir.path().join("ca.key"))).unwrap_err().to_string();
        assert!(fault.contains("extra roots") && fault.contains("or remove the setting"), "{fault}");
    }
}
