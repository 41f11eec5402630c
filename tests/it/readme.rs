//! The Rust of the README, run as it stands there.

use std::time::{SystemTime, UNIX_EPOCH};

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::readme_verify::verify;

const SECRET: &str = "whsec_q83vASNFZ4mrze8BI0VniavN7wEjRWeJq83vASNFZ4k=";
const BODY: &[u8] = br#"{"id":"evt_1","type":"delivered"}"#;

fn header(t: u64) -> String {
    let mac = <Hmac<Sha256> as KeyInit>::new_from_slice(SECRET.as_bytes()).unwrap();
    let mac = mac.chain_update(t.to_string()).chain_update(b".").chain_update(BODY);
    format!("t={t},v1={}", hex::encode(mac.finalize().into_bytes()))
}

#[test]
fn the_readme_shows_what_is_tested_here() {
    let (_header, shown) = include_str!("readme_verify.rs").split_once("\n\n").unwrap();
    let readme = include_str!("../../README.md");
    assert!(readme.contains(shown), "bring README.md and readme_verify.rs together again");
}

#[test]
fn only_a_fresh_and_genuine_signature_is_accepted() {
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
