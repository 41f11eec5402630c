//! Alerts: the conditions that people are alerted to, with their names, scopes and severities.
//!
//! The names are part of the API. The place of a condition or a kind stands in stored rows.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

mod remedy;

/// Bytes of a summary at most: it stands in the subject of a mail.
const SUMMARY_BYTES_MAX: usize = 200;
/// Bytes of what was seen at most.
const SEEN_BYTES_MAX: usize = 1000;

/// Urgency of an alert, in ascending order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Something happened that its reader should know of.
    Info,
    /// Something needs attention soon.
    Warning,
    /// Mail does not go out, or data is in danger.
    Critical,
}

impl Severity {
    /// All of them, the least urgent first.
    pub const ALL: [Self; 3] = [Self::Info, Self::Warning, Self::Critical];

    /// The name on every interface.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }

    /// The word in the subject of a mail.
    pub const fn as_heading(self) -> &'static str {
        match self {
            Self::Info => "INFO",
            Self::Warning => "WARNING",
            Self::Critical => "CRITICAL",
        }
    }
}

/// Whom an alert concerns.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// One account.
    Account,
    /// The whole service.
    System,
}

/// The relay, domain, endpoint or user that an alert is about, for conditions that can hold for several at once.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Subject {
    /// The kind of thing.
    pub kind: SubjectKind,
    /// Its identifier, or its name where it has no other.
    pub id: String,
    /// Its name for people.
    pub name: String,
}

impl Subject {
    /// The subject with this identifier and name.
    pub fn new(kind: SubjectKind, id: impl ToString, name: impl Into<String>) -> Self {
        Self { kind, id: id.to_string(), name: printable(&name.into(), SUMMARY_BYTES_MAX) }
    }

    /// A subject that is identified by its name.
    pub fn named(kind: SubjectKind, name: impl ToString) -> Self {
        let name = name.to_string();
        Self::new(kind, name.clone(), name)
    }
}

/// A kind of thing that an alert may be about.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SubjectKind {
    /// An IP address that mail is sent from.
    Address,
    /// A relay.
    Relay,
    /// A stream.
    Stream,
    /// A provider of mailboxes.
    Provider,
    /// A webhook endpoint.
    Webhook,
    /// A sending domain.
    Domain,
    /// A user of the panel.
    User,
}

impl SubjectKind {
    /// The name on every interface.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Address => "address",
            Self::Relay => "relay",
            Self::Stream => "stream",
            Self::Provider => "provider",
            Self::Webhook => "webhook",
            Self::Domain => "domain",
            Self::User => "user",
        }
    }
}

/// A change of an alert that a notice reports. Stored by its place: new ones come last.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NoticeKind {
    /// The alert was opened.
    Opened,
    /// Its severity rose.
    Worse,
    /// It is still open after a day.
    Reminder,
    /// It is resolved.
    Resolved,
    /// A test: no alert changed.
    Test,
}

impl NoticeKind {
    /// The name in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Opened => "opened",
            Self::Worse => "worse",
            Self::Reminder => "reminder",
            Self::Resolved => "resolved",
            Self::Test => "test",
        }
    }

    /// The type of the webhook that reports it.
    pub const fn webhook_type(self) -> &'static str {
        match self {
            Self::Opened => "alert.opened",
            Self::Worse => "alert.worse",
            Self::Reminder => "alert.reminder",
            Self::Resolved => "alert.resolved",
            Self::Test => "alert.test",
        }
    }
}

/// The text names no condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("is not a condition that alerts know")]
pub struct InvalidCondition;

macro_rules! conditions {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $scope:ident, [$($severity:ident),*];)*) => {
        /// A condition that people are alerted to. Stored by its place: new ones come last.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
        pub enum Condition {$($(#[$doc])* $name,)*}

        impl Condition {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// The name on every interface, and the anchor in the documentation.
            pub const fn as_str(self) -> &'static str {
                match self {$(Self::$name => $text,)*}
            }

            /// Whom it concerns.
            pub const fn scope(self) -> Scope {
                match self {$(Self::$name => Scope::$scope,)*}
            }

            /// The severities that it may have.
            pub const fn severities(self) -> &'static [Severity] {
                match self {$(Self::$name => &[$(Severity::$severity),*],)*}
            }
        }
    };
}

conditions! {
    /// No mail server of the large providers can be reached on the port of mail.
    Port25Blocked = "port25_blocked", System, [Critical];
    /// A source address has no name that leads back to it, or another than the EHLO name.
    ReverseDns = "reverse_dns", System, [Warning, Critical];
    /// A source address is on a block list.
    Blocklisted = "blocklisted", System, [Critical];
    /// The TLS certificate expires soon.
    CertificateExpiring = "certificate_expiring", System, [Warning, Critical];
    /// The disk has little free space.
    DiskLow = "disk_low", System, [Warning, Critical];
    /// The last backup is too old.
    BackupOld = "backup_old", System, [Warning];
    /// The last run did not end by itself.
    UncleanStop = "unclean_stop", System, [Warning];
    /// Queued mail does not go out.
    QueueStalled = "queue_stalled", System, [Critical];
    /// A relay refuses the login, or its source address is not this machine's.
    RelayFailing = "relay_failing", System, [Critical];
    /// A stream's bounce rate is high.
    BounceRate = "bounce_rate", Account, [Warning, Critical];
    /// A stream's complaint rate is high.
    ComplaintRate = "complaint_rate", Account, [Warning, Critical];
    /// A provider blocks the account's mail.
    ProviderBlocking = "provider_blocking", Account, [Warning, Critical];
    /// The service disabled a webhook endpoint.
    WebhookDisabled = "webhook_disabled", Account, [Critical];
    /// A verified domain is failing, or not verified any more.
    DomainFailing = "domain_failing", Account, [Critical];
    /// A record of a domain is not as it was, or the record of a standby key is missing.
    DomainRecord = "domain_record", Account, [Warning];
    /// Most of the day's quota is used, or a send was refused for want of quota.
    Quota = "quota", Account, [Warning, Critical];
    /// Own mail fails DMARC at receivers.
    DmarcOwnFailing = "dmarc_own_failing", Account, [Critical];
    /// A user signed in from a browser that was not known.
    NewSignIn = "new_sign_in", Account, [Info];
    /// The wall clock is doubtful.
    ClockDoubtful = "clock_doubtful", System, [Critical];
    /// Damage was found in the store.
    StoreDamaged = "store_damaged", System, [Critical];
    /// Replication does not keep up.
    Replica = "replica", System, [Warning, Critical];
}

impl Condition {
    /// Number of consecutive checks that must find the condition before its alert opens.
    pub const fn looks(self) -> u8 {
        match self {
            Self::Port25Blocked | Self::ReverseDns => 2,
            _ => 1,
        }
    }

    /// The byte that stands for it in storage keys.
    pub const fn code(self) -> u8 {
        self as u8
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Condition {
    type Err = InvalidCondition;

    fn from_str(text: &str) -> Result<Self, InvalidCondition> {
        Self::ALL.iter().find(|known| known.as_str() == text).copied().ok_or(InvalidCondition)
    }
}

/// A condition as it was found.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Sighting {
    /// The condition.
    pub condition: Condition,
    /// The thing that the condition was found for, if it can hold for several.
    pub subject: Option<Subject>,
    /// Urgency of the condition.
    pub severity: Severity,
    /// One line for people.
    pub summary: String,
    /// Observation, in one sentence.
    pub seen: String,
}

impl Sighting {
    /// A condition of the whole scope.
    pub fn new(condition: Condition, severity: Severity, summary: impl AsRef<str>, seen: impl AsRef<str>) -> Self {
        let summary = printable(summary.as_ref(), SUMMARY_BYTES_MAX);
        Self { condition, subject: None, severity, summary, seen: printable(seen.as_ref(), SEEN_BYTES_MAX) }
    }

    /// The same of one thing.
    #[must_use]
    pub fn of(self, subject: Subject) -> Self {
        Self { subject: Some(subject), ..self }
    }

    /// The identifier of its subject; empty where it has none.
    pub fn subject_id(&self) -> &str {
        self.subject.as_ref().map_or("", |subject| &subject.id)
    }
}

/// The text on one line of at most `bytes_max` bytes. Parts of it may be the words of others.
fn printable(text: &str, bytes_max: usize) -> String {
    let mut out = String::with_capacity(text.len().min(bytes_max));
    for character in text.chars() {
        let character = if character.is_control() { ' ' } else { character };
        if out.len() + character.len_utf8() > bytes_max {
            break;
        }
        out.push(character);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_is_read_from_its_name_and_has_a_remedy() {
        for condition in Condition::ALL {
            assert_eq!(condition.to_string().parse(), Ok(*condition));
            assert!(condition.remedy().ends_with('.') && !condition.severities().is_empty(), "{condition}");
        }
        assert!("nonsense".parse::<Condition>().is_err());
    }

    #[test]
    fn the_words_of_others_stay_on_one_short_line() {
        let sighting = Sighting::new(Condition::DiskLow, Severity::Warning, "a\r\nBcc: b", "ä".repeat(999));
        assert_eq!(sighting.summary, "a  Bcc: b");
        assert_eq!(sighting.seen.len(), SEEN_BYTES_MAX);
        assert_eq!(Subject::named(SubjectKind::Relay, "x\u{1b}y").name, "x y");
    }
}
