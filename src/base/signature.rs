//! Signatures over webhook bodies (contract 5): Postrider's own and the Standard Webhooks one, and the verification of
//! its own by receivers.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use subtle::ConstantTimeEq as _;

use super::secret::Secret;
use super::time::Timestamp;

/// Prefix of a webhook secret: `whsec_`, then base64 of 32 random bytes.
pub const SECRET_PREFIX: &str = "whsec_";

/// Maximum age of an accepted signature, by its `t` (contract 5).
pub const TOLERANCE: Duration = Duration::from_secs(300);

/// Reason for rejecting a webhook.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WebhookRejection {
    /// The header is not `t=<digits>,v1=<64 lower-case hex>`.
    #[error("X-Service-Signature is not t=<digits>,v1=<64 lower-case hex>")]
    Malformed,
    /// The signature was made with another secret or for another body.
    #[error("the signature does not match the body and the secret")]
    Forged,
    /// The `t` of the header is more than 300 s ago.
    #[error("the signature is more than 300 s old")]
    Stale,
}

/// Returns the webhook secret for 32 random bytes.
pub fn webhook_secret(random: &[u8; 32]) -> Secret {
    Secret::new(format!("{SECRET_PREFIX}{}", STANDARD.encode(random)))
}

/// Returns the value of `X-Service-Signature`: `t=<digits>,v1=<64 lower-case hex>`. The HMAC key is the bytes of the
/// whole secret string, including its prefix; the signed text is `<t>.<raw body>`.
pub fn service_signature(secret: &Secret, at: Timestamp, body: &[u8]) -> String {
    let t = at.as_secs();
    let digest = hmac_sha256(secret.expose(), &[t.to_string().as_bytes(), b".", body]);
    format!("t={t},v1={}", hex::encode(digest))
}

/// Verifies a header made by [`service_signature`], as a receiver must. The comparison takes constant time and the age
/// is checked last. The answer therefore does not show an attacker without the secret which of the two was wrong.
///
/// # Errors
/// The reason for the rejection.
pub fn verify_service_signature(
    secret: &Secret,
    header: &str,
    body: &[u8],
    now: Timestamp,
) -> Result<(), WebhookRejection> {
    let (t, v1) =
        header.strip_prefix("t=").and_then(|rest| rest.split_once(",v1=")).ok_or(WebhookRejection::Malformed)?;
    let is_decimal = !t.is_empty() && t.len() <= 12 && t.bytes().all(|digit| digit.is_ascii_digit());
    let seconds: u64 = t.parse().ok().filter(|_| is_decimal).ok_or(WebhookRejection::Malformed)?;
    let is_hex = v1.len() == 64 && v1.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    if !is_hex {
        return Err(WebhookRejection::Malformed);
    }
    let expected = hex::encode(hmac_sha256(secret.expose(), &[t.as_bytes(), b".", body]));
    if !bool::from(expected.as_bytes().ct_eq(v1.as_bytes())) {
        return Err(WebhookRejection::Forged);
    }
    let is_stale = now.as_secs().saturating_sub(seconds) > TOLERANCE.as_secs();
    if is_stale { Err(WebhookRejection::Stale) } else { Ok(()) }
}

/// Returns the value of `webhook-signature` (Standard Webhooks): `v1,<base64>`, keyed by the decoded secret, over
/// `<id>.<t>.<raw body>`.
pub fn standard_signature(secret: &Secret, id: &str, at: Timestamp, body: &[u8]) -> String {
    let text = secret.expose_text();
    let key = STANDARD.decode(text.strip_prefix(SECRET_PREFIX).unwrap_or(text)).unwrap_or_default();
    let t = at.as_secs().to_string();
    let digest = hmac_sha256(&key, &[id.as_bytes(), b".", t.as_bytes(), b".", body]);
    format!("v1,{}", STANDARD.encode(digest))
}

/// Returns the HMAC-SHA256 of the concatenated `parts` under `key`.
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
    #[test]
    fn a_signature_is_valid_for_300_seconds_and_only_for_its_body_and_secret() {
        let secret = Secret::new("whsec_q83vASNFZ4mrze8BI0VniavN7wEjRWeJq83vASNFZ4k=");
        let at = |seconds: u64| Timestamp::from_millis(seconds * 1000 + 999);
        let header = service_signature(&secret, at(1_700_000_000), b"{}");
        let judge =
            |secret: &Secret, header: &str, body: &[u8], now| verify_service_signature(secret, header, body, now);
        for now in [1_700_000_000, 1_700_000_300, 1_600_000_000] {
            assert_eq!(judge(&secret, &header, b"{}", at(now)), Ok(()), "{now}");
        }
        assert_eq!(judge(&secret, &header, b"{}", at(1_700_000_301)), Err(WebhookRejection::Stale));
        assert_eq!(judge(&secret, &header, b"{ }", at(1_700_000_000)), Err(WebhookRejection::Forged));
        assert_eq!(judge(&Secret::new("whsec_"), &header, b"{}", at(1_700_000_000)), Err(WebhookRejection::Forged));
        let digest = "a".repeat(64);
        for malformed in [
            String::new(),
            "t=1".to_owned(),
            format!("t=,v1={digest}"),
            format!("t=+1,v1={digest}"),
            format!("t=9999999999999,v1={digest}"),
            format!("v1={digest},t=1"),
            format!("t=1, v1={digest}"),
            format!("t=1,v1={}", digest.to_uppercase()),
            format!("t=1,v1={digest}a"),
            header.replace("t=1", "t=01").replace("v1=", "v0="),
        ] {
            assert_eq!(judge(&secret, &malformed, b"{}", at(1)), Err(WebhookRejection::Malformed), "{malformed}");
        }
    }
}
