//! Verifies a mail server's certificates against its TLSA records (RFC 7671, RFC 7672 3).
//!
//! Called after a handshake that proved that the server holds its certificate's key. A certificate that can't be parsed
//! never matches: its key was not proven.

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{Error, RootCertStore};
use sha2::{Digest as _, Sha256, Sha512};

use super::mail_tls::{VerifyError, verify_error};
use super::tls::provider;
use crate::smtp::tls_policy::{DaneTerms, TlsFault};
use crate::smtp::tlsa::{Association, Matching, Selector, Usage};

/// Maximum number of certificates of a chain that are checked. A real chain has three or four.
const CHAIN_MAX: usize = 16;

/// Verifies that `chain`, the server's own certificate first, matches one of the records.
///
/// # Errors
/// No record matches. The error says why.
pub(super) fn verify(chain: &[CertificateDer<'_>], terms: &DaneTerms) -> Result<(), VerifyError> {
    let chain = &chain[..chain.len().min(CHAIN_MAX)];
    let Some((server, rest)) = chain.split_first() else {
        return Err((TlsFault::ValidationFailure, "the server has no certificate".to_owned()));
    };
    let no_match = "the server's certificate matches none of its TLSA records";
    let mut last = (TlsFault::ValidationFailure, no_match.to_owned());
    for record in &terms.associations {
        match record.usage {
            // RFC 7672 3.1.1: the name and the validity period are not checked.
            Usage::Server if matches(record, server) => return Ok(()),
            Usage::Server => {}
            Usage::Authority => {
                for anchor in authorities(record, rest) {
                    match vouches(&anchor, server, rest, &terms.names) {
                        Ok(()) => return Ok(()),
                        Err(fault) => last = verify_error(&fault),
                    }
                }
            }
        }
    }
    Err(last)
}

fn matches(record: &Association, certificate: &CertificateDer<'_>) -> bool {
    let Ok(parsed) = ParsedCertificate::try_from(certificate) else { return false };
    let key;
    let subject: &[u8] = match record.selector {
        Selector::Certificate => certificate.as_ref(),
        Selector::PublicKey => {
            key = parsed.subject_public_key_info();
            key.as_ref()
        }
    };
    match record.matching {
        Matching::Exact => record.data == subject,
        Matching::Sha256 => record.data == Sha256::digest(subject).as_slice(),
        Matching::Sha512 => record.data == Sha512::digest(subject).as_slice(),
    }
}

/// Returns the authorities that `record` matches: certificates that the server sent, or the one contained in the record
/// (RFC 7671 5.2.2).
fn authorities<'a>(record: &Association, sent: &'a [CertificateDer<'a>]) -> Vec<CertificateDer<'a>> {
    let found = sent.iter().filter(|certificate| matches(record, certificate)).cloned();
    let whole = match (record.selector, record.matching) {
        (Selector::Certificate, Matching::Exact) => Some(CertificateDer::from(record.data.clone())),
        (Selector::Certificate | Selector::PublicKey, _) => None,
    };
    found.chain(whole).collect()
}

/// Returns whether `anchor` is an issuer above `server`, and `server` is valid now for one of `names`.
fn vouches(
    anchor: &CertificateDer<'_>,
    server: &CertificateDer<'_>,
    rest: &[CertificateDer<'_>],
    names: &[String],
) -> Result<(), Error> {
    let mut roots = RootCertStore::empty();
    roots.add(anchor.clone().into_owned())?;
    let verifier = WebPkiServerVerifier::builder_with_provider(roots.into(), provider()).build();
    let verifier = verifier.map_err(|fault| Error::General(fault.to_string()))?;
    let mut last = Error::General("the server has no name".to_owned());
    for name in names.iter().filter_map(|name| ServerName::try_from(name.as_str()).ok()) {
        match verifier.verify_server_cert(server, rest, &name, &[], UnixTime::now()) {
            Ok(_) => return Ok(()),
            Err(fault) => last = fault,
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{BasicConstraints, Certificate, CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd};

    const HOST: &str = "mx.example.test";

    struct Pki {
        root: Certificate,
        server: Certificate,
    }

    /// Creates a root and a certificate for [`HOST`] under it that expires in `year`.
    fn pki(year: i32) -> Pki {
        let (root_key, key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let root = params.self_signed(&root_key).unwrap();
        let issuer = Issuer::new(params, root_key);
        let mut params = CertificateParams::new(vec![HOST.to_owned()]).unwrap();
        params.not_after = date_time_ymd(year, 1, 1);
        Pki { root, server: params.signed_by(&key, &issuer).unwrap() }
    }

    impl Pki {
        fn chain(&self) -> Vec<CertificateDer<'static>> {
            vec![self.server.der().clone(), self.root.der().clone()]
        }

        fn verdict(&self, record: Association, name: &str) -> Result<(), TlsFault> {
            self.verdict_of(&self.chain(), record, name)
        }

        fn verdict_of(&self, chain: &[CertificateDer<'_>], record: Association, name: &str) -> Result<(), TlsFault> {
            let terms = DaneTerms { associations: vec![record], names: vec![name.to_owned()] };
            verify(chain, &terms).map_err(|(fault, _)| fault)
        }
    }

    fn key_of(certificate: &Certificate) -> Vec<u8> {
        ParsedCertificate::try_from(certificate.der()).unwrap().subject_public_key_info().to_vec()
    }

    fn record(usage: Usage, selector: Selector, matching: Matching, of: &Certificate) -> Association {
        let subject = match selector {
            Selector::Certificate => of.der().to_vec(),
            Selector::PublicKey => key_of(of),
        };
        let data = match matching {
            Matching::Exact => subject,
            Matching::Sha256 => Sha256::digest(subject).to_vec(),
            Matching::Sha512 => Sha512::digest(subject).to_vec(),
        };
        Association { usage, selector, matching, data }
    }

    const FORMS: [(Selector, Matching); 6] = [
        (Selector::Certificate, Matching::Exact),
        (Selector::Certificate, Matching::Sha256),
        (Selector::Certificate, Matching::Sha512),
        (Selector::PublicKey, Matching::Exact),
        (Selector::PublicKey, Matching::Sha256),
        (Selector::PublicKey, Matching::Sha512),
    ];

    #[test]
    fn the_server_s_own_certificate_matches_regardless_of_name_and_validity() {
        let (past, other) = (pki(2020), pki(2099));
        for (selector, matching) in FORMS {
            assert_eq!(past.verdict(record(Usage::Server, selector, matching, &past.server), "other.test"), Ok(()));
            let foreign = record(Usage::Server, selector, matching, &other.server);
            assert_eq!(past.verdict(foreign, HOST), Err(TlsFault::ValidationFailure));
            let issuer = record(Usage::Server, selector, matching, &past.root);
            assert_eq!(past.verdict(issuer, HOST), Err(TlsFault::ValidationFailure), "only the server's own counts");
        }
    }

    #[test]
    fn a_trust_anchor_requires_a_matching_name_and_validity() {
        let (good, past, other) = (pki(2099), pki(2020), pki(2099));
        for (selector, matching) in FORMS {
            let by_root = |pki: &Pki| record(Usage::Authority, selector, matching, &pki.root);
            assert_eq!(good.verdict(by_root(&good), HOST), Ok(()), "{selector:?} {matching:?}");
            assert_eq!(good.verdict(by_root(&good), "other.test"), Err(TlsFault::CertificateHostMismatch));
            assert_eq!(past.verdict(by_root(&past), HOST), Err(TlsFault::CertificateExpired));
            assert!(good.verdict(by_root(&other), HOST).is_err());
        }
    }

    #[test]
    fn a_trust_anchor_contained_in_the_record_need_not_be_sent() {
        let good = pki(2099);
        let alone = [good.server.der().clone()];
        let whole = record(Usage::Authority, Selector::Certificate, Matching::Exact, &good.root);
        assert_eq!(good.verdict_of(&alone, whole, HOST), Ok(()));
        let digest = record(Usage::Authority, Selector::Certificate, Matching::Sha256, &good.root);
        assert_eq!(good.verdict_of(&alone, digest, HOST), Err(TlsFault::ValidationFailure));
    }

    #[test]
    fn bytes_that_are_not_a_certificate_match_no_record() {
        let good = pki(2099);
        let junk = CertificateDer::from(b"junk".to_vec());
        let data = b"junk".to_vec();
        let own =
            Association { usage: Usage::Server, selector: Selector::Certificate, matching: Matching::Exact, data };
        assert!(good.verdict_of(&[junk], own.clone(), HOST).is_err());
        assert!(good.verdict_of(&[], own, HOST).is_err());
    }
}
