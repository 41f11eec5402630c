//! Secrets that never reach a log, and the master key, which seals secrets that must be readable later.
//!
//! API keys are only hashed. Webhook secrets, DKIM private keys and content keys are needed in clear, so they are
//! stored sealed with AES-256-GCM under the master key. `context` names the sealed object, so that one sealed row can't
//! replace another.

use std::fmt;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::entropy::{self, Entropy};
use super::signature::hmac_sha256;

/// Bytes that are wiped on drop and never printed by a formatter.
#[derive(Clone)]
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    /// Wraps `bytes`.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self(Zeroizing::new(bytes.into()))
    }

    /// Returns the bytes, for the one place that needs them.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }

    /// Returns the secret as text, if it is text.
    pub fn expose_text(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Output of [`MasterKey::seal`]: nonce, ciphertext and tag. Safe to store; useless without the master key.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealedSecret(#[serde(with = "whole")] pub Vec<u8>);

/// Serialises bytes as a whole: serde handles a plain vector byte by byte, and DKIM keys are read for every message.
mod whole {
    use std::fmt;

    use serde::de::{Error, Visitor};
    use serde::{Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(bytes)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        from.deserialize_byte_buf(BytesVisitor)
    }

    struct BytesVisitor;

    impl Visitor<'_> for BytesVisitor {
        type Value = Vec<u8>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("bytes")
        }

        fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Vec<u8>, E> {
            Ok(bytes.to_vec())
        }
    }
}

impl fmt::Debug for SealedSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sealed({} bytes)", self.0.len())
    }
}

/// Error: this key and context do not open the sealed value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a sealed value does not open: it is damaged, or it was sealed with another master key")]
pub struct UnsealError;

/// A 256-bit AES-GCM key: the master key of a data directory, or the key of one content segment.
pub struct MasterKey {
    sealing: LessSafeKey,
    derivation: Secret,
}

impl MasterKey {
    /// Length of the raw key in bytes.
    pub const LENGTH: usize = 32;

    /// Creates the key from its bytes.
    pub fn new(bytes: &[u8; Self::LENGTH]) -> Self {
        let key = UnboundKey::new(&AES_256_GCM, bytes).unwrap_or_else(|_| unreachable!("32 bytes are an AES-256 key"));
        let derivation = Secret::new(hmac_sha256(bytes, &[b"postrider derivation key 1"]));
        Self { sealing: LessSafeKey::new(key), derivation }
    }

    /// Derives a key of 32 bytes for `purpose`. It is always the same for the same master key, so it need not be
    /// stored.
    pub fn derive(&self, purpose: &[u8]) -> Secret {
        Secret::new(hmac_sha256(self.derivation.expose(), &[purpose]))
    }

    /// Encrypts `clear` for the object named by `context`, with a new nonce from `entropy`.
    pub fn seal(&self, context: &[u8], clear: &[u8], entropy: &dyn Entropy) -> SealedSecret {
        let nonce = entropy::bytes::<NONCE_LEN>(entropy);
        let mut body = clear.to_vec();
        self.sealing
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(context), &mut body)
            .unwrap_or_else(|_| unreachable!("AES-GCM seals any input that fits in memory"));
        let mut sealed = nonce.to_vec();
        sealed.append(&mut body);
        SealedSecret(sealed)
    }

    /// Decrypts a value sealed by [`Self::seal`] for the same `context`.
    ///
    /// # Errors
    /// [`UnsealError`] if the bytes were changed, moved, or sealed under another key.
    pub fn open(&self, context: &[u8], sealed: &[u8]) -> Result<Secret, UnsealError> {
        let (nonce, body) = sealed.split_at_checked(NONCE_LEN).ok_or(UnsealError)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| UnsealError)?;
        let mut body = body.to_vec();
        let length = self.sealing.open_in_place(nonce, Aad::from(context), &mut body).map_err(|_| UnsealError)?.len();
        body.truncate(length);
        Ok(Secret::new(body))
    }
}

impl fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MasterKey(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::super::entropy::SeededEntropy;
    use super::*;

    #[test]
    fn a_sealed_value_opens_only_with_its_key_and_context() {
        let entropy = SeededEntropy::new(1);
        let key = MasterKey::new(&[7; 32]);
        let sealed = key.seal(b"webhook whk_1", b"whsec_abc", &entropy);
        assert_eq!(key.open(b"webhook whk_1", &sealed.0).unwrap().expose(), b"whsec_abc");
        assert!(key.open(b"webhook whk_2", &sealed.0).is_err());
        assert!(MasterKey::new(&[8; 32]).open(b"webhook whk_1", &sealed.0).is_err());
        assert!(key.open(b"webhook whk_1", &sealed.0[..5]).is_err());
        assert!(!format!("{:?} {sealed:?}", Secret::new(*b"whsec_abc")).contains("whsec"));
    }
}
