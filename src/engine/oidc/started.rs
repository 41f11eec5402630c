//! A started sign-in at an identity provider. Only the browser keeps it, sealed in a cookie. So the service needs no
//! memory for people who don't come back, and rejects an answer to another browser's sign-in.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use super::BeginOidc;
use crate::base::entropy::{self, Entropy};
use crate::base::secret::MasterKey;
use crate::base::time::Timestamp;

/// Time limit for signing in at the provider.
pub const LIFETIME: Duration = Duration::from_secs(10 * 60);
const CONTEXT: &[u8] = b"sign-in by OpenID Connect";

/// The secrets of one sign-in, and the path to continue at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StartedSignIn {
    /// Required in the answer.
    pub(super) state: String,
    /// Required in the ID token.
    pub(super) nonce: String,
    /// Required to use the code (RFC 7636).
    pub(super) verifier: String,
    /// Our own path to continue at.
    pub(super) next: String,
    /// Start time, in real time.
    pub(super) begun_at: Timestamp,
    /// Whether the provider must ask the person again.
    pub(super) is_again: bool,
    /// The setup link that started the sign-in; empty without a link.
    #[serde(default)]
    pub(super) link: String,
}

impl StartedSignIn {
    /// Creates a sign-in that starts at `now`.
    pub(super) fn new(begin: &BeginOidc<'_>, now: Timestamp, entropy: &dyn Entropy) -> Self {
        let [state, nonce, verifier] = [(); 3].map(|()| URL_SAFE_NO_PAD.encode(entropy::bytes::<32>(entropy)));
        let BeginOidc { next, is_again, link } = *begin;
        Self { state, nonce, verifier, next: next.to_owned(), begun_at: now, is_again, link: link.to_owned() }
    }

    /// Returns the challenge for the verifier (RFC 7636 4.2).
    pub(super) fn challenge(&self) -> String {
        URL_SAFE_NO_PAD.encode(Sha256::digest(&self.verifier))
    }

    /// Returns the cookie's text.
    pub(super) fn sealed(&self, key: &MasterKey, entropy: &dyn Entropy) -> String {
        let clear = serde_json::to_vec(self).unwrap_or_else(|_| unreachable!("texts and numbers are JSON"));
        URL_SAFE_NO_PAD.encode(key.seal(CONTEXT, &clear, entropy).0)
    }

    /// Returns the sign-in of a cookie, if `state` belongs to it and it has not expired.
    pub(super) fn open(cookie: &str, state: &str, key: &MasterKey, now: Timestamp) -> Option<Self> {
        let sealed = URL_SAFE_NO_PAD.decode(cookie).ok()?;
        let clear = key.open(CONTEXT, &sealed).ok()?;
        let started: Self = serde_json::from_slice(clear.expose()).ok()?;
        let is_own = bool::from(started.state.as_bytes().ct_eq(state.as_bytes()));
        (is_own && now >= started.begun_at && now.since(started.begun_at) < LIFETIME).then_some(started)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::entropy::SeededEntropy;

    const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);

    #[test]
    fn a_sign_in_continues_only_with_its_own_cookie_and_state_within_ten_minutes() {
        let (key, entropy) = (MasterKey::new(&[7; MasterKey::LENGTH]), SeededEntropy::new(1));
        let begin = BeginOidc { next: "/messages", ..BeginOidc::default() };
        let started = StartedSignIn::new(&begin, NOW, &entropy);
        let cookie = started.sealed(&key, &entropy);
        let open = |state: &str, now| StartedSignIn::open(&cookie, state, &key, now);
        assert_eq!(open(&started.state, NOW), Some(started.clone()));
        assert_eq!(open(&started.state, NOW + LIFETIME), None);
        assert_eq!(open("", NOW), None);
        let other = StartedSignIn::new(&begin, NOW, &entropy);
        assert_eq!(open(&other.state, NOW), None);
        assert_eq!(StartedSignIn::open("", "", &key, NOW), None);
        let foreign = MasterKey::new(&[8; MasterKey::LENGTH]);
        assert_eq!(StartedSignIn::open(&cookie, &started.state, &foreign, NOW), None);
        assert!(cookie.len() < 1024 && !cookie.contains(&started.state));
        assert_eq!((started.verifier.len(), started.challenge().len()), (43, 43));
    }
}
