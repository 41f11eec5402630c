//! The link by which somebody chooses their own password: good for a day, and for one choice.
//!
//! Nothing is stored for it. It is signed together with the hash of the password that it replaces, so that whatever
//! sets another password ends it too. It opens nothing else, and is as secret as the password itself.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use subtle::ConstantTimeEq as _;

use crate::base::id::{AccountId, Ulid, UserId};
use crate::base::secret::Secret;
use crate::base::signature::hmac_sha256;
use crate::base::time::Timestamp;

/// How long a link is good for.
pub const LIFETIME: Duration = Duration::from_secs(24 * 3600);

/// What the key that signs links is derived for.
pub const KEY_PURPOSE: &[u8] = b"setup link 1";

const ID: usize = 16;
const TIME: usize = 8;
const MAC: usize = 32;
const LENGTH: usize = 2 * ID + TIME + MAC;

/// The secret part of a link. Its text is for the link alone: never logged.
#[derive(Clone, PartialEq, Eq)]
pub struct SetupToken {
    /// The user's account.
    pub account: AccountId,
    /// Who may choose.
    pub user: UserId,
    /// Until when.
    pub expires_at: Timestamp,
    mac: [u8; MAC],
}

impl SetupToken {
    /// A token for the user whose password has this hash now.
    pub fn sign(key: &Secret, account: AccountId, user: UserId, password_hash: &str, expires_at: Timestamp) -> Self {
        let mac = mac(key, account, user, password_hash, expires_at);
        Self { account, user, expires_at, mac }
    }

    /// Whether it was made here, for the password that has this hash, and is not over at `now`.
    pub fn holds(&self, key: &Secret, password_hash: &str, now: Timestamp) -> bool {
        let expected = mac(key, self.account, self.user, password_hash, self.expires_at);
        bool::from(expected.ct_eq(&self.mac)) && now < self.expires_at
    }
}

fn mac(key: &Secret, account: AccountId, user: UserId, password_hash: &str, expires_at: Timestamp) -> [u8; MAC] {
    let expiry = expires_at.as_millis().to_be_bytes();
    hmac_sha256(key.expose(), &[&account.0.0, &user.0.0, &expiry, password_hash.as_bytes()])
}

impl fmt::Display for SetupToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let expiry = self.expires_at.as_millis().to_be_bytes();
        let bytes = [&self.account.0.0[..], &self.user.0.0, &expiry, &self.mac].concat();
        f.write_str(&URL_SAFE_NO_PAD.encode(bytes))
    }
}

impl FromStr for SetupToken {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let bytes: [u8; LENGTH] = URL_SAFE_NO_PAD.decode(text).map_err(drop)?.try_into().map_err(drop)?;
        let (account, rest) = bytes.split_first_chunk::<ID>().ok_or(())?;
        let (user, rest) = rest.split_first_chunk::<ID>().ok_or(())?;
        let (expiry, mac) = rest.split_first_chunk::<TIME>().ok_or(())?;
        Ok(Self {
            account: AccountId(Ulid(*account)),
            user: UserId(Ulid(*user)),
            expires_at: Timestamp::from_millis(u64::from_be_bytes(*expiry)),
            mac: mac.try_into().map_err(drop)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);

    #[test]
    fn a_token_holds_for_a_day_its_user_and_the_password_that_it_replaces() {
        let (key, other) = (Secret::new([1; 32]), Secret::new([2; 32]));
        let token = SetupToken::sign(&key, AccountId::default(), UserId::default(), "hash", NOW + LIFETIME);
        let last = NOW + LIFETIME - Duration::from_millis(1);
        assert!(token.holds(&key, "hash", NOW) && token.holds(&key, "hash", last));
        assert!(!token.holds(&key, "hash", NOW + LIFETIME));
        assert!(!token.holds(&key, "another hash", NOW) && !token.holds(&other, "hash", NOW));
        let longer = SetupToken { expires_at: NOW + 2 * LIFETIME, ..token.clone() };
        let of_another = SetupToken { user: UserId(Ulid([1; 16])), ..token };
        assert!(!longer.holds(&key, "hash", NOW) && !of_another.holds(&key, "hash", NOW));
    }

    #[test]
    fn a_token_is_read_from_its_text_alone() {
        let token = SetupToken::sign(&Secret::new([1; 32]), AccountId::default(), UserId::default(), "hash", NOW);
        let text = token.to_string();
        assert!(text.parse::<SetupToken>().is_ok_and(|read| read == token));
        for wrong in ["", "nonsense", &text[1..], &format!("{text}AA"), &text.replace(&text[..1], "%")] {
            assert!(wrong.parse::<SetupToken>().is_err(), "{wrong}");
        }
    }
}
