//! An account: the owner of all other objects, and its settings (contract 2).
//!
//! Each setting has a type that only its check creates, so every value of the type is valid.

use std::fmt;
use std::str::FromStr;

use jiff::tz::TimeZoneDatabase;
use serde::{Deserialize, Serialize};

use crate::base::id::AccountId;
use crate::base::time::Timestamp;

/// Maximum length of a name or reason, in characters.
const LABEL_CHARACTERS_MAX: usize = 255;

/// An account and its settings, as stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// Identifier.
    pub id: AccountId,
    /// Name.
    pub name: AccountName,
    /// Time zone in which the panel shows times.
    pub time_zone: TimeZoneName,
    /// Number of days for which a new message's content is kept.
    pub content_retention_days: RetentionDays,
    /// Whether messages without their own unsubscribe URL get the hosted one.
    pub hosted_unsubscribe: bool,
    /// Limits on sending.
    pub quota: QuotaLimits,
    /// Time of creation.
    pub created_at: Timestamp,
    /// Whether a valid Message-ID of a message submitted by SMTP is kept.
    pub keep_message_id: bool,
}

impl Account {
    /// Returns a new account with the contract's default settings.
    pub fn new(id: AccountId, name: AccountName, quota: QuotaLimits, created_at: Timestamp) -> Self {
        let (time_zone, content_retention_days) = (TimeZoneName::default(), RetentionDays::default());
        Self {
            id,
            name,
            time_zone,
            content_retention_days,
            hosted_unsubscribe: false,
            quota,
            created_at,
            keep_message_id: false,
        }
    }
}

/// Numbers of messages that an account may send in a UTC hour and in a UTC day. Zero stops sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaLimits {
    /// Messages per hour.
    pub per_hour: u64,
    /// Messages per day.
    pub per_day: u64,
}

impl Default for QuotaLimits {
    fn default() -> Self {
        Self { per_hour: 10_000, per_day: 100_000 }
    }
}

/// The name of an account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccountName(String);

/// Error: the text is not a valid account name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must have 1 to 255 characters, not all white space, and no control characters")]
pub struct InvalidAccountName;

impl AccountName {
    /// Returns the name as given.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for AccountName {
    type Err = InvalidAccountName;
    fn from_str(text: &str) -> Result<Self, InvalidAccountName> {
        if is_label(text) { Ok(Self(text.to_owned())) } else { Err(InvalidAccountName) }
    }
}

/// Returns whether a text is one readable line.
fn is_label(text: &str) -> bool {
    !text.trim().is_empty() && text.chars().count() <= LABEL_CHARACTERS_MAX && !text.chars().any(char::is_control)
}

/// The operator's reason for a suspension, which the account sees.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SuspensionReason(String);

/// Error: the text is not a valid reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must have 1 to 255 characters, not all white space, and no control characters")]
pub struct InvalidReason;

impl SuspensionReason {
    /// Returns the reason as given.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// An operator's reason for viewing an account, which the account's audit log shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ViewReason(String);

impl ViewReason {
    /// Returns the reason as given.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ViewReason {
    type Err = InvalidReason;
    fn from_str(text: &str) -> Result<Self, InvalidReason> {
        if is_label(text) { Ok(Self(text.to_owned())) } else { Err(InvalidReason) }
    }
}

impl FromStr for SuspensionReason {
    type Err = InvalidReason;
    fn from_str(text: &str) -> Result<Self, InvalidReason> {
        if is_label(text) { Ok(Self(text.to_owned())) } else { Err(InvalidReason) }
    }
}

/// Name of a time zone in the IANA database, in the database's spelling.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimeZoneName(String);

/// Error: the text is not the name of a time zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be the name of an IANA time zone, such as Europe/Vienna")]
pub struct InvalidTimeZone;

impl TimeZoneName {
    /// Returns the name, such as `Europe/Vienna`.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the zone; UTC if a later database no longer has the name.
    pub fn zone(&self) -> jiff::tz::TimeZone {
        TimeZoneDatabase::bundled().get(&self.0).unwrap_or(jiff::tz::TimeZone::UTC)
    }
}

impl Default for TimeZoneName {
    fn default() -> Self {
        Self("UTC".to_owned())
    }
}

impl FromStr for TimeZoneName {
    type Err = InvalidTimeZone;
    /// Checks against the bundled database, so that the valid names do not depend on the machine's files.
    fn from_str(text: &str) -> Result<Self, InvalidTimeZone> {
        let zone = TimeZoneDatabase::bundled().get(text).map_err(|_| InvalidTimeZone)?;
        zone.iana_name().map(|name| Self(name.to_owned())).ok_or(InvalidTimeZone)
    }
}

/// Number of days for which content is kept, 1 to 3650.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RetentionDays(u16);

/// The number of days is out of range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be a whole number of days from 1 to 3650")]
pub struct InvalidRetentionDays;

impl RetentionDays {
    /// Maximum number of days.
    pub const MAX: u16 = 3650;

    /// Creates a number of days if it is in range.
    ///
    /// # Errors
    /// [`InvalidRetentionDays`] outside of 1 to 3650.
    pub fn new(days: i64) -> Result<Self, InvalidRetentionDays> {
        match u16::try_from(days) {
            Ok(days @ 1..=Self::MAX) => Ok(Self(days)),
            Ok(_) | Err(_) => Err(InvalidRetentionDays),
        }
    }

    /// Returns the number of days.
    pub const fn get(self) -> u16 {
        self.0
    }
}

impl Default for RetentionDays {
    fn default() -> Self {
        Self(30)
    }
}

impl fmt::Display for RetentionDays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_zone_is_stored_in_the_spelling_of_the_database() {
        let zone: TimeZoneName = "europe/vienna".parse().unwrap();
        assert_eq!(zone.as_str(), "Europe/Vienna");
        assert_eq!(zone.zone().iana_name(), Some("Europe/Vienna"));
        assert_eq!("UTC".parse(), Ok(TimeZoneName::default()));
        for bad in ["", "Vienna", "Europe/Atlantis", "CET-1CEST", "+02:00", "../etc/passwd"] {
            assert!(bad.parse::<TimeZoneName>().is_err(), "{bad}");
        }
    }

    #[test]
    fn retention_is_1_to_3650_days() {
        assert_eq!(
            [0, 1, 3650, 3651, -1].map(|days| RetentionDays::new(days).is_ok()),
            [false, true, true, false, false]
        );
    }

    #[test]
    fn a_name_has_visible_characters_and_no_control_characters() {
        assert!("Bäckerei Öhm & Söhne".parse::<AccountName>().is_ok());
        for bad in ["", "  ", "a\nb", &"x".repeat(256)] {
            assert!(bad.parse::<AccountName>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn an_account_survives_serialization() {
        let account =
            Account::new(AccountId::default(), "Acme".parse().unwrap(), QuotaLimits::default(), Timestamp::ZERO);
        let row = postcard::to_stdvec(&account).unwrap();
        assert_eq!(postcard::from_bytes(&row), Ok(account));
    }
}
