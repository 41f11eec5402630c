//! Tests of verification: signatures of another implementation (mail-auth) and of this one, and refusal of all others.

use mail_auth::common::crypto::{RsaKey, Sha256};
use mail_auth::common::headers::HeaderWriter;
use mail_auth::dkim::{Canonicalization, DkimSigner};

use super::*;
use crate::base::entropy::SeededEntropy;
use crate::domain::sending_domain::DkimAlgorithm;
use crate::mail::dkim::{SigningKey, sign};
use crate::mail::dkim_key::{GeneratedKey, generate};
use crate::mail::dkim_verify::{SIGNATURES_MAX, aligned_signatures};

const MESSAGE: &str = "From: Abuse <fbl@example.com>\r\nTo: x@example.net\r\nSubject: a  report \r\n\r\n\
                       A  line \r\n\r\nand one more\r\n\r\n\r\n";

fn key(algorithm: DkimAlgorithm) -> GeneratedKey {
    generate(algorithm, &SeededEntropy::new(3)).unwrap()
}

/// Returns `message` with a signature of `domain` by this program.
fn signed_by(key: &GeneratedKey, algorithm: DkimAlgorithm, domain: &str, message: &str) -> String {
    let key = SigningKey::from_pkcs8(domain.parse().unwrap(), "s1", algorithm, key.pkcs8.expose()).unwrap();
    String::from_utf8(sign(&[&key], message.as_bytes(), AT).unwrap()).unwrap() + message
}

fn ed25519(domain: &str, message: &str) -> (String, String) {
    let key = key(DkimAlgorithm::Ed25519Sha256);
    (signed_by(&key, DkimAlgorithm::Ed25519Sha256, domain, message), key.record)
}

/// Converts the key for mail-auth.
#[expect(deprecated, reason = "its successor needs a type of a crate that this floor does not use")]
fn rsa(key: &GeneratedKey) -> RsaKey<Sha256> {
    RsaKey::from_pkcs8_der(key.pkcs8.expose()).unwrap()
}

/// Returns whether a signature of `message` verifies with `record`, at the time of signing.
fn verifies(message: &str, record: &str) -> bool {
    verifies_at(message, record, AT)
}

fn verifies_at(message: &str, record: &str, now: Timestamp) -> bool {
    let records = [record.to_owned()];
    aligned_signatures(message.as_bytes(), now).iter().any(|signature| signature.is_verified_by(&records))
}

#[test]
fn signatures_of_both_algorithms_verify_only_with_the_published_key() {
    for algorithm in [DkimAlgorithm::RsaSha256, DkimAlgorithm::Ed25519Sha256] {
        let key = key(algorithm);
        let signed = signed_by(&key, algorithm, "example.com", MESSAGE);
        let signatures = aligned_signatures(signed.as_bytes(), AT);
        assert_eq!(signatures[0].key_name(), "s1._domainkey.example.com");
        assert!(verifies(&signed, &key.record), "{algorithm}");
        let other = generate(algorithm, &SeededEntropy::new(4)).unwrap();
        for record in [other.record.as_str(), "v=DKIM1; p=", "", "v=DKIM1; k=rsa; p=AAAA", "p=&"] {
            assert!(!verifies(&signed, record), "{algorithm} {record}");
        }
    }
}

#[test]
fn signatures_of_another_implementation_verify_in_every_form() {
    let key = key(DkimAlgorithm::RsaSha256);
    let forms = [Canonicalization::Relaxed, Canonicalization::Simple];
    for (header, body) in forms.into_iter().flat_map(|header| forms.map(|body| (header, body))) {
        let empty = "From: a@example.com\r\n\r\n";
        for message in [MESSAGE, empty, "From: a@example.com\r\n\r\n\r\n\r\nx"] {
            for with_length in [false, message != empty] {
                let signer = DkimSigner::from_key(rsa(&key)).domain("example.com").selector("s1");
                let signer = signer.headers(["From", "To", "Subject", "From"]).body_length(with_length);
                let signer = signer.header_canonicalization(header).body_canonicalization(body);
                let signed = signer.sign(message.as_bytes()).unwrap().to_header() + message;
                assert_eq!(verifies(&signed, &key.record), !with_length, "{header:?} {body:?} {signed}");
            }
        }
    }
}

#[test]
fn changed_signed_content_or_a_second_from_does_not_verify() {
    let (signed, record) = ed25519("example.com", MESSAGE);
    assert!(verifies(&signed, &record));
    for (from, to) in [
        ("and one", "and two"),
        ("fbl@example.com", "xyz@example.com"),
        ("a  report", "another report"),
        ("From: ", "From: Evil <e@example.com>\r\nFrom: "),
        ("d=example.com", "d=mail.example.com"),
        ("v=1", "v=2"),
        ("v=1", "v=1; v=1"),
        ("v=1", "v=1; l=3"),
        ("v=1", "v=1; i=x@example.net"),
        ("s=s1", "s=s1..x"),
        ("\r\n\r\nA ", "\n\nA "),
        ("line \r\n", "line \r"),
    ] {
        assert!(signed.contains(from), "{from}");
        assert!(!verifies(&signed.replacen(from, to, 1), &record), "{from:?} to {to:?}");
    }
}

#[test]
fn a_signature_counts_only_if_its_domain_aligns_with_the_from_domain() {
    for (from, signer, aligned) in [
        ("example.com", "example.com", true),
        ("mail.example.com", "example.com", true),
        ("example.com", "mail.example.com", true),
        ("mail.example.co.uk", "news.example.co.uk", true),
        ("one.co.uk", "two.co.uk", false),
        ("github.io", "one.github.io", false),
        ("example.com", "badexample.com", false),
        ("badexample.com", "example.com", false),
        ("example.com", "evil.example.net", false),
    ] {
        let message = MESSAGE.replace("@example.com", &format!("@{from}"));
        let (signed, record) = ed25519(signer, &message);
        assert_eq!(verifies(&signed, &record), aligned, "{from} {signer}");
    }
    for from in ["a@example.com, b@example.com", "nobody", "a@example.net <b@example.com>"] {
        let (signed, record) = ed25519("example.com", &MESSAGE.replace("Abuse <fbl@example.com>", from));
        assert!(!verifies(&signed, &record), "{from}");
    }
}

#[test]
fn a_key_record_may_limit_the_use_of_its_key() {
    let (signed, record) = ed25519("example.com", MESSAGE);
    for (limit, usable) in [
        ("h=sha1:sha256; s=*", true),
        ("s=email; n=note; t=s", true),
        ("h=sha1", false),
        ("s=other", false),
        ("t=y", false),
        ("t=s:y", false),
        ("p=AAAA", false),
    ] {
        let record = record.replace("v=DKIM1;", &format!("v=DKIM1; {limit};"));
        assert_eq!(verifies(&signed, &record), usable, "{limit}");
    }
    assert!(!verifies(&signed, &record.replace("DKIM1", "DKIM2")));
    assert!(!verifies(&signed, &record.replace("k=ed25519", "k=rsa")));
    assert!(!verifies(&signed, &format!("{record}; n={}", "x".repeat(2048))));
}

#[test]
fn an_expired_signature_does_not_count() {
    let key = key(DkimAlgorithm::RsaSha256);
    let signer = DkimSigner::from_key(rsa(&key)).domain("example.com").selector("s1").headers(["From"]).expiration(60);
    let signed = signer.sign(MESSAGE.as_bytes()).unwrap().to_header() + MESSAGE;
    let expiry = signed.split_once(" x=").unwrap().1.split_once(';').unwrap().0.parse::<u64>().unwrap();
    assert!(verifies_at(&signed, &key.record, Timestamp::from_millis((expiry - 1) * 1000)));
    assert!(!verifies_at(&signed, &key.record, Timestamp::from_millis(expiry * 1000)));
}

#[test]
fn reads_signatures_up_to_the_limit() {
    let (signed, _) = ed25519("example.com", MESSAGE);
    let field = signed.strip_suffix(MESSAGE).unwrap();
    let many = field.repeat(50) + MESSAGE;
    assert_eq!(aligned_signatures(many.as_bytes(), AT).len(), SIGNATURES_MAX);
    let late = "DKIM-Signature: v=1\r\n".repeat(20) + &signed;
    assert_eq!(aligned_signatures(late.as_bytes(), AT), []);
}

proptest::proptest! {
    #[test]
    fn the_parser_never_panics(value in ".{0,80}", record in ".{0,80}", body in ".{0,20}") {
        let message = format!("From: a@example.com\r\nDKIM-Signature: {value}\r\n\r\n{body}");
        for signature in aligned_signatures(message.as_bytes(), AT) {
            signature.is_verified_by(std::slice::from_ref(&record));
        }
        let (signed, _) = ed25519("example.com", MESSAGE);
        proptest::prop_assert!(!verifies(&signed, &record));
    }
}
