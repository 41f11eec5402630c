//! Signatures of JSON Web Signatures (RFC 7515) by RS256, PS256 and ES256 (RFC 7518 3). `none` and algorithms with
//! shared keys are not supported.

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, RSA_PKCS1_2048_8192_SHA256, RSA_PSS_2048_8192_SHA256, RsaParameters,
    RsaPublicKeyComponents, UnparsedPublicKey,
};

/// Number of bytes of a coordinate on the curve P-256.
const P256_BYTES: usize = 32;

/// The algorithm of a signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JwsAlgorithm {
    /// RSASSA-PKCS1-v1_5 with SHA-256.
    Rs256,
    /// RSASSA-PSS with SHA-256.
    Ps256,
    /// ECDSA on P-256 with SHA-256.
    Es256,
}

impl JwsAlgorithm {
    /// Returns the algorithm of this name; `None` for every other name. Some of the others are dangerous.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "RS256" => Some(Self::Rs256),
            "PS256" => Some(Self::Ps256),
            "ES256" => Some(Self::Es256),
            _ => None,
        }
    }
}

/// A public key. Each kind verifies only its own algorithms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JwsKey {
    /// An RSA key of 2,048 to 8,192 bits: modulus and exponent, big-endian.
    Rsa {
        /// The modulus.
        n: Vec<u8>,
        /// The exponent.
        e: Vec<u8>,
    },
    /// A point on P-256: its coordinates.
    P256 {
        /// The first coordinate.
        x: Vec<u8>,
        /// The second coordinate.
        y: Vec<u8>,
    },
}

impl JwsKey {
    /// Returns whether a signature by `algorithm` may be verified with this key.
    pub const fn fits(&self, algorithm: JwsAlgorithm) -> bool {
        match self {
            Self::Rsa { .. } => matches!(algorithm, JwsAlgorithm::Rs256 | JwsAlgorithm::Ps256),
            Self::P256 { .. } => matches!(algorithm, JwsAlgorithm::Es256),
        }
    }

    /// Returns whether `signature` of `message` was made with the key.
    pub fn verifies(&self, algorithm: JwsAlgorithm, message: &[u8], signature: &[u8]) -> bool {
        match (self, algorithm) {
            (Self::Rsa { n, e }, JwsAlgorithm::Rs256) => rsa(n, e, &RSA_PKCS1_2048_8192_SHA256, message, signature),
            (Self::Rsa { n, e }, JwsAlgorithm::Ps256) => rsa(n, e, &RSA_PSS_2048_8192_SHA256, message, signature),
            (Self::P256 { x, y }, JwsAlgorithm::Es256) if x.len() == P256_BYTES && y.len() == P256_BYTES => {
                let point = [&[0x04], x.as_slice(), y].concat();
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(message, signature).is_ok()
            }
            (Self::Rsa { .. } | Self::P256 { .. }, _) => false,
        }
    }
}

fn rsa(n: &[u8], e: &[u8], parameters: &RsaParameters, message: &[u8], signature: &[u8]) -> bool {
    // Some providers add a leading zero, as for signed integers.
    let [n, e] = [n, e].map(|number| &number[number.iter().take_while(|byte| **byte == 0).count()..]);
    RsaPublicKeyComponents { n, e }.verify(parameters, message, signature).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use aws_lc_rs::rand::SystemRandom;
    use aws_lc_rs::signature::{
        ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, RSA_PKCS1_SHA256, RSA_PSS_SHA256, RsaKeyPair,
    };

    #[test]
    fn each_key_verifies_its_own_algorithms_and_signatures() {
        let random = SystemRandom::new();
        let pair = RsaKeyPair::generate(aws_lc_rs::rsa::KeySize::Rsa2048).unwrap();
        let public = pair.public_key();
        let (n, e) = (public.modulus(), public.exponent());
        let key = JwsKey::Rsa {
            n: [&[0], n.big_endian_without_leading_zero()].concat(),
            e: e.big_endian_without_leading_zero().to_vec(),
        };
        let mut signature = vec![0; pair.public_modulus_len()];
        pair.sign(&RSA_PKCS1_SHA256, &random, b"text", &mut signature).unwrap();
        assert!(key.verifies(JwsAlgorithm::Rs256, b"text", &signature));
        assert!(!key.verifies(JwsAlgorithm::Rs256, b"test", &signature));
        assert!(!key.verifies(JwsAlgorithm::Ps256, b"text", &signature));
        pair.sign(&RSA_PSS_SHA256, &random, b"text", &mut signature).unwrap();
        assert!(key.verifies(JwsAlgorithm::Ps256, b"text", &signature));
        assert!(!key.verifies(JwsAlgorithm::Es256, b"text", &signature) && !key.fits(JwsAlgorithm::Es256));

        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap();
        let point = pair.public_key().as_ref();
        let key = JwsKey::P256 { x: point[1..33].to_vec(), y: point[33..].to_vec() };
        let signature = pair.sign(&random, b"text").unwrap();
        assert!(key.verifies(JwsAlgorithm::Es256, b"text", signature.as_ref()));
        assert!(!key.verifies(JwsAlgorithm::Es256, b"test", signature.as_ref()));
        let off = JwsKey::P256 { x: point[1..33].to_vec(), y: vec![7; 32] };
        assert!(!off.verifies(JwsAlgorithm::Es256, b"text", signature.as_ref()), "not a point of the curve");
    }

    #[test]
    fn rejects_dangerous_algorithms() {
        for name in ["none", "None", "HS256", "HS512", "RS1", "rs256", ""] {
            assert_eq!(JwsAlgorithm::named(name), None, "{name}");
        }
    }
}
