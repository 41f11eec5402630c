//! A browser in which a user has signed in before. A cookie identifies it, so that failed sign-ins by attackers can't
//! lock the user out of it.
//!
//! The cookie does not sign in. Only the hash of its token is stored with the user.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::base::entropy::{self, Entropy};
use crate::base::secret::Secret;
use crate::base::time::Timestamp;

/// Time for which a browser is remembered after its last sign-in, in seconds. Browsers keep no cookie longer (RFC
/// 6265bis 5.5).
pub const LIFETIME_SECONDS: u32 = 400 * 24 * 3600;
/// Maximum number of browsers of one user; the one with the oldest sign-in is dropped.
const DEVICES_MAX: usize = 10;

/// SHA-256 of a token.
pub type DeviceKey = [u8; 32];

/// Token in the cookie: 256 random bits as hex.
#[derive(Clone, Debug)]
pub struct DeviceToken(Secret);

impl DeviceToken {
    /// Generates a new token.
    pub fn generate(entropy: &dyn Entropy) -> Self {
        Self(Secret::new(hex::encode(entropy::bytes::<32>(entropy))))
    }

    /// Returns the token if `text` is well-formed.
    pub fn parse(text: &str) -> Option<Self> {
        let fits = text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        fits.then(|| Self(Secret::new(text)))
    }

    /// Returns the text, for the cookie.
    pub fn expose(&self) -> &str {
        self.0.expose_text()
    }

    /// Returns the stored hash. The token is random, so a plain hash is enough.
    pub fn key(&self) -> DeviceKey {
        Sha256::digest(self.0.expose()).into()
    }
}

/// The browsers of one user.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Devices(Vec<Device>);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Device {
    key: DeviceKey,
    signed_in_at: Timestamp,
}

impl Device {
    fn is_known(&self, now: Timestamp) -> bool {
        now.since(self.signed_in_at) < Duration::from_secs(LIFETIME_SECONDS.into())
    }
}

impl Devices {
    /// Returns whether a browser with this token is remembered at `now`.
    pub fn know(&self, key: &DeviceKey, now: Timestamp) -> bool {
        self.0.iter().any(|device| device.key == *key && device.is_known(now))
    }

    /// Returns the browsers after a sign-in at `now` with this one, known or new.
    #[must_use]
    pub fn with(mut self, key: DeviceKey, now: Timestamp) -> Self {
        self.0.retain(|device| device.key != key && device.is_known(now));
        self.0.insert(0, Device { key, signed_in_at: now });
        self.0.truncate(DEVICES_MAX);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::entropy::SeededEntropy;

    fn day(days: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_secs(days * 24 * 3600)
    }

    #[test]
    fn a_browser_is_known_for_400_days_after_its_last_sign_in() {
        let devices = Devices::default().with([1; 32], day(0));
        assert!(devices.know(&[1; 32], day(399)) && !devices.know(&[1; 32], day(400)));
        assert!(!devices.know(&[2; 32], day(0)));
        let devices = devices.with([1; 32], day(300));
        assert!(devices.know(&[1; 32], day(699)));
        assert_eq!(devices.0.len(), 1);
    }

    #[test]
    fn the_ten_newest_browsers_are_kept() {
        let devices = (0..11).fold(Devices::default(), |devices, id| devices.with([id; 32], day(id.into())));
        assert!(!devices.know(&[0; 32], day(11)));
        assert!((1..11).all(|id| devices.know(&[id; 32], day(11))));
    }

    #[test]
    fn a_token_parses_back_and_is_hidden_in_debug_output() {
        let token = DeviceToken::generate(&SeededEntropy::new(1));
        assert_eq!(DeviceToken::parse(token.expose()).unwrap().key(), token.key());
        assert!(!format!("{token:?}").contains(token.expose()));
        assert!(DeviceToken::parse(&token.expose()[1..]).is_none() && DeviceToken::parse(&"g".repeat(64)).is_none());
    }
}
