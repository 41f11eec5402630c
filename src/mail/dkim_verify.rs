//! Verification of DKIM signatures (RFC 6376, RFC 8463) on mail from unknown senders.
//!
//! [`aligned_signatures`] returns the signatures that align with the From domain and have a correct body hash. The
//! caller fetches the key records of [`UnverifiedSignature::key_name`] and passes them to
//! [`UnverifiedSignature::is_verified_by`]. Signatures, key records and key sizes are limited, since a sender controls
//! them. A signature with `l=` does not count, because anyone can append to the covered body.

use std::collections::HashMap;

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::signature::{ED25519, RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY, UnparsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::mailbox;
use super::relaxed;
use super::report::HEADER_BYTES_MAX;
use super::report::transfer_encoding::with_crlf;
use super::section::{self, Field};
use crate::base::time::Timestamp;
use crate::domain::hostname::DomainName;
use crate::domain::sending_domain::DkimAlgorithm;

/// Maximum number of aligned signatures read from one message. Each costs one DNS lookup.
pub const SIGNATURES_MAX: usize = 4;
/// Maximum number of DKIM-Signature fields that are read. A relayed message has a handful.
const FIELDS_MAX: usize = 20;
/// Maximum number of TXT records tried for one signature (RFC 6376 3.6.2.2 leaves several undefined).
const RECORDS_MAX: usize = 2;
/// Maximum length of a key record in bytes. A 4096-bit RSA key needs 760.
const RECORD_BYTES_MAX: usize = 2048;
/// Maximum length of an encoded RSA key in bytes: 4096 bits in a SubjectPublicKeyInfo.
const RSA_KEY_BYTES_MAX: usize = 600;

/// A signature with a correct body hash, whose public key is not fetched yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnverifiedSignature {
    signer: DomainName,
    key_name: String,
    algorithm: DkimAlgorithm,
    signed: Vec<u8>,
    signature: Vec<u8>,
    /// Whether `i=` is a subdomain of `d=`, which the key's flag `s` forbids.
    has_subdomain_identity: bool,
}

/// Canonicalization of a part of the message (RFC 6376 3.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Simple,
    Relaxed,
}

/// Returns the first [`SIGNATURES_MAX`] signatures of `message` that align with its one From mailbox, have not expired
/// at `now`, and match the body. Alignment is relaxed.
pub fn aligned_signatures(message: &[u8], now: Timestamp) -> Vec<UnverifiedSignature> {
    if has_lone_line_end(message) {
        return Vec::new();
    }
    let (fields, body) = section::split(message);
    let Some(from) = from_domain(&fields) else { return Vec::new() };
    let signatures = fields.iter().filter(|field| field.is("DKIM-Signature")).take(FIELDS_MAX);
    let mut body_hashes = BodyHashes { body, simple: None, relaxed: None };
    signatures
        .filter_map(|field| read_signature(field, &fields, &from, now, &mut body_hashes))
        .take(SIGNATURES_MAX)
        .collect()
}

/// Returns the domain of the one mailbox in the one From field of `message`. Any kind of line end is accepted.
pub fn author_domain(message: &[u8]) -> Option<DomainName> {
    let head = with_crlf(&message[..message.len().min(HEADER_BYTES_MAX)]);
    from_domain(&section::split(&head).0)
}

impl UnverifiedSignature {
    /// Returns the signing domain (`d=`).
    pub const fn signer(&self) -> &DomainName {
        &self.signer
    }

    /// Returns the DNS name of the key record.
    pub fn key_name(&self) -> &str {
        &self.key_name
    }

    /// Returns whether one of the first TXT records at [`Self::key_name`] has a key that made the signature. A key in
    /// testing mode (`t=y`) does not count (RFC 6376 3.6.1).
    pub fn is_verified_by(&self, records: &[String]) -> bool {
        records.iter().take(RECORDS_MAX).filter(|record| record.len() <= RECORD_BYTES_MAX).any(|record| {
            self.usable_key(record).is_some_and(|key| match self.algorithm {
                DkimAlgorithm::RsaSha256 => {
                    let key = UnparsedPublicKey::new(&RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY, key);
                    key.verify(&self.signed, &self.signature).is_ok()
                }
                // RFC 8463 3: Ed25519 signs the SHA-256 of the data, not the data.
                DkimAlgorithm::Ed25519Sha256 => {
                    let hash = digest(&SHA256, &self.signed);
                    UnparsedPublicKey::new(&ED25519, key).verify(hash.as_ref(), &self.signature).is_ok()
                }
            })
        })
    }

    /// Returns the public key of a record, if it may be used for this signature.
    fn usable_key(&self, record: &str) -> Option<Vec<u8>> {
        let key = PublishedKey::read(record, self.algorithm)?;
        let is_usable = !(key.is_testing || key.is_for_domain_only && self.has_subdomain_identity);
        is_usable.then_some(key.bytes)
    }
}

/// The key in a key record (RFC 6376 3.6.1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishedKey {
    /// The public key.
    pub bytes: Vec<u8>,
    /// Whether the key may not be used for subdomains (the flag `s`).
    is_for_domain_only: bool,
    /// Whether the domain only tests DKIM (the flag `y`). A verifier that trusts signatures ignores such a key, but
    /// receivers count a valid signature like any other (RFC 6376 3.6.1).
    is_testing: bool,
}

impl PublishedKey {
    /// Reads a key record as a strict verifier does. `None` if it is malformed, revoked, or not for signatures of
    /// mail with this algorithm.
    pub fn read(record: &str, algorithm: DkimAlgorithm) -> Option<Self> {
        let tags = tags(record)?;
        let is = |name: &str, default: &str, wanted: &str| tags.get(name).map_or(default, String::as_str) == wanted;
        let lists = |name: &str, wanted: &[&str]| {
            tags.get(name).is_none_or(|list| list.split(':').any(|entry| wanted.contains(&entry.trim())))
        };
        let flags = tags.get("t").map_or("", String::as_str);
        let has_flag = |flag: &str| flags.split(':').any(|entry| entry.trim() == flag);
        let kind = match algorithm {
            DkimAlgorithm::RsaSha256 => "rsa",
            DkimAlgorithm::Ed25519Sha256 => "ed25519",
        };
        let begins_with_version = record.trim_start().split('=').next().is_some_and(|name| name.trim() == "v");
        let is_usable = is("v", "DKIM1", "DKIM1")
            && (begins_with_version || !tags.contains_key("v"))
            && is("k", "rsa", kind)
            && lists("h", &["sha256"])
            && lists("s", &["*", "email"]);
        let bytes = STANDARD.decode(without_space(tags.get("p").filter(|_| is_usable)?)).ok()?;
        let is_key = !bytes.is_empty() && bytes.len() <= RSA_KEY_BYTES_MAX;
        is_key.then(|| Self { bytes, is_for_domain_only: has_flag("s"), is_testing: has_flag("y") })
    }
}

/// The hash of the body in each form, computed once.
struct BodyHashes<'m> {
    body: &'m [u8],
    simple: Option<Vec<u8>>,
    relaxed: Option<Vec<u8>>,
}

impl BodyHashes<'_> {
    fn of(&mut self, form: Form) -> &[u8] {
        match form {
            Form::Simple => self.simple.get_or_insert_with(|| simple_body_hash(self.body)),
            Form::Relaxed => self.relaxed.get_or_insert_with(|| relaxed::body_hash(self.body)),
        }
    }
}

fn read_signature(
    field: &Field<'_>,
    fields: &[Field<'_>],
    from: &DomainName,
    now: Timestamp,
    body_hashes: &mut BodyHashes<'_>,
) -> Option<UnverifiedSignature> {
    let value = std::str::from_utf8(field.value?).ok()?;
    let tags = tags(value)?;
    let tag = |name: &str| tags.get(name).map(String::as_str);
    let is_current = tag("x").is_none_or(|expiry| expiry.parse::<u64>().is_ok_and(|expiry| expiry > now.as_secs()));
    let is_by_dns = tag("q").is_none_or(|methods| methods.split(':').any(|method| method.trim() == "dns/txt"));
    if tag("v")? != "1" || tag("l").is_some() || !is_current || !is_by_dns {
        return None;
    }
    let signer: DomainName = tag("d")?.parse().ok()?;
    if !signer.is_aligned_with(from) {
        return None;
    }
    let has_subdomain_identity = match tag("i") {
        None => false,
        Some(identity) => {
            let identity: DomainName = identity.rsplit_once('@')?.1.parse().ok()?;
            if !identity.is_same_or_below(&signer) {
                return None;
            }
            identity != signer
        }
    };
    let (header_form, body_form) = forms(tag("c"))?;
    if STANDARD.decode(without_space(tag("bh")?)).ok()? != body_hashes.of(body_form) {
        return None;
    }
    let signed = signed_fields(field, fields, tag("h")?, header_form)?;
    Some(UnverifiedSignature {
        key_name: key_name(tag("s")?, &signer)?,
        signer,
        algorithm: algorithm(tag("a")?)?,
        signed,
        signature: STANDARD.decode(without_space(tag("b")?)).ok()?,
        has_subdomain_identity,
    })
}

fn algorithm(name: &str) -> Option<DkimAlgorithm> {
    match name {
        "rsa-sha256" => Some(DkimAlgorithm::RsaSha256),
        "ed25519-sha256" => Some(DkimAlgorithm::Ed25519Sha256),
        _ => None,
    }
}

/// Returns the canonicalizations of header and body in a `c=` tag; the default is simple.
fn forms(tag: Option<&str>) -> Option<(Form, Form)> {
    let form = |name: &str| match name {
        "simple" => Some(Form::Simple),
        "relaxed" => Some(Form::Relaxed),
        _ => None,
    };
    let (header, body) = tag.unwrap_or("simple").split_once('/').unwrap_or((tag.unwrap_or("simple"), "simple"));
    Some((form(header)?, form(body)?))
}

fn key_name(selector: &str, signer: &DomainName) -> Option<String> {
    let is_label = |label: &str| {
        let is_part = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_');
        (1..=63).contains(&label.len()) && label.bytes().all(is_part)
    };
    let name = format!("{selector}._domainkey.{signer}");
    (selector.split('.').all(is_label) && name.len() <= 253).then_some(name)
}

/// Returns the bytes that the signature covers: the fields of `h=`, which must include From, then the signature's own
/// field with an empty `b=` and without its line end (RFC 6376 3.7).
fn signed_fields(own: &Field<'_>, fields: &[Field<'_>], names: &str, form: Form) -> Option<Vec<u8>> {
    let mut by_name: HashMap<String, Vec<&Field<'_>>> = HashMap::new();
    for field in fields {
        let name = String::from_utf8_lossy(field.name).trim_end().to_ascii_lowercase();
        by_name.entry(name).or_default().push(field);
    }
    let names: Vec<_> = names.split(':').map(|name| name.trim().to_ascii_lowercase()).collect();
    if !names.iter().any(|name| name == "from") {
        return None;
    }
    let mut out = Vec::with_capacity(2048);
    for name in names {
        // Repeated fields are taken from the last one up (RFC 6376 5.4.2). A further name signs the absence of the
        // field.
        let Some(field) = by_name.get_mut(&name).and_then(Vec::pop) else { continue };
        match form {
            Form::Simple => out.extend_from_slice(field.whole),
            Form::Relaxed => {
                relaxed::field(&mut out, field.name, field.value?);
                out.extend_from_slice(b"\r\n");
            }
        }
    }
    let value = without_signature(field_text(own)?);
    match form {
        Form::Simple => {
            out.extend_from_slice(own.name);
            out.push(b':');
            out.extend_from_slice(value.strip_suffix("\r\n").unwrap_or(&value).as_bytes());
        }
        Form::Relaxed => relaxed::field(&mut out, own.name, value.as_bytes()),
    }
    Some(out)
}

fn field_text<'m>(field: &Field<'m>) -> Option<&'m str> {
    std::str::from_utf8(field.value?).ok()
}

/// Returns the value of a DKIM-Signature field with an empty `b=`.
fn without_signature(value: &str) -> String {
    let emptied = value.split(';').map(|tag| match tag.split_once('=') {
        Some((name, _)) if name.trim() == "b" => &tag[..=name.len()],
        Some(_) | None => tag,
    });
    emptied.collect::<Vec<_>>().join(";")
}

/// Parses a tag list (RFC 6376 3.2). `None` if a tag is malformed or repeated.
fn tags(list: &str) -> Option<HashMap<String, String>> {
    let mut tags = HashMap::new();
    for tag in list.split(';').filter(|tag| !tag.trim().is_empty()) {
        let (name, value) = tag.split_once('=')?;
        if tags.insert(name.trim().to_owned(), value.trim().to_owned()).is_some() {
            return None;
        }
    }
    Some(tags)
}

fn without_space(text: &str) -> String {
    text.chars().filter(|c| !c.is_ascii_whitespace()).collect()
}

/// Returns the domain of the one mailbox in the one From field.
fn from_domain(fields: &[Field<'_>]) -> Option<DomainName> {
    let mut all = fields.iter().filter(|field| field.is("From"));
    let (Some(from), None) = (all.next(), all.next()) else { return None };
    let list = mailbox::list(&from.unfolded())?;
    let [mailbox] = list.as_slice() else { return None };
    Some(mailbox.address.domain().clone())
}

/// Returns the SHA-256 of the body in its simple form: one line end after the last line that is not empty (RFC 6376
/// 3.4.3).
fn simple_body_hash(body: &[u8]) -> Vec<u8> {
    let mut end = body;
    while let Some(shorter) = end.strip_suffix(b"\r\n") {
        end = shorter;
    }
    let mut context = aws_lc_rs::digest::Context::new(&SHA256);
    context.update(end);
    context.update(b"\r\n");
    context.finish().as_ref().to_vec()
}

/// Returns whether there is a lone CR or LF: programs disagree about where the header section of such a message ends.
fn has_lone_line_end(message: &[u8]) -> bool {
    memchr::memchr2_iter(b'\r', b'\n', message).any(|place| match message[place] {
        b'\r' => message.get(place + 1) != Some(&b'\n'),
        _ => place == 0 || message[place - 1] != b'\r',
    })
}
