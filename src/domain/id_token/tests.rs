//! Tests of tokens issued by a provider, and of forged ones.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use serde_json::json;

use super::*;
use crate::base::signature::hmac_sha256;

const NOW: u64 = 1_700_000_000;

struct Provider {
    pair: EcdsaKeyPair,
}

impl Provider {
    fn new() -> Self {
        Self { pair: EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap() }
    }

    fn key(&self, id: &str) -> Value {
        let point = self.pair.public_key().as_ref();
        let [x, y] = [&point[1..33], &point[33..]].map(|part| URL_SAFE_NO_PAD.encode(part));
        json!({ "kty": "EC", "crv": "P-256", "kid": id, "use": "sig", "x": x, "y": y })
    }

    fn keys(&self) -> ProviderKeys {
        let others = [json!({ "kty": "OKP", "crv": "Ed25519", "x": "AA" }), json!({ "kty": "RSA", "use": "enc" })];
        let all = others.into_iter().chain([self.key("k1")]).collect::<Vec<_>>();
        ProviderKeys::read(json!({ "keys": all }).to_string().as_bytes()).unwrap()
    }

    fn signed(&self, header: &Value, claims: &Value) -> String {
        let text = unsigned(header, claims);
        let signature = self.pair.sign(&SystemRandom::new(), text.as_bytes()).unwrap();
        format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

fn unsigned(header: &Value, claims: &Value) -> String {
    [header, claims].map(|part| URL_SAFE_NO_PAD.encode(part.to_string())).join(".")
}

fn header() -> Value {
    json!({ "alg": "ES256", "kid": "k1", "typ": "JWT" })
}

fn claims() -> Value {
    json!({
        "iss": "https://login.example.com", "sub": "ann-7", "aud": "postrider", "exp": NOW + 300, "iat": NOW,
        "nonce": "n-1", "email": "ann@example.com", "email_verified": true,
    })
}

fn expected() -> ExpectedClaims<'static> {
    ExpectedClaims {
        issuer: "https://login.example.com",
        client_id: "postrider",
        nonce: "n-1",
        begun_at: Timestamp::from_millis((NOW - 30) * 1000),
        is_again: false,
        now: Timestamp::from_millis(NOW * 1000),
    }
}

fn with(changes: Value) -> Value {
    let mut claims = claims();
    for (name, value) in changes.as_object().unwrap() {
        match value {
            Value::Null => drop(claims.as_object_mut().unwrap().remove(name)),
            value => claims[name] = value.clone(),
        }
    }
    claims
}

#[test]
fn a_valid_token_identifies_the_person() {
    let provider = Provider::new();
    let verified = |claims: &Value| verify(&provider.signed(&header(), claims), &provider.keys(), &expected());
    let token = verified(&claims()).unwrap();
    let email = Some("ann@example.com".to_owned());
    assert_eq!(token, IdToken { subject: "ann-7".to_owned(), email, email_verified: true, authenticated_at: None });
    for good in [
        json!({ "aud": ["postrider"] }),
        json!({ "aud": ["other", "postrider"], "azp": "postrider" }),
        json!({ "exp": NOW - 30, "iat": NOW - 60 }),
        json!({ "iat": NOW as f64 + 0.5, "email_verified": "true" }),
    ] {
        assert!(verified(&with(good.clone())).unwrap().email_verified, "{good}");
    }
    for unverified in
        [json!({ "email_verified": false }), json!({ "email_verified": null }), json!({"email_verified": 1})]
    {
        assert!(!verified(&with(unverified.clone())).unwrap().email_verified, "{unverified}");
    }
    let late = verified(&with(json!({ "auth_time": NOW - 5000 }))).unwrap();
    assert_eq!(late.authenticated_at, Some(Timestamp::from_millis((NOW - 5000) * 1000)));
}

#[test]
fn rejects_claims_of_another_provider_client_time_or_sign_in() {
    let provider = Provider::new();
    for (changes, error) in [
        (json!({ "iss": "https://login.example.com/" }), InvalidIdToken::Issuer),
        (json!({ "aud": "other" }), InvalidIdToken::Audience),
        (json!({ "aud": ["other", "postrider"] }), InvalidIdToken::Audience),
        (json!({ "azp": "other" }), InvalidIdToken::Audience),
        (json!({ "aud": [] }), InvalidIdToken::Audience),
        (json!({ "exp": NOW - 60 }), InvalidIdToken::Expired),
        (json!({ "iat": NOW - 91 }), InvalidIdToken::IssuedAt),
        (json!({ "iat": NOW + 61 }), InvalidIdToken::IssuedAt),
        (json!({ "nonce": "n-2" }), InvalidIdToken::Nonce),
        (json!({ "nonce": null }), InvalidIdToken::Nonce),
        (json!({ "sub": "" }), InvalidIdToken::Subject),
        (json!({ "sub": "x".repeat(256) }), InvalidIdToken::Subject),
        (json!({ "sub": null }), InvalidIdToken::Malformed),
        (json!({ "exp": "soon" }), InvalidIdToken::Malformed),
        (json!({ "exp": -1 }), InvalidIdToken::Malformed),
    ] {
        let token = provider.signed(&header(), &with(changes.clone()));
        assert_eq!(verify(&token, &provider.keys(), &expected()), Err(error), "{changes}");
    }
}

#[test]
fn a_repeated_authentication_must_be_recent() {
    let provider = Provider::new();
    let again = ExpectedClaims { is_again: true, ..expected() };
    for (auth_time, is_taken) in [(json!(null), false), (json!(NOW - 91), false), (json!(NOW - 10), true)] {
        let token = provider.signed(&header(), &with(json!({ "auth_time": auth_time })));
        assert_eq!(verify(&token, &provider.keys(), &again).is_ok(), is_taken, "{auth_time}");
    }
}

#[test]
fn rejects_a_token_without_a_signature_of_the_provider() {
    let (provider, other) = (Provider::new(), Provider::new());
    let keys = provider.keys();
    let refused = |token: &str| verify(token, &keys, &expected()).unwrap_err();
    let of = |alg: &str| json!({ "alg": alg, "kid": "k1" });
    assert_eq!(refused(&format!("{}.", unsigned(&of("none"), &claims()))), InvalidIdToken::Algorithm);
    // The token is signed with the public key as if it were a shared secret.
    let text = unsigned(&of("HS256"), &claims());
    let shared = hmac_sha256(provider.pair.public_key().as_ref(), &[text.as_bytes()]);
    assert_eq!(refused(&format!("{text}.{}", URL_SAFE_NO_PAD.encode(shared))), InvalidIdToken::Algorithm);
    assert_eq!(refused(&other.signed(&header(), &claims())), InvalidIdToken::Signature);
    assert_eq!(refused(&provider.signed(&of("RS256"), &claims())), InvalidIdToken::UnknownKey, "no key of that kind");
    let unknown = json!({ "alg": "ES256", "kid": "k2" });
    assert_eq!(refused(&provider.signed(&unknown, &claims())), InvalidIdToken::UnknownKey);
    assert!(verify(&provider.signed(&json!({ "alg": "ES256" }), &claims()), &keys, &expected()).is_ok());
    let critical = json!({ "alg": "ES256", "kid": "k1", "crit": ["exp"] });
    assert_eq!(refused(&provider.signed(&critical, &claims())), InvalidIdToken::Malformed);
    let good = provider.signed(&header(), &claims());
    let swapped =
        format!("{}.{}", unsigned(&header(), &with(json!({ "sub": "bob" }))), good.rsplit('.').next().unwrap());
    assert_eq!(refused(&swapped), InvalidIdToken::Signature);
    for malformed in ["", ".", "..", "a.b.c", &good[1..], &format!("{good}="), &good.replacen('.', "", 1)] {
        assert_eq!(refused(malformed), InvalidIdToken::Malformed, "{malformed}");
    }
}

#[test]
fn a_key_set_contains_only_usable_keys() {
    assert_eq!(ProviderKeys::read(b"[]"), Err(InvalidKeys));
    assert_eq!(ProviderKeys::read(b"{}"), Err(InvalidKeys));
    let provider = Provider::new();
    assert_eq!(provider.keys().0.len(), 1);
    let key = json!({ "kty": "EC", "crv": "P-256", "x": "AA", "y": "AA", "alg": "ES384" });
    assert_eq!(ProviderKeys::read(json!({ "keys": [key, 7] }).to_string().as_bytes()), Ok(ProviderKeys::default()));
    let many = vec![provider.key("k"); 100];
    assert_eq!(ProviderKeys::read(json!({ "keys": many }).to_string().as_bytes()).unwrap().0.len(), KEYS_MAX);
}
