//! DKIM key pairs: their generation, and the TXT record that publishes a key (RFC 6376 3.6.1, RFC 8463 4).

use aws_lc_rs::encoding::{AsDer, PublicKeyX509Der};
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair, RsaKeyPair};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::base::entropy::{self, Entropy};
use crate::base::secret::Secret;
use crate::domain::sending_domain::DkimAlgorithm;

/// A new key pair.
#[derive(Clone, Debug)]
pub struct GeneratedKey {
    /// The private key in PKCS#8, to be encrypted by the caller.
    pub pkcs8: Secret,
    /// The value of the TXT record at `<selector>._domainkey.<domain>`.
    pub record: String,
}

/// Error: the cryptographic library could not generate a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a DKIM key could not be generated")]
pub struct GenerationFailed;

/// Generates a key pair. An Ed25519 key is derived from `entropy`. An RSA key uses the library's own randomness, since
/// the library accepts no other, so a replay must take it as an input. RSA takes some 100 ms: not for a hot path.
///
/// # Errors
/// [`GenerationFailed`] if the cryptographic library fails.
pub fn generate(algorithm: DkimAlgorithm, entropy: &dyn Entropy) -> Result<GeneratedKey, GenerationFailed> {
    match algorithm {
        DkimAlgorithm::RsaSha256 => generate_rsa(),
        DkimAlgorithm::Ed25519Sha256 => generate_ed25519(entropy),
    }
}

fn generate_rsa() -> Result<GeneratedKey, GenerationFailed> {
    let pair = RsaKeyPair::generate(KeySize::Rsa2048).map_err(|_| GenerationFailed)?;
    let private: aws_lc_rs::encoding::Pkcs8V1Der<'static> = pair.as_der().map_err(|_| GenerationFailed)?;
    let public: PublicKeyX509Der<'static> = pair.public_key().as_der().map_err(|_| GenerationFailed)?;
    Ok(GeneratedKey { pkcs8: Secret::new(private.as_ref()), record: record("rsa", public.as_ref()) })
}

fn generate_ed25519(entropy: &dyn Entropy) -> Result<GeneratedKey, GenerationFailed> {
    let seed = entropy::bytes::<32>(entropy);
    let pair = Ed25519KeyPair::from_seed_unchecked(&seed).map_err(|_| GenerationFailed)?;
    let private = pair.to_pkcs8().map_err(|_| GenerationFailed)?;
    // RFC 8463 4: the bare 32 bytes, not the SubjectPublicKeyInfo around them.
    Ok(GeneratedKey { pkcs8: Secret::new(private.as_ref()), record: record("ed25519", pair.public_key().as_ref()) })
}

fn record(kind: &str, public: &[u8]) -> String {
    format!("v=DKIM1; k={kind}; p={}", STANDARD.encode(public))
}
