//! The Rust code of `docs/webhooks.md`, executed as printed there.

use std::time::{SystemTime, UNIX_EPOCH};

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::webhook_verify::verify;

const SECRET: &str = "whsec_q83vASNFZ4mrze8BI0VniavN7wEjRWeJq83vASNFZ4k=";
const BODY: &[u8] = br#"{"id":"evt_1","type":"delivered"}"#;

fn header(t: u64) -> String {
    let mac = <Hmac<Sha256> as KeyInit>::new_from_slice(SECRET.as_bytes()).unwrap();
    let mac = mac.chain_update(t.to_string()).chain_update(b".").chain_update(BODY);
    format!("t={t},v1={}", hex::encode(mac.finalize().into_bytes()))
}

#[test]
fn the_documentation_shows_the_tested_code() {
    let (_header, shown) = include_str!("webhook_verify.rs").split_once("\n\n").unwrap();
    let page = include_str!("../../docs/webhooks.md");
    assert!(page.contains(shown), "copy webhook_verify.rs into docs/webhooks.md");
}

#[test]
fn only_a_recent_and_authentic_signature_is_accepted() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let good = header(now);
    assert!(verify(SECRET, &good, BODY));
    assert!(verify(SECRET, &header(now - 290), BODY));
    assert!(!verify(SECRET, &header(now - 310), BODY));
    assert!(!verify(SECRET, &good, b"{}"));
    assert!(!verify("whsec_other", &good, BODY));
    for bad in ["", "t=1", &good.replace("v1=", "v1=0"), &good.replace("v1=", "v0="), &good.replace("t=", "t=x")] {
        assert!(!verify(SECRET, bad, BODY), "{bad}");
    }
}
