//! A receiver in Rust verifies a webhook. The code below this line is printed in docs/webhooks.md.

use std::time::{SystemTime, UNIX_EPOCH};

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

pub fn verify(secret: &str, header: &str, body: &[u8]) -> bool {
    let field = |name| header.split(',').find_map(|part| part.strip_prefix(name));
    let (Some(t), Some(v1)) = (field("t="), field("v1=")) else { return false };
    let (Ok(sent), Ok(v1)) = (t.parse::<u64>(), hex::decode(v1)) else { return false };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let Ok(mac) = Hmac::<Sha256>::new_from_slice(secret.as_bytes()) else { return false };
    let mac = mac.chain_update(t).chain_update(".").chain_update(body);
    now.abs_diff(sent) <= 300 && mac.verify_slice(&v1).is_ok()
}
