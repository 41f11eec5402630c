//! The keys that authenticate tokens about messages (contract 6): one key for each period of 30 days since the epoch.
//!
//! Each is derived from one secret and the number of its period, so keys are not stored and need no rotation. The key
//! of a token follows from the message's own time, which the token contains. An attacker with one key can only forge
//! tokens of messages from its 30 days, and only while those are accepted.

use std::time::Duration;

use crate::base::id::MessageId;
use crate::base::secret::Secret;
use crate::base::signature::hmac_sha256;

/// Time for which a key signs new messages' tokens.
const PERIOD: Duration = Duration::from_secs(30 * 24 * 3600);
/// Number of different key numbers in tokens: two and a half years of keys.
const NUMBERS: u64 = 32;

/// All keys of one purpose.
#[derive(Clone, Debug)]
pub struct TokenKeys(Secret);

/// The key of one period.
#[derive(Clone, Debug)]
pub(super) struct TokenKey {
    /// Number of the key in tokens: below 32.
    pub(super) number: u8,
    /// The 32 bytes of the key.
    pub(super) secret: Secret,
}

impl TokenKeys {
    /// Creates the keys from `secret`.
    pub const fn new(secret: Secret) -> Self {
        Self(secret)
    }

    /// Returns the key for tokens of `message`.
    pub(super) fn of(&self, message: MessageId) -> TokenKey {
        let period = message.0.timestamp().as_secs() / PERIOD.as_secs();
        let secret = hmac_sha256(self.0.expose(), &[b"postrider token key", &period.to_be_bytes()]);
        TokenKey { number: u8::try_from(period % NUMBERS).unwrap_or_default(), secret: Secret::new(secret) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::Ulid;
    use crate::base::time::Timestamp;

    fn key_at(moment: Timestamp) -> (u8, Vec<u8>) {
        let TokenKey { number, secret } =
            TokenKeys::new(Secret::new([1; 32])).of(MessageId(Ulid::new(moment, [0; 10])));
        (number, secret.expose().to_vec())
    }

    #[test]
    fn a_key_is_used_for_30_days_and_never_repeats() {
        let begins = Timestamp::ZERO + PERIOD * 650;
        let last = begins + PERIOD - Duration::from_millis(1);
        assert_eq!(key_at(begins), key_at(last));
        let mut seen = std::collections::BTreeSet::new();
        for period in 0..=32 {
            let (number, secret) = key_at(begins + PERIOD * period);
            assert_eq!(u64::from(number), (650 + u64::from(period)) % 32);
            assert!(seen.insert(secret), "{period}");
        }
    }
}
