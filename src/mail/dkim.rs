//! DKIM signatures (RFC 6376, RFC 8463): relaxed/relaxed, RSA-SHA256 and Ed25519-SHA256, with aws-lc-rs.
//!
//! A key is parsed once and reused. Fields that name sender, recipient or content are signed once more than they occur.
//! A field added in transit then breaks the signature instead of being shown.

use std::fmt;

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{Ed25519KeyPair, RSA_PKCS1_SHA256, RsaKeyPair};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::relaxed;
use super::section::{self, Field};
use crate::base::time::Timestamp;
use crate::domain::hostname::DomainName;
use crate::domain::sending_domain::DkimAlgorithm;

/// Fields that are signed as often as they occur, and once more (RFC 6376 8.15).
const OVERSIGNED: [&str; 11] = [
    "from",
    "to",
    "cc",
    "reply-to",
    "subject",
    "date",
    "message-id",
    "mime-version",
    "content-type",
    "list-unsubscribe",
    "list-unsubscribe-post",
];
/// Fields that are signed as often as they occur. All other List-* fields are signed too.
const SIGNED: [&str; 10] = [
    "sender",
    "in-reply-to",
    "references",
    "content-transfer-encoding",
    "feedback-id",
    "cfbl-address",
    "cfbl-feedback-id",
    "tls-report-domain",
    "tls-report-submitter",
    "tls-required",
];
/// Maximum number of other List-* names that are signed. A message has half a dozen (RFC 2369), a hostile one
/// thousands.
const LIST_NAMES_COUNT: usize = 16;
/// Number of base64 bytes per line of `b=`.
const SIGNATURE_LINE_BYTES: usize = 72;
/// Column after which `h=` is folded.
const FOLD_BYTES: usize = 70;

/// The private key of one selector, ready to sign.
pub struct SigningKey {
    domain: DomainName,
    selector: String,
    pair: DkimKeyPair,
}

enum DkimKeyPair {
    Rsa(Box<RsaKeyPair>),
    Ed25519(Box<Ed25519KeyPair>),
}

/// Error: the bytes are not a PKCS#8 key of the algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the stored DKIM key of {algorithm} cannot be read")]
pub struct UnreadableKey {
    /// The expected algorithm.
    pub algorithm: DkimAlgorithm,
}

/// Error: the cryptographic library could not sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a DKIM signature could not be made")]
pub struct SigningFailed;

impl SigningKey {
    /// Parses a key from [`generate`](super::dkim_key::generate).
    ///
    /// # Errors
    /// [`UnreadableKey`] if the bytes are not such a key.
    pub fn from_pkcs8(
        domain: DomainName,
        selector: impl Into<String>,
        algorithm: DkimAlgorithm,
        pkcs8: &[u8],
    ) -> Result<Self, UnreadableKey> {
        let pair = match algorithm {
            DkimAlgorithm::RsaSha256 => RsaKeyPair::from_pkcs8(pkcs8).map(|pair| DkimKeyPair::Rsa(Box::new(pair))),
            DkimAlgorithm::Ed25519Sha256 => {
                Ed25519KeyPair::from_pkcs8(pkcs8).map(|pair| DkimKeyPair::Ed25519(Box::new(pair)))
            }
        };
        let pair = pair.map_err(|_| UnreadableKey { algorithm })?;
        Ok(Self { domain, selector: selector.into(), pair })
    }

    /// Returns the algorithm of the key.
    pub const fn algorithm(&self) -> DkimAlgorithm {
        match self.pair {
            DkimKeyPair::Rsa(_) => DkimAlgorithm::RsaSha256,
            DkimKeyPair::Ed25519(_) => DkimAlgorithm::Ed25519Sha256,
        }
    }

    fn sign(&self, data: &[u8]) -> Result<Vec<u8>, SigningFailed> {
        match &self.pair {
            DkimKeyPair::Rsa(pair) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), data, &mut signature).map_err(|_| SigningFailed)?;
                Ok(signature)
            }
            // RFC 8463 3: Ed25519 signs the SHA-256 of the data, not the data.
            DkimKeyPair::Ed25519(pair) => {
                let signature = pair.try_sign(digest(&SHA256, data).as_ref()).map_err(|_| SigningFailed)?;
                Ok(signature.as_ref().to_vec())
            }
        }
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey({} {}._domainkey.{})", self.algorithm(), self.selector, self.domain)
    }
}

/// Signs `message`, which has only CRLF line ends, with each of `keys`. Returns the DKIM-Signature fields to prepend,
/// in the order of the keys. The body is hashed once.
///
/// # Errors
/// [`SigningFailed`] if the cryptographic library fails.
pub fn sign(keys: &[&SigningKey], message: &[u8], at: Timestamp) -> Result<Vec<u8>, SigningFailed> {
    let (fields, body) = section::split(message);
    sign_fields(keys, &fields, &BodyHash::of(body), at)
}

/// Signs a message with the header section `head` and the hash of its body, for messages that share one body.
///
/// # Errors
/// [`SigningFailed`] if the cryptographic library fails.
pub fn sign_head(keys: &[&SigningKey], head: &[u8], body: &BodyHash, at: Timestamp) -> Result<Vec<u8>, SigningFailed> {
    sign_fields(keys, &section::split(head).0, body, at)
}

/// The hash of a body, encoded for the signature.
#[derive(Clone, Debug)]
pub struct BodyHash(String);

impl BodyHash {
    /// Hashes a body that has only CRLF line ends.
    pub fn of(body: &[u8]) -> Self {
        Self(STANDARD.encode(relaxed::body_hash(body)))
    }
}

fn sign_fields(
    keys: &[&SigningKey],
    fields: &[Field<'_>],
    BodyHash(body_hash): &BodyHash,
    at: Timestamp,
) -> Result<Vec<u8>, SigningFailed> {
    let selection = Selection::of(fields);
    let mut out = Vec::with_capacity(1024 * keys.len());
    for key in keys {
        let unsigned = unsigned_field(key, &selection.names, body_hash, at);
        let mut data = selection.canonical.clone();
        let value = unsigned.strip_prefix("DKIM-Signature:").unwrap_or(&unsigned);
        // The field itself comes last, with an empty `b=` and without its line end (RFC 6376 3.7).
        relaxed::field(&mut data, b"dkim-signature", value.as_bytes());
        let signature = STANDARD.encode(key.sign(&data)?);
        out.extend_from_slice(unsigned.as_bytes());
        for (place, piece) in signature.as_bytes().chunks(SIGNATURE_LINE_BYTES).enumerate() {
            if place > 0 {
                out.extend_from_slice(b"\r\n ");
            }
            out.extend_from_slice(piece);
        }
        out.extend_from_slice(b"\r\n");
    }
    Ok(out)
}

/// Selection of header fields to sign.
struct Selection {
    /// The names for `h=`, in order, each as often as it is signed.
    names: Vec<String>,
    /// The relaxed fields in the order of the names, each with its line end.
    canonical: Vec<u8>,
}

impl Selection {
    fn of(fields: &[Field<'_>]) -> Self {
        let mut selection = Self { names: Vec::new(), canonical: Vec::with_capacity(1024) };
        for name in OVERSIGNED {
            selection.take(name, fields);
            selection.names.push(name.to_owned());
        }
        for name in SIGNED {
            selection.take(name, fields);
        }
        for name in other_list_names(fields) {
            selection.take(&name, fields);
            selection.names.push(name);
        }
        selection
    }

    /// Adds a field name. Repeated fields are taken from the last one up, as verifiers do (RFC 6376 5.4.2).
    fn take(&mut self, name: &str, fields: &[Field<'_>]) {
        for field in fields.iter().rev().filter(|field| field.is(name)) {
            relaxed::field(&mut self.canonical, field.name, field.value.unwrap_or_default());
            self.canonical.extend_from_slice(b"\r\n");
            self.names.push(name.to_owned());
        }
    }
}

/// Returns the first List-* names besides those always signed, without duplicates. A name that is not a token can't
/// appear in `h=`.
fn other_list_names(fields: &[Field<'_>]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for field in fields {
        if names.len() == LIST_NAMES_COUNT {
            break;
        }
        let name = String::from_utf8_lossy(field.name).to_ascii_lowercase();
        let token = name.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-');
        let new = !OVERSIGNED.contains(&name.as_str()) && !names.contains(&name);
        if name.starts_with("list-") && token && new {
            names.push(name);
        }
    }
    names
}

/// Returns the field up to and including `b=`, without its value.
fn unsigned_field(key: &SigningKey, names: &[String], body_hash: &str, at: Timestamp) -> String {
    let mut text = format!(
        "DKIM-Signature: v=1; a={}; c=relaxed/relaxed;\r\n d={}; s={};\r\n t={};\r\n h=",
        key.algorithm(),
        key.domain,
        key.selector,
        at.as_secs()
    );
    let mut column = " h=".len();
    for (place, name) in names.iter().enumerate() {
        if place > 0 {
            text.push(':');
        }
        if place > 0 && column + name.len() > FOLD_BYTES {
            text.push_str("\r\n ");
            column = 1;
        }
        text.push_str(name);
        column += name.len() + 1;
    }
    text.push_str(";\r\n bh=");
    text.push_str(body_hash);
    text.push_str(";\r\n b=");
    text
}
