//! Signatures over webhook bodies (spec 6.2, contract 5): ours and the Standard Webhooks one beside it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::secret::Secret;
use super::time::Timestamp;

/// How a webhook secret begins: `whsec_` and base64 of 32 random bytes.
pub const SECRET_PREFIX: &str = "whsec_";

/// The webhook secret that these 32 random bytes make.
pub fn webhook_secret(random: &[u8; 32]) -> Secret {
    Secret::new(format!("{SECRET_PREFIX}{}", STANDARD.encode(random)))
}

/// The value of `X-Service-Signature`: `t=<digits>,v1=<64 lower-case hex>`. The key of the HMAC is the bytes of
/// the whole secret string, prefix and all; what is signed is `<t>.<raw body>`.
pub fn service_signature(secret: &Secret, at: Timestamp, body: &[u8]) -> String {
    let t = at.as_secs();
    let digest = hmac_sha256(secret.expose(), &[t.to_string().as_bytes(), b".", body]);
    format!("t={t},v1={}", hex::encode(digest))
}

/// The value of `webhook-signature` (Standard Webhooks): `v1,<base64>`, keyed by the decoded secret,
/// over `<id>.<t>.<raw body>`.
pub fn standard_signature(secret: &Secret, id: &str, at: Timestamp, body: &[u8]) -> String {
    let text = secret.expose_text();
    let key = STANDARD.decode(text.strip_prefix(SECRET_PREFIX).unwrap_or(text)).unwrap_or_default();
    let t = at.as_secs().to_string();
    let digest = hmac_sha256(&key, &[id.as_bytes(), b".", t.as_bytes(), b".", body]);
    format!("v1,{}", STANDARD.encode(digest))
}

/// HMAC-SHA256 of the concatenated `parts` under `key`.
pub fn hmac_sha256(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(key)
        .unwrap_or_else(|_| unreachable!("HMAC takes keys of any length"));
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_signatures_match_the_contracts_known_answer() {
        let secret = Secret::new("whsec_q83vASNFZ4mrze8BI0VniavN7wEjRWeJq83vASNFZ4k=");
        let at = Timestamp::from_millis(1_700_000_000_999);
        let body = br#"{"id":"evt_1","type":"delivered"}"#;
        assert_eq!(
            service_signature(&secret, at, body),
            "t=1700000000,v1=0bd7d1936c1feda6866144e916fd796d06dedf89dec93ff5597b00bd4656bad3"
        );
        assert_eq!(standard_signature(&secret, "evt_1", at, body), "v1,IJlv8gazXzAfb0TRP4H4vPEiQGsm3VsVSJIjO0K7SEI=");
    }
}
