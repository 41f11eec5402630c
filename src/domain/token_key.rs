//! The keys that authenticate tokens about messages (contract 6): one after the other, 30 days each, counted from the
//! epoch.
//!
//! Each is derived from one secret and the number of its period, so nothing is stored and nothing has to happen for one
//! to take the other's place. A token's key is that of its message's own time, which the token carries: whoever gets
//! hold of a key can speak of the messages of its 30 days alone, and not for longer than their tokens are taken.

use std::time::Duration;

use crate::base::id::MessageId;
use crate::base::secret::Secret;
use crate::base::signature::hmac_sha256;

/// Time for which a key signs new messages' tokens.
const PERIOD: Duration = Duration::from_secs(30 * 24 * 3600);
/// A token tells so many keys apart: two years and a half of them.
const NUMBERS: u64 = 32;

/// All keys of one purpose.
#[derive(Clone, Debug)]
pub struct TokenKeys(Secret);

/// The key of one period.
#[derive(Clone, Debug)]
pub(super) struct TokenKey {
    /// Number of the key as a token states it: below 32.
    pub(super) number: u8,
    /// Its 32 bytes.
    pub(super) secret: Secret,
}

impl TokenKeys {
    /// The keys that come of `secret`.
    pub const fn new(secret: Secret) -> Self {
        Self(secret)
    }

    /// The key of the tokens of `message`.
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
    fn a_key_serves_thirty_days_and_none_comes_again() {
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
