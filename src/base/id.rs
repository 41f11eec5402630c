//! Identifiers: a short prefix, `_`, and a 26-character ULID in upper-case Crockford base 32 (contract 1).
//!
//! An [`Ulid`] has 48 bits of milliseconds and 80 random bits. The store makes identifiers strictly increasing; this
//! file only defines their form. A malformed text never becomes an identifier: callers answer it with the same 404 as
//! an unknown one.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::time::Timestamp;

const CROCKFORD: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
const TEXT_LENGTH: usize = 26;

/// The 16 bytes behind every identifier, ordered by creation time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Ulid(pub [u8; 16]);

/// Error: the text is not an identifier of this kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("is not an identifier of this kind")]
pub struct InvalidId;

impl Ulid {
    /// Returns the identifier of `at` with these 80 random bits.
    pub fn new(at: Timestamp, random: [u8; 10]) -> Self {
        let mut bytes = [0; 16];
        bytes[..6].copy_from_slice(&at.as_millis().to_be_bytes()[2..]);
        bytes[6..].copy_from_slice(&random);
        Self(bytes)
    }

    /// Returns the millisecond in the identifier.
    pub fn timestamp(self) -> Timestamp {
        let mut millis = [0; 8];
        millis[2..].copy_from_slice(&self.0[..6]);
        Timestamp::from_millis(u64::from_be_bytes(millis))
    }

    /// Returns the next identifier.
    #[must_use]
    pub fn next(self) -> Self {
        Self(u128::from_be_bytes(self.0).wrapping_add(1).to_be_bytes())
    }
}

impl FromStr for Ulid {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let text = text.as_bytes();
        // 26 characters hold 130 bits, so the first character may only have three bits.
        if text.len() != TEXT_LENGTH || text[0] > b'7' {
            return Err(InvalidId);
        }
        let value = text.iter().try_fold(0_u128, |value, character| {
            let digit = CROCKFORD.iter().position(|c| c == character).ok_or(InvalidId)?;
            Ok(value << 5 | digit as u128)
        })?;
        Ok(Self(value.to_be_bytes()))
    }
}

impl fmt::Display for Ulid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = u128::from_be_bytes(self.0);
        let mut text = [0; TEXT_LENGTH];
        for (place, character) in text.iter_mut().enumerate() {
            let shift = 5 * (TEXT_LENGTH - 1 - place);
            *character = CROCKFORD[(value >> shift) as usize & 31];
        }
        f.write_str(std::str::from_utf8(&text).unwrap_or_default())
    }
}

impl fmt::Debug for Ulid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

macro_rules! identifiers {
    ($($(#[$doc:meta])* $name:ident = $prefix:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
        pub struct $name(pub Ulid);

        impl $name {
            /// Prefix of the text form, without the `_` that follows it.
            pub const PREFIX: &'static str = $prefix;

            /// Returns the 16 bytes as in storage keys.
            pub const fn as_bytes(&self) -> &[u8; 16] {
                &self.0.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "_{}"), self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;
            fn from_str(text: &str) -> Result<Self, InvalidId> {
                let rest = text.strip_prefix(concat!($prefix, "_")).ok_or(InvalidId)?;
                rest.parse().map(Self)
            }
        }

        impl From<Ulid> for $name {
            fn from(ulid: Ulid) -> Self {
                Self(ulid)
            }
        }

        impl From<$name> for Ulid {
            fn from(id: $name) -> Self {
                id.0
            }
        }
    )*};
}

identifiers! {
    /// An account, the owner of all other objects.
    AccountId = "acc";
    /// A panel user.
    UserId = "usr";
    /// An API key.
    KeyId = "key";
    /// A sending domain.
    DomainId = "dom";
    /// A message.
    MessageId = "msg";
    /// An event of the account's log.
    EventId = "evt";
    /// A webhook endpoint.
    EndpointId = "whk";
    /// One event owed to one webhook endpoint.
    DeliveryId = "dlv";
    /// One attempt of a webhook delivery.
    AttemptId = "att";
    /// A suppression.
    SuppressionId = "sup";
    /// A DMARC aggregate report.
    DmarcReportId = "dmr";
    /// A line of the audit log; only visible in URLs of the panel.
    ChangeId = "chg";
    /// An alert.
    AlertId = "alr";
    /// A notice of an alert or an invitation; its Message-ID or webhook delivery.
    NoticeId = "ntc";
}

/// Serialises an identifier as its text, for JSON that leaves the program. Rows contain the bytes.
///
/// # Errors
/// Errors of the serializer.
pub fn as_text<T: fmt::Display, S: serde::Serializer>(id: &T, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_bytes_encode_the_same_identifier_in_the_same_order() {
        let early = MessageId(Ulid::new(Timestamp::from_millis(1_700_000_000_000), [255; 10]));
        let late = MessageId(Ulid::new(Timestamp::from_millis(1_700_000_000_001), [0; 10]));
        assert_eq!(early.to_string().parse(), Ok(early));
        assert!(early < late && early.to_string() < late.to_string());
        assert_eq!(early.0.next().timestamp(), late.0.timestamp());
        assert_eq!(early.0.timestamp().as_millis(), 1_700_000_000_000);
    }

    #[test]
    fn rejects_text_that_is_not_canonical() {
        let good = MessageId::default().to_string();
        assert_eq!(good, "msg_00000000000000000000000000");
        for bad in [
            "",
            "msg_",
            "evt_00000000000000000000000000",
            "msg_0000000000000000000000000",
            "msg_80000000000000000000000000",
            "msg_0000000000000000000000000U",
            "msg_0000000000000000000000000a",
            "msg_0000000000000000000000000é",
        ] {
            assert!(bad.parse::<MessageId>().is_err(), "{bad}");
        }
    }
}
