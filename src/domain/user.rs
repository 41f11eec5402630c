//! Panel users: the content of a user row, and the permissions of a role (contract 9).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::address::Address;
use super::device::Devices;
use super::sign_in_log::SignInLog;
use crate::base::entropy::{self, Entropy};
use crate::base::id::UserId;
use crate::base::secret::{SealedSecret, Secret};
use crate::base::time::Timestamp;

/// Minimum length of a password in characters.
const PASSWORD_CHARACTERS_MIN: usize = 12;
/// Maximum length of a password in bytes: longer ones do not hash better.
const PASSWORD_BYTES_MAX: usize = 256;
/// Number of characters of a generated password without its hyphens: 100 random bits.
const GENERATED_CHARACTERS: usize = 20;
/// Characters of generated passwords, without any that look alike.
const GENERATED_FROM: &[u8; 32] = b"abcdefghjkmnpqrstvwxyz0123456789";
/// Words that attackers guess first.
const GUESSED: [&str; 6] = ["password", "postrider", "123456", "qwerty", "letmein", "administrator"];

/// Permissions of a user in the panel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// All permissions.
    Owner,
    /// Read everything, and change the user's own password.
    Viewer,
    /// Read everything, and handle mail: cancel, retry, redeliver, check domains, and edit suppressions.
    Member,
}

/// Error: the text is not a role.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be owner, member or viewer")]
pub struct InvalidRole;

impl Role {
    /// All roles, the one with the fewest permissions first.
    pub const ALL: [Self; 3] = [Self::Viewer, Self::Member, Self::Owner];

    /// Returns the name on every interface.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Owner => "owner",
            Self::Viewer => "viewer",
            Self::Member => "member",
        }
    }

    /// Returns whether this role may change the account's objects.
    pub const fn may_change(self) -> bool {
        matches!(self, Self::Owner)
    }

    /// Returns whether this role may handle mail: cancel, retry, redeliver, check domains, and edit suppressions.
    pub const fn may_handle_mail(self) -> bool {
        matches!(self, Self::Owner | Self::Member)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Role {
    type Err = InvalidRole;
    fn from_str(text: &str) -> Result<Self, InvalidRole> {
        Self::ALL.into_iter().find(|role| role.as_str() == text).ok_or(InvalidRole)
    }
}

/// A user, as stored; the key names the account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// Identifier.
    pub id: UserId,
    /// The address for signing in, unique in the whole store.
    pub email: Address,
    /// Permissions of the user.
    pub role: Role,
    /// The password's argon2id hash, with its parameters and salt (PHC string format).
    pub password_hash: String,
    /// Second factor, if the user has one.
    pub totp: Option<SecondFactor>,
    /// Time of creation.
    pub created_at: Timestamp,
    /// Time of the user's last sign-in.
    pub last_sign_in_at: Option<Timestamp>,
    /// Whether the user may not sign in.
    pub disabled: bool,
    /// The browsers in which the user has signed in.
    pub devices: Devices,
    /// Whether the user is an operator, with access to the system and every account.
    pub is_operator: bool,
    /// The latest sign-ins.
    pub sign_ins: SignInLog,
}

/// A time-based one-time password (RFC 6238).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecondFactor {
    /// The shared secret, sealed for its user.
    pub secret: SealedSecret,
    /// Step of the last accepted code: no code is accepted twice (RFC 6238 5.2).
    pub last_step: u64,
}

impl SecondFactor {
    /// Returns the context in which a secret is sealed.
    pub fn context(user: UserId) -> Vec<u8> {
        format!("totp of {user}").into_bytes()
    }
}

/// A chosen password that may be set. No formatter prints it.
#[derive(Clone, Debug)]
pub struct NewPassword(Secret);

/// Reason why a password can't be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WeakPassword {
    /// The password has too few characters.
    #[error("must have at least 12 characters")]
    Short,
    /// The password has too many bytes.
    #[error("must have at most 256 bytes")]
    Long,
    /// One of an attacker's first guesses.
    #[error("is too easy to guess; use four random words, or a password manager")]
    Guessable,
}

impl NewPassword {
    /// Generates a password with 100 random bits, in groups that can be read aloud.
    pub fn generate(entropy: &dyn Entropy) -> Self {
        let mut text = Vec::with_capacity(GENERATED_CHARACTERS + 4);
        for (place, byte) in entropy::bytes::<GENERATED_CHARACTERS>(entropy).into_iter().enumerate() {
            if place > 0 && place % 5 == 0 {
                text.push(b'-');
            }
            text.push(GENERATED_FROM[usize::from(byte % 32)]);
        }
        Self(Secret::new(text))
    }

    /// Checks the password `text` of the user with this address.
    ///
    /// # Errors
    /// [`WeakPassword`] with advice.
    pub fn chosen(text: &str, email: &Address) -> Result<Self, WeakPassword> {
        let lower = text.to_lowercase();
        let distinct = lower.chars().collect::<std::collections::BTreeSet<_>>().len();
        let local = email.local().to_lowercase();
        let is_guessable = distinct < 5
            || GUESSED.iter().any(|guess| lower.replace(*guess, "").len() < 6 && lower.contains(guess))
            || (local.len() >= 4 && lower.replace(&local, "").len() < 6);
        if text.chars().count() < PASSWORD_CHARACTERS_MIN {
            Err(WeakPassword::Short)
        } else if text.len() > PASSWORD_BYTES_MAX {
            Err(WeakPassword::Long)
        } else if is_guessable {
            Err(WeakPassword::Guessable)
        } else {
            Ok(Self(Secret::new(text)))
        }
    }

    /// Returns the text, for hashing and for the one answer that shows it.
    pub fn expose(&self) -> &str {
        self.0.expose_text()
    }
}

/// Returns whether a text can be a password at all, and is worth hashing.
pub const fn may_be_password(text: &str) -> bool {
    !text.is_empty() && text.len() <= PASSWORD_BYTES_MAX
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::entropy::SeededEntropy;

    #[test]
    fn a_generated_password_is_valid_and_hidden_in_debug_output() {
        let password = NewPassword::generate(&SeededEntropy::new(1));
        assert_eq!(password.expose().len(), 23);
        assert!(NewPassword::chosen(password.expose(), &"ann@example.com".parse().unwrap()).is_ok());
        assert!(!format!("{password:?}").contains(password.expose()));
        assert_ne!(password.expose(), NewPassword::generate(&SeededEntropy::new(2)).expose());
    }

    #[test]
    fn a_chosen_password_must_be_long_and_hard_to_guess() {
        let email: Address = "johanna@example.com".parse().unwrap();
        let outcome = |text: &str| NewPassword::chosen(text, &email).err();
        assert_eq!(outcome("correct horse battery"), None);
        assert_eq!(outcome("Grüße vom See"), None);
        assert_eq!(outcome("short words"), Some(WeakPassword::Short));
        assert_eq!(outcome(&"long words ".repeat(24)), Some(WeakPassword::Long));
        for guess in ["aaaaaaaaaaaaaaa", "password1234", "Postrider2026", "johanna12345", "121212121212"] {
            assert_eq!(outcome(guess), Some(WeakPassword::Guessable), "{guess}");
        }
    }

    #[test]
    fn only_an_owner_may_change_objects() {
        assert!("owner".parse::<Role>().unwrap().may_change() && !"viewer".parse::<Role>().unwrap().may_change());
        assert!("admin".parse::<Role>().is_err());
    }
}
