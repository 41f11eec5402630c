//! Tests that signatures verify with another implementation (mail-auth), and break by relevant changes.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::future::Future;
use std::hash::Hash;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use mail_auth::common::cache::NoCache;
use mail_auth::common::parse::TxtRecordParser;
use mail_auth::common::verify::DomainKey;
use mail_auth::hickory_resolver::config::{ResolverConfig, ResolverOpts};
use mail_auth::{
    AuthenticatedMessage, DkimResult, MX, MessageAuthenticator, Parameters, RecordSet, ResolverCache, Txt,
};

use super::*;
use crate::base::entropy::SeededEntropy;
use crate::domain::sending_domain::DkimAlgorithm;
use crate::mail::dkim::{SigningKey, sign};
use crate::mail::dkim_key::generate;

/// The published keys, instead of DNS.
struct Records(HashMap<Box<str>, Txt>);

impl ResolverCache<Box<str>, Txt> for Records {
    fn get<Q>(&self, name: &Q) -> Option<Txt>
    where
        Box<str>: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.0.get(name).cloned()
    }

    fn remove<Q>(&self, _: &Q) -> Option<Txt>
    where
        Box<str>: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        None
    }

    fn insert(&self, _: Box<str>, _: Txt, _: Instant) {}
}

/// Both keys of example.com, and their records.
struct Signer {
    keys: [SigningKey; 2],
    records: Records,
}

impl Signer {
    fn new() -> Self {
        let mut records = HashMap::new();
        let keys = [DkimAlgorithm::RsaSha256, DkimAlgorithm::Ed25519Sha256].map(|algorithm| {
            let key = generate(algorithm, &SeededEntropy::new(1)).unwrap();
            let selector = format!("s-{algorithm}");
            let parsed = DomainKey::parse(key.record.as_bytes()).unwrap();
            let name = format!("{selector}._domainkey.example.com.").into_boxed_str();
            records.insert(name, Txt::DomainKey(Arc::new(parsed)));
            let domain = "example.com".parse().unwrap();
            SigningKey::from_pkcs8(domain, selector, algorithm, key.pkcs8.expose()).unwrap()
        });
        Self { keys, records: Records(records) }
    }

    fn signed(&self, message: &[u8]) -> Vec<u8> {
        let keys: Vec<_> = self.keys.iter().collect();
        let mut signed = sign(&keys, message, AT).unwrap();
        for line in signed.split(|c| *c == b'\n') {
            assert!(line.len() <= 79, "{}", String::from_utf8_lossy(line));
        }
        signed.extend_from_slice(message);
        signed
    }

    /// Returns the result of each signature.
    fn verify(&self, signed: &[u8]) -> Vec<bool> {
        let options = ResolverOpts::default();
        let authenticator = MessageAuthenticator::new(ResolverConfig::default(), options).unwrap();
        let message = AuthenticatedMessage::parse(signed).unwrap();
        let parameters = Parameters {
            params: &message,
            cache_txt: Some(&self.records),
            cache_mx: None::<&NoCache<Box<str>, RecordSet<MX>>>,
            cache_ptr: None::<&NoCache<IpAddr, RecordSet<Box<str>>>>,
            cache_ipv4: None::<&NoCache<Box<str>, RecordSet<Ipv4Addr>>>,
            cache_ipv6: None::<&NoCache<Box<str>, RecordSet<Ipv6Addr>>>,
        };
        let results = ready(authenticator.verify_dkim(parameters));
        results.iter().map(|output| *output.result() == DkimResult::Pass).collect()
    }
}

/// Returns the result of a future that never waits, since all requested names are in the cache.
fn ready<T>(future: impl Future<Output = T>) -> T {
    match std::pin::pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("the verifier used the network"),
    }
}

fn raw(text: &str) -> Vec<u8> {
    composed(json!({"raw": text})).bytes
}

fn replaced(message: &[u8], from: &str, to: &str) -> Vec<u8> {
    let text = String::from_utf8(message.to_vec()).unwrap();
    assert!(text.contains(from), "{from}");
    text.replacen(from, to, 1).into_bytes()
}

#[test]
fn both_signatures_of_every_kind_of_message_verify() {
    let signer = Signer::new();
    let long = "word ".repeat(190);
    let messages = [
        composed(json!({"text": "Hello"})).bytes,
        composed(json!({"html": "<p>Hällo</p>\n\n\n", "subject": long, "from_name": "Jörg"})).bytes,
        composed(json!({"text": "a\n\n", "html": "b", "unsubscribe_url": "https://example.com/u", "subject": "",
            "headers": {"List-Id": "<l.example.com>", "Reply-To": "x@example.com", "References": "<a@b> <c@d>"},
            "attachments": [{"filename": "ü.bin", "content": "AAEC"}]}))
        .bytes,
        raw("From: a@example.com\nTo: b@example.net\nSubject: LF\n\nx\ny\n"),
        raw("From: a@example.com\r\nTo: b@example.net\r\nSubject: CRLF\r\n\r\nx\r\ny\r\n"),
        raw(
            "from:  \t a@example.com \nTO:\n b@example.net\nSubject: \t odd \n\t  white\n \t\n  space \n\n a\t\tb  \n \t\nc",
        ),
        raw("From: a@example.com\nSubject:\n\n"),
        raw("From: a@example.com\n"),
        raw("From: a@example.com\n\nx\n\n\n\n"),
        raw(
            "From: a@example.com\nList-Post: <mailto:a@example.com>\nCc: c@example.com\nCc: d@example.com\nList-Post: x\n\n\n\nx",
        ),
        raw("From: a@example.com\nSubject: Grüße\n\nGrüße\n"),
    ];
    for message in messages {
        let signed = signer.signed(&message);
        assert_eq!(signer.verify(&signed), [true, true], "{}", String::from_utf8_lossy(&signed));
    }
}

#[test]
fn changing_or_adding_visible_content_breaks_the_signature() {
    let signer = Signer::new();
    let message = composed(json!({"text": "Hello", "subject": "S", "unsubscribe_url": "https://example.com/u"})).bytes;
    let signed = signer.signed(&message);
    assert_eq!(signer.verify(&signed), [true, true]);
    for added in [
        "From: evil@example.net",
        "To: evil@example.net",
        "Subject: evil",
        "Date: x",
        "Message-ID: <x@y>",
        "Cc: x@y.example",
        "Reply-To: evil@example.net",
        "MIME-Version: 2.0",
        "Content-Type: text/html",
        "List-Unsubscribe: <https://evil.example/>",
        "List-Unsubscribe-Post: x",
    ] {
        let before = [added.as_bytes(), b"\r\n", &signed].concat();
        assert_eq!(signer.verify(&before), [false, false], "{added} before");
        let after = replaced(&signed, "MIME-Version: 1.0\r\n", &format!("MIME-Version: 1.0\r\n{added}\r\n"));
        assert_eq!(signer.verify(&after), [false, false], "{added} after");
    }
    for (from, to) in [("\r\nHello", "\r\nHallo"), ("Subject: S", "Subject: T"), ("a@example.com", "c@example.com")] {
        assert_eq!(signer.verify(&replaced(&signed, from, to)), [false, false], "{from}");
    }
    let relayed = [b"Received: by x\r\n", &signed[..]].concat();
    assert_eq!(signer.verify(&relayed), [true, true]);
}

#[test]
fn a_signature_contains_its_fields_and_time() {
    let signer = Signer::new();
    let message = composed(json!({"text": "Hello"})).bytes;
    let fields = sign(&[&signer.keys[1]], &message, AT).unwrap();
    let text = String::from_utf8(fields).unwrap();
    assert!(text.starts_with("DKIM-Signature: v=1; a=ed25519-sha256; c=relaxed/relaxed;\r\n d=example.com; s=s-ed25519-sha256;\r\n t=1700000000;\r\n h=from:from:to:to:cc:"));
    assert!(!text.contains("l=") && text.ends_with("\r\n") && text.contains(";\r\n bh="));
    assert_eq!(sign(&[&signer.keys[1]], &message, AT).unwrap(), text.into_bytes());
    assert_eq!(sign(&[], &message, AT).unwrap(), b"");
}

#[test]
fn a_key_parses_only_as_its_own_algorithm() {
    let key = generate(DkimAlgorithm::Ed25519Sha256, &SeededEntropy::new(2)).unwrap();
    let domain = || "example.com".parse().unwrap();
    assert!(SigningKey::from_pkcs8(domain(), "s", DkimAlgorithm::RsaSha256, key.pkcs8.expose()).is_err());
    assert!(SigningKey::from_pkcs8(domain(), "s", DkimAlgorithm::Ed25519Sha256, b"no key").is_err());
    assert!(key.record.starts_with("v=DKIM1; k=ed25519; p=") && key.record.len() == 22 + 44);
}
