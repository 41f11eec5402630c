//! The return path of one message: `b+<token>@<bounce host>`. The token names account and message, and is authenticated
//! (contract 6).
//!
//! ```text
//! b+ k mmmmmmmmmmmmmmmmmmmmmmmmmm aaaaaaaa cccccccccccccccccccccccc     61 of the 64 bytes of RFC 5321 4.5.3.1.1
//!    |  message, 26 characters     |        MAC, 120 bits
//!    key number                    account's hint, 40 bits
//! ```
//!
//! Mail servers may change the case of a local part, so all of it is base 32. Two complete identifiers would take 52
//! characters and leave 10, too few for the 80 bits of MAC that the contract requires. So the token contains the whole
//! message identifier, and 40 bits of a hash of the account. The hash only finds the rows to try, and reveals nothing
//! about the account to receivers. The MAC covers the whole account, so a random collision or chosen identifiers can't
//! confuse two accounts. The key follows from the message's own time ([`TokenKeys`]). The token contains its number, to
//! distinguish the keys.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::time::Duration;
use subtle::ConstantTimeEq;

use crate::base::id::{AccountId, MessageId};
use crate::base::signature::hmac_sha256;
use crate::base::time::Timestamp;

use super::token_key::{TokenKey, TokenKeys};

const PREFIX: &str = "b+";
/// Crockford's alphabet, as in identifiers, in the lower case that is usual in local parts.
const BASE32: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
const MESSAGE_CHARACTERS: usize = 26;
const HINT_BYTES: usize = 5;
const HINT_CHARACTERS: usize = 8 * HINT_BYTES / 5;
const MAC_BYTES: usize = 15;
const TOKEN_CHARACTERS: usize = 1 + MESSAGE_CHARACTERS + 8 * (HINT_BYTES + MAC_BYTES) / 5;

/// Time for which a token is accepted after its message: the 30 days of the event log, and a week for slow reports.
const VALID_FOR: Duration = Duration::from_secs(37 * 24 * 3600);

/// Hash that finds an account. Several accounts may share one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct AccountHint(pub [u8; HINT_BYTES]);

impl AccountHint {
    /// Returns the hint of `account`.
    pub fn of(account: AccountId) -> Self {
        let digest = Sha256::new().chain_update(b"postrider return path account").chain_update(account.as_bytes());
        let [a, b, c, d, e, ..]: [u8; 32] = digest.finalize().into();
        Self([a, b, c, d, e])
    }
}

impl fmt::Display for AccountHint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::with_capacity(HINT_CHARACTERS);
        push_base32(&mut text, &self.0);
        f.write_str(&text)
    }
}

/// A decoded token. Its content is not trusted before [`Parsed::verify`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Parsed {
    /// Number of the key that the token names.
    key_number: u8,
    /// Message that the token names.
    pub message: MessageId,
    /// Hint to the message's account.
    pub account_hint: AccountHint,
    mac: [u8; MAC_BYTES],
}

/// A verified return path that has not expired.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReturnPath {
    /// The account.
    pub account: AccountId,
    /// Message.
    pub message: MessageId,
}

/// Reason why a local part is not a valid return path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidReturnPath {
    /// The text is malformed.
    #[error("is not a return path")]
    Malformed,
    /// The MAC is wrong.
    #[error("is not a return path of this service")]
    Forged,
    /// The 37 days of the token have passed.
    #[error("is an expired return path")]
    Expired,
}

/// Returns the local part for `message` of `account`.
pub fn encode(account: AccountId, message: MessageId, keys: &TokenKeys) -> String {
    format!("{PREFIX}{}", token(account, message, keys))
}

/// Returns only the token. `Feedback-ID` contains one made with separate keys, which is never accepted in a recipient
/// address.
pub fn token(account: AccountId, message: MessageId, keys: &TokenKeys) -> String {
    let key = keys.of(message);
    let mut token = String::with_capacity(TOKEN_CHARACTERS);
    token.push(char::from(BASE32[usize::from(key.number)]));
    token.push_str(&message.0.to_string().to_ascii_lowercase());
    push_base32(&mut token, &AccountHint::of(account).0);
    push_base32(&mut token, &mac(account, message, &key));
    token
}

/// Decodes a local part in any case.
///
/// # Errors
/// [`InvalidReturnPath::Malformed`] if it is malformed.
pub fn decode(local: &str) -> Result<Parsed, InvalidReturnPath> {
    let prefix = local.get(..PREFIX.len()).filter(|prefix| prefix.eq_ignore_ascii_case(PREFIX));
    decode_token(&local[prefix.ok_or(InvalidReturnPath::Malformed)?.len()..])
}

/// Decodes a token in any case.
///
/// # Errors
/// [`InvalidReturnPath::Malformed`] if it is malformed.
pub fn decode_token(token: &str) -> Result<Parsed, InvalidReturnPath> {
    if token.len() != TOKEN_CHARACTERS || !token.is_ascii() {
        return Err(InvalidReturnPath::Malformed);
    }
    parse(&token.to_ascii_lowercase()).ok_or(InvalidReturnPath::Malformed)
}

fn parse(token: &str) -> Option<Parsed> {
    let (key, rest) = token.split_at(1);
    let (message, rest) = rest.split_at(MESSAGE_CHARACTERS);
    let (hint, mac) = rest.split_at(HINT_CHARACTERS);
    Some(Parsed {
        key_number: digit(*key.as_bytes().first()?)?,
        message: format!("{}_{}", MessageId::PREFIX, message.to_ascii_uppercase()).parse().ok()?,
        account_hint: AccountHint(base32_bytes(hint)?),
        mac: base32_bytes(mac)?,
    })
}

impl Parsed {
    /// Verifies the token for one account of its hint, at `now`.
    ///
    /// # Errors
    /// [`InvalidReturnPath::Forged`] if account, key or MAC do not match; [`InvalidReturnPath::Expired`] if all match
    /// but the message is older than 37 days.
    pub fn verify(
        &self,
        account: AccountId,
        keys: &TokenKeys,
        now: Timestamp,
    ) -> Result<ReturnPath, InvalidReturnPath> {
        let path = self.path(account, keys).ok_or(InvalidReturnPath::Forged)?;
        if now.since(self.message.0.timestamp()) > VALID_FOR {
            return Err(InvalidReturnPath::Expired);
        }
        Ok(path)
    }

    /// Returns the return path in a token of any age; `None` if account, key or MAC do not match.
    pub fn path(&self, account: AccountId, keys: &TokenKeys) -> Option<ReturnPath> {
        let key = keys.of(self.message);
        let expected = mac(account, self.message, &key);
        let genuine = self.key_number == key.number
            && self.account_hint == AccountHint::of(account)
            && bool::from(expected.ct_eq(&self.mac));
        genuine.then_some(ReturnPath { account, message: self.message })
    }
}

impl fmt::Debug for Parsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Parsed({}, key {})", self.message, self.key_number)
    }
}

fn mac(account: AccountId, message: MessageId, key: &TokenKey) -> [u8; MAC_BYTES] {
    let parts: [&[u8]; 4] = [b"postrider return path 1", &[key.number], account.as_bytes(), message.as_bytes()];
    let digest = hmac_sha256(key.secret.expose(), &parts);
    let mut mac = [0; MAC_BYTES];
    mac.copy_from_slice(&digest[..MAC_BYTES]);
    mac
}

/// Appends 8 characters for each 5 bytes.
fn push_base32(text: &mut String, bytes: &[u8]) {
    for chunk in bytes.chunks_exact(5) {
        let value = chunk.iter().fold(0_u64, |value, byte| value << 8 | u64::from(*byte));
        text.extend((0..8).rev().map(|place| char::from(BASE32[(value >> (5 * place)) as usize & 31])));
    }
}

/// Decodes the output of [`push_base32`].
fn base32_bytes<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    for (chunk, out) in text.as_bytes().chunks_exact(8).zip(bytes.chunks_exact_mut(5)) {
        let value =
            chunk.iter().try_fold(0_u64, |value, character| Some(value << 5 | u64::from(digit(*character)?)))?;
        out.copy_from_slice(&value.to_be_bytes()[3..]);
    }
    Some(bytes)
}

fn digit(character: u8) -> Option<u8> {
    let place = BASE32.iter().position(|known| *known == character)?;
    u8::try_from(place).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::Ulid;
    use crate::base::secret::Secret;
    use proptest::prelude::*;

    const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);

    fn keys(byte: u8) -> TokenKeys {
        TokenKeys::new(Secret::new([byte; 32]))
    }

    fn message() -> MessageId {
        MessageId(Ulid::new(NOW, [5; 10]))
    }

    #[test]
    fn a_return_path_fits_and_verifies_in_any_case() {
        let account = AccountId(Ulid([9; 16]));
        let local = encode(account, message(), &keys(1));
        assert_eq!(local.len(), 61);
        for came_back in [local.clone(), local.to_ascii_uppercase()] {
            let parsed = decode(&came_back).unwrap();
            assert_eq!(parsed.account_hint, AccountHint::of(account));
            let ours = ReturnPath { account, message: message() };
            assert_eq!(parsed.verify(account, &keys(1), NOW), Ok(ours));
        }
    }

    #[test]
    fn a_bare_token_verifies_and_contains_the_account_hint() {
        let account = AccountId(Ulid([9; 16]));
        let token = token(account, message(), &keys(1));
        assert_eq!(format!("b+{token}"), encode(account, message(), &keys(1)));
        assert_eq!(decode_token(&token.to_ascii_uppercase()), decode(&format!("B+{token}")));
        assert_eq!(token[27..35], AccountHint::of(account).to_string());
        assert_eq!(decode_token(&format!("b+{token}")), Err(InvalidReturnPath::Malformed));
    }

    #[test]
    fn rejects_another_account_or_key_and_expires_after_37_days() {
        let account = AccountId(Ulid([9; 16]));
        let parsed = decode(&encode(account, message(), &keys(1))).unwrap();
        let forged = Err(InvalidReturnPath::Forged);
        assert_eq!(parsed.verify(AccountId(Ulid([8; 16])), &keys(1), NOW), forged);
        assert_eq!(parsed.verify(account, &keys(2), NOW), forged);
        assert!(parsed.verify(account, &keys(1), NOW + VALID_FOR).is_ok());
        let late = NOW + VALID_FOR + Duration::from_millis(1);
        assert_eq!(parsed.verify(account, &keys(1), late), Err(InvalidReturnPath::Expired));
    }

    /// Returns a token forged with the key of one period.
    fn made_with(key: &TokenKey, account: AccountId, message: MessageId) -> Parsed {
        let mac = mac(account, message, key);
        Parsed { key_number: key.number, message, account_hint: AccountHint::of(account), mac }
    }

    #[test]
    fn a_leaked_key_does_not_verify_messages_of_other_periods() {
        let (account, keys) = (AccountId(Ulid([9; 16])), keys(1));
        let known = keys.of(message());
        assert!(made_with(&known, account, message()).verify(account, &keys, NOW).is_ok());
        let month = Duration::from_secs(30 * 24 * 3600);
        for now in [NOW - month, NOW + month, NOW + month * 32] {
            let other = MessageId(Ulid::new(now, [5; 10]));
            let forged = made_with(&known, account, other);
            assert_eq!(forged.verify(account, &keys, now), Err(InvalidReturnPath::Forged), "{now:?}");
            assert!(decode(&encode(account, other, &keys)).unwrap().verify(account, &keys, now).is_ok());
        }
        let old = made_with(&known, account, message());
        assert_eq!(old.verify(account, &keys, NOW + month * 2), Err(InvalidReturnPath::Expired));
    }

    #[test]
    fn other_local_parts_are_malformed() {
        let good = encode(AccountId::default(), message(), &keys(0));
        for bad in ["", "b+", "postmaster", &good[1..], &good[..60], &format!("{good}0"), &good.replacen("b+", "b-", 1)]
        {
            assert_eq!(decode(bad), Err(InvalidReturnPath::Malformed), "{bad}");
        }
        assert!(decode(&format!("b+{}é", "0".repeat(57))).is_err());
    }

    proptest! {
        #[test]
        fn changing_any_character_invalidates_a_token(
            account: [u8; 16], random: [u8; 10], place in 2_usize..61, to in 0_usize..32,
        ) {
            let account = AccountId(Ulid(account));
            let local = encode(account, MessageId(Ulid::new(NOW, random)), &keys(7));
            let mut bytes = local.clone().into_bytes();
            bytes[place] = BASE32[to];
            let changed = String::from_utf8(bytes).unwrap();
            let believed = decode(&changed).and_then(|parsed| parsed.verify(account, &keys(7), NOW));
            prop_assert_eq!(believed.is_ok(), changed == local);
        }

        #[test]
        fn the_decoder_never_panics(text in ".{0,70}", token in "[bB]\\+.{59}") {
            let _ = decode(&text);
            let _ = decode(&token);
        }
    }
}
