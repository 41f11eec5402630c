//! API keys: the secret that a caller has, and the row with its hash and permissions (contract 2).

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::stream::Stream;
use super::violation::Violations;
use crate::base::entropy::{self, Entropy};
use crate::base::id::KeyId;
use crate::base::secret::Secret;
use crate::base::time::Timestamp;

/// Prefix of every secret. Secret scanners recognise secrets by it.
const SECRET_PREFIX: &str = "pr_live_";
/// Number of base62 characters after the prefix: 256 random bits.
const RANDOM_CHARACTERS: usize = 43;
/// Number of characters of the secret that the record shows.
const SHOWN_CHARACTERS: usize = 16;
/// Length of a chosen secret in characters.
const CHOSEN_CHARACTERS: std::ops::RangeInclusive<usize> = 20..=128;
const BASE62: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// Precision of `last_used_at`.
const USE_STAMP_EVERY: Duration = Duration::from_secs(60);

/// Secret of an API key: `pr_live_` and 43 base62 characters. It is shown once; only its hash is stored.
#[derive(Clone, Debug)]
pub struct KeySecret(Secret);

/// Error: the text is not a well-formed API key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("is not an API key")]
pub struct InvalidKeySecret;

impl KeySecret {
    /// Generates a new secret. Bytes from 248 up are discarded, so that all 62 characters are equally likely.
    pub fn generate(entropy: &dyn Entropy) -> Self {
        let mut text = SECRET_PREFIX.as_bytes().to_vec();
        while text.len() < SECRET_PREFIX.len() + RANDOM_CHARACTERS {
            let wanted = SECRET_PREFIX.len() + RANDOM_CHARACTERS - text.len();
            let fair = entropy::bytes::<64>(entropy).into_iter().filter(|byte| *byte < 248);
            text.extend(fair.take(wanted).map(|byte| BASE62[usize::from(byte % 62)]));
        }
        Self(Secret::new(text))
    }

    /// Returns a chosen secret for `dev`: 20 to 128 of `A-Za-z0-9_-`; `None` if the text is malformed.
    pub fn chosen(text: &str) -> Option<Self> {
        let fits = CHOSEN_CHARACTERS.contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
        fits.then(|| Self(Secret::new(text)))
    }

    /// Returns the text, for the one answer that shows it.
    pub fn expose(&self) -> &str {
        self.0.expose_text()
    }

    /// Returns the stored hash, which finds the key. The secret has 256 random bits, so a plain hash is enough.
    pub fn hash(&self) -> [u8; 32] {
        Sha256::digest(self.0.expose()).into()
    }

    /// Returns the record's `prefix`: the first 16 characters.
    pub fn prefix(&self) -> String {
        self.expose().chars().take(SHOWN_CHARACTERS).collect()
    }
}

impl FromStr for KeySecret {
    type Err = InvalidKeySecret;
    fn from_str(text: &str) -> Result<Self, InvalidKeySecret> {
        let random = text.strip_prefix(SECRET_PREFIX).ok_or(InvalidKeySecret)?;
        let fits = random.len() == RANDOM_CHARACTERS && random.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if fits { Ok(Self(Secret::new(text))) } else { Err(InvalidKeySecret) }
    }
}

/// A permission of a key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// POST /v1/messages.
    Send,
    /// Every GET.
    Read,
    /// All other requests.
    Manage,
}

impl Scope {
    /// All scopes, in the contract's order.
    pub const ALL: [Self; 3] = [Self::Send, Self::Read, Self::Manage];

    /// Returns the name on every interface.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Read => "read",
            Self::Manage => "manage",
        }
    }

    const fn bit(self) -> u8 {
        match self {
            Self::Send => 1,
            Self::Read => 2,
            Self::Manage => 4,
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A set of scopes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Scopes(u8);

impl Scopes {
    /// Every scope: the default of a new key.
    pub const ALL: Self = Self(7);

    /// Parses the scopes in `names`, given under `field`. A name may be repeated.
    ///
    /// # Errors
    /// A violation for every name that is not a scope (`scopes.1`), or for an empty list.
    pub fn parse<T: AsRef<str>>(field: &str, names: &[T]) -> Result<Self, Violations> {
        let mut violations = Violations::new();
        if names.is_empty() {
            violations.add(field, "must name at least one of send, read, manage");
        }
        let mut scopes = Self(0);
        for (place, name) in names.iter().enumerate() {
            match Scope::ALL.into_iter().find(|scope| scope.as_str() == name.as_ref()) {
                Some(scope) => scopes.0 |= scope.bit(),
                None => violations.add(format!("{field}.{place}"), "must be one of send, read, manage"),
            }
        }
        violations.or(|| Some(scopes))
    }

    /// Returns whether `scope` is in the set.
    pub const fn contains(self, scope: Scope) -> bool {
        self.0 & scope.bit() != 0
    }

    /// Returns whether every scope of this set is in `other`. A key can't create a key with more permissions.
    pub const fn is_subset(self, other: Self) -> bool {
        self.0 & !other.0 == 0
    }

    /// Returns the set of `scopes`.
    pub fn of(scopes: &[Scope]) -> Self {
        Self(scopes.iter().fold(0, |bits, scope| bits | scope.bit()))
    }

    /// Returns the scopes as the API lists them, in the contract's order.
    pub fn as_list(self) -> Vec<Scope> {
        Scope::ALL.into_iter().filter(|scope| self.contains(*scope)).collect()
    }
}

impl From<Scope> for Scopes {
    fn from(scope: Scope) -> Self {
        Self::of(&[scope])
    }
}

impl Default for Scopes {
    fn default() -> Self {
        Self::ALL
    }
}

/// An API key, as stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiKey {
    /// Identifier.
    pub id: KeyId,
    /// Name from its owner.
    pub name: String,
    /// The first 16 characters of the secret.
    pub prefix: String,
    /// SHA-256 of the secret.
    pub hash: [u8; 32],
    /// The only stream it may send on; `None` allows both.
    pub stream: Option<Stream>,
    /// Permissions of the key.
    pub scopes: Scopes,
    /// Time of creation.
    pub created_at: Timestamp,
    /// Time of its last use, to within 60 seconds.
    pub last_used_at: Option<Timestamp>,
    /// Time of its expiry.
    pub expires_at: Option<Timestamp>,
    /// Time of its revocation. A revoked key stays listed.
    pub revoked_at: Option<Timestamp>,
}

impl ApiKey {
    /// Returns whether the key is valid at `now`: not revoked and not expired.
    pub fn is_live(&self, now: Timestamp) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|expires_at| now < expires_at)
    }

    /// Returns whether the key may send on `stream`.
    pub fn may_use(&self, stream: Stream) -> bool {
        self.stream.is_none_or(|own| own == stream)
    }

    /// Returns whether a use at `now` must be stored to keep `last_used_at` precise to within 60 seconds.
    pub fn needs_use_stamp(&self, now: Timestamp) -> bool {
        self.last_used_at.is_none_or(|last| now.since(last) >= USE_STAMP_EVERY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::entropy::SeededEntropy;
    use std::collections::BTreeSet;

    #[test]
    fn a_secret_parses_back_and_is_hidden_in_debug_output() {
        let entropy = SeededEntropy::new(7);
        let secret = KeySecret::generate(&entropy);
        assert_eq!((secret.expose().len(), secret.prefix().len()), (51, 16));
        assert!(secret.prefix().starts_with("pr_live_") && secret.expose().starts_with(&secret.prefix()));
        let again: KeySecret = secret.expose().parse().unwrap();
        assert_eq!(again.hash(), secret.hash());
        assert_ne!(KeySecret::generate(&entropy).hash(), secret.hash());
        assert_eq!(format!("{secret:?}"), "KeySecret(Secret(..))");
    }

    #[test]
    fn all_62_characters_are_about_equally_frequent() {
        let entropy = SeededEntropy::new(1);
        let mut counts = [0_usize; 256];
        for _ in 0..2000 {
            KeySecret::generate(&entropy).expose()[8..].bytes().for_each(|byte| counts[usize::from(byte)] += 1);
        }
        let seen = counts.into_iter().filter(|count| *count > 0).collect::<BTreeSet<_>>();
        assert_eq!(counts.iter().filter(|count| **count > 0).count(), 62);
        // 86,000 draws: 1387 expected of each, a standard deviation of 37.
        assert!(seen.iter().all(|count| (1200..1580).contains(count)), "{seen:?}");
    }

    #[test]
    fn rejects_malformed_keys() {
        let good = format!("pr_live_{}", "a".repeat(43));
        assert!(good.parse::<KeySecret>().is_ok());
        for bad in
            ["", "pr_live_", "pr_test_a", &good[1..], &good[..50], &format!("{good}a"), &good.replace("aa", "a-")]
        {
            assert!(bad.parse::<KeySecret>().is_err(), "{bad}");
        }
    }

    #[test]
    fn scopes_are_a_set_and_every_invalid_name_is_reported() {
        let read = Scopes::parse("scopes", &["read", "read"]).unwrap();
        assert_eq!(read.as_list(), [Scope::Read]);
        assert!(read.is_subset(Scopes::ALL) && !Scopes::ALL.is_subset(read));
        let faults = Scopes::parse("scopes", &["send", "admin", "root"]).unwrap_err();
        assert_eq!(faults.by_field().keys().collect::<Vec<_>>(), ["scopes.1", "scopes.2"]);
        assert!(Scopes::parse::<&str>("scopes", &[]).is_err());
    }

    #[test]
    fn a_key_is_valid_until_it_expires_or_is_revoked() {
        let at = Timestamp::from_millis;
        let secret = KeySecret::generate(&SeededEntropy::new(3));
        let mut key = ApiKey {
            id: KeyId::default(),
            name: "ci".to_owned(),
            prefix: secret.prefix(),
            hash: secret.hash(),
            stream: Some(Stream::Marketing),
            scopes: Scopes::ALL,
            created_at: at(0),
            last_used_at: None,
            expires_at: Some(at(100)),
            revoked_at: None,
        };
        assert!(key.is_live(at(99)) && !key.is_live(at(100)));
        assert!(key.may_use(Stream::Marketing) && !key.may_use(Stream::Transactional));
        assert!(key.needs_use_stamp(at(5)));
        key.last_used_at = Some(at(5));
        assert!(!key.needs_use_stamp(at(60_004)) && key.needs_use_stamp(at(60_005)));
        key.revoked_at = Some(at(1));
        assert!(!key.is_live(at(2)));
    }
}
