//! A link that lets a user set their own password. It is valid for a day and can be used once.
//!
//! It refers to the audit line about its creation; nothing else is stored for it. It is signed together with its user's
//! [credentials]. A new password, a first sign-in by OpenID Connect and a change of the operator role therefore end it
//! too. It allows nothing else, and must be kept as secret as the password itself.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use subtle::ConstantTimeEq as _;

use crate::base::id::{AccountId, ChangeId, Ulid, UserId};
use crate::base::secret::Secret;
use crate::base::signature::hmac_sha256;
use crate::base::time::Timestamp;
use crate::domain::user::User;

/// Time for which a link is valid.
pub const LIFETIME: Duration = Duration::from_secs(24 * 3600);

/// Purpose from which the signing key is derived.
pub const KEY_PURPOSE: &[u8] = b"setup link 1";

const ID: usize = 16;
const TIME: usize = 8;
const MAC: usize = 32;
const LENGTH: usize = 3 * ID + TIME + MAC;
/// Length of a token of an earlier version, which does not refer to a line.
const EARLIER_LENGTH: usize = LENGTH - ID;

/// Returns the state of a user that ends their links when it changes: the password's hash, the operator role, and the
/// digest of the OpenID Connect identity.
pub fn credentials(user: &User, identity: Option<&[u8]>) -> String {
    let operator = if user.is_operator { "\noperator" } else { "" };
    let identity = identity.map(|digest| format!("\nidentity {}", hex::encode(digest))).unwrap_or_default();
    format!("{}{operator}{identity}", user.password_hash)
}

/// The secret part of a link. Its text is only for the link and is never logged.
#[derive(Clone, PartialEq, Eq)]
pub struct SetupToken {
    /// The user's account.
    pub account: AccountId,
    /// The user who may set a password.
    pub user: UserId,
    /// Expiry.
    pub expires_at: Timestamp,
    /// The audit line about its creation. Links of earlier versions have none.
    pub line: Option<ChangeId>,
    mac: [u8; MAC],
}

impl SetupToken {
    /// Creates a token for the user with these [credentials].
    pub fn sign(
        key: &Secret,
        (account, user): (AccountId, UserId),
        credentials: &str,
        expires_at: Timestamp,
        line: ChangeId,
    ) -> Self {
        let unsigned = Self { account, user, expires_at, line: Some(line), mac: [0; MAC] };
        Self { mac: unsigned.mac_for(key, credentials), ..unsigned }
    }

    /// Returns whether the token was made here, for these [credentials], and has not expired at `now`.
    pub fn holds(&self, key: &Secret, credentials: &str, now: Timestamp) -> bool {
        // A link that would last longer was made by a clock that was ahead.
        let is_in_time = now < self.expires_at && self.expires_at <= now + LIFETIME;
        bool::from(self.mac_for(key, credentials).ct_eq(&self.mac)) && is_in_time
    }

    /// Returns the MAC. A password hash begins with a dollar sign and a name, so it can't be confused with a line in
    /// front of another hash.
    fn mac_for(&self, key: &Secret, credentials: &str) -> [u8; MAC] {
        let expiry = self.expires_at.as_millis().to_be_bytes();
        let line = self.line.map(|line| line.0.0);
        let line = line.as_ref().map_or(&[][..], |line| line);
        hmac_sha256(key.expose(), &[&self.account.0.0, &self.user.0.0, &expiry, line, credentials.as_bytes()])
    }
}

impl fmt::Display for SetupToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let expiry = self.expires_at.as_millis().to_be_bytes();
        let line = self.line.map(|line| line.0.0);
        let line = line.as_ref().map_or(&[][..], |line| line);
        let bytes = [&self.account.0.0[..], &self.user.0.0, &expiry, line, &self.mac].concat();
        f.write_str(&URL_SAFE_NO_PAD.encode(bytes))
    }
}

impl FromStr for SetupToken {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(drop)?;
        if bytes.len() != LENGTH && bytes.len() != EARLIER_LENGTH {
            return Err(());
        }
        let (account, rest) = bytes.split_first_chunk::<ID>().ok_or(())?;
        let (user, rest) = rest.split_first_chunk::<ID>().ok_or(())?;
        let (expiry, rest) = rest.split_first_chunk::<TIME>().ok_or(())?;
        let (line, mac) = rest.split_last_chunk::<MAC>().ok_or(())?;
        Ok(Self {
            account: AccountId(Ulid(*account)),
            user: UserId(Ulid(*user)),
            expires_at: Timestamp::from_millis(u64::from_be_bytes(*expiry)),
            line: line.first_chunk::<ID>().map(|line| ChangeId(Ulid(*line))),
            mac: *mac,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);

    const HOUR: Duration = Duration::from_secs(3600);

    fn token(key: &Secret, expires_at: Timestamp) -> SetupToken {
        let line = ChangeId(Ulid([7; 16]));
        SetupToken::sign(key, (AccountId::default(), UserId::default()), "hash", expires_at, line)
    }

    #[test]
    fn a_token_is_valid_for_a_day_its_user_and_the_replaced_password() {
        let (key, other) = (Secret::new([1; 32]), Secret::new([2; 32]));
        let token = token(&key, NOW + LIFETIME);
        let last = NOW + LIFETIME - Duration::from_millis(1);
        assert!(token.holds(&key, "hash", NOW) && token.holds(&key, "hash", last));
        assert!(!token.holds(&key, "hash", NOW + LIFETIME));
        assert!(!token.holds(&key, "hash", NOW - HOUR), "a clock that was ahead made it");
        assert!(!token.holds(&key, "another hash", NOW) && !token.holds(&other, "hash", NOW));
        let longer = SetupToken { expires_at: NOW + 2 * LIFETIME, ..token.clone() };
        let of_another = SetupToken { user: UserId(Ulid([1; 16])), ..token.clone() };
        assert!(!longer.holds(&key, "hash", NOW) && !of_another.holds(&key, "hash", NOW));
        for line in [None, Some(ChangeId(Ulid([9; 16])))] {
            assert!(!SetupToken { line, ..token.clone() }.holds(&key, "hash", NOW), "its creator can't be changed");
        }
    }

    #[test]
    fn a_token_of_an_earlier_version_is_valid_without_a_line() {
        let key = Secret::new([1; 32]);
        let (account, user, expiry) = (AccountId::default(), UserId::default(), NOW.as_millis().to_be_bytes());
        let mac = hmac_sha256(key.expose(), &[&account.0.0, &user.0.0, &expiry, b"hash"]);
        let text = URL_SAFE_NO_PAD.encode([&account.0.0[..], &user.0.0, &expiry, &mac].concat());
        let token: SetupToken = text.parse().unwrap();
        assert!(token.holds(&key, "hash", NOW - LIFETIME) && token.line.is_none());
        assert_eq!(token.to_string(), text);
    }

    #[test]
    fn a_token_parses_from_its_text() {
        let token = token(&Secret::new([1; 32]), NOW);
        let text = token.to_string();
        assert!(text.parse::<SetupToken>().is_ok_and(|read| read == token));
        for wrong in ["", "nonsense", &text[1..], &format!("{text}AA"), &text.replace(&text[..1], "%")] {
            assert!(wrong.parse::<SetupToken>().is_err(), "{wrong}");
        }
    }
}
