//! Alerts: the conditions reported to people, with their names, scopes and severities.
//!
//! The names are part of the API. Stored rows contain the position of a condition or a kind.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

mod remedy;

/// Maximum length of a summary in bytes: it is the subject of a mail.
const SUMMARY_BYTES_MAX: usize = 200;
/// Maximum length of an observation in bytes.
const SEEN_BYTES_MAX: usize = 1000;

/// Urgency of an alert, in ascending order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Something happened that the reader should know about.
    Info,
    /// Something needs attention soon.
    Warning,
    /// Mail is not sent, or data is in danger.
    Critical,
}

impl Severity {
    /// All severities, the least urgent first.
    pub const ALL: [Self; 3] = [Self::Info, Self::Warning, Self::Critical];

    /// Returns the name on every interface.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }

    /// Returns the word in the subject of a mail.
    pub const fn as_heading(self) -> &'static str {
        match self {
            Self::Info => "INFO",
            Self::Warning => "WARNING",
            Self::Critical => "CRITICAL",
        }
    }
}

/// The scope of an alert.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// One account.
    Account,
    /// The whole service.
    System,
}

/// The subject of an alert: a relay, domain, endpoint or user. Used by conditions that can hold for several at once.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Subject {
    /// Kind of the subject.
    pub kind: SubjectKind,
    /// Identifier, or the name if there is no identifier.
    pub id: String,
    /// Display name.
    pub name: String,
}

impl Subject {
    /// Returns the subject with this identifier and name.
    pub fn new(kind: SubjectKind, id: impl ToString, name: impl Into<String>) -> Self {
        Self { kind, id: id.to_string(), name: printable(&name.into(), SUMMARY_BYTES_MAX) }
    }

    /// Returns a subject that is identified by its name.
    pub fn named(kind: SubjectKind, name: impl ToString) -> Self {
        let name = name.to_string();
        Self::new(kind, name.clone(), name)
    }
}

/// Kind of an alert's subject.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SubjectKind {
    /// An IP address from which mail is sent.
    Address,
    /// A relay.
    Relay,
    /// A stream.
    Stream,
    /// A mailbox provider.
    Provider,
    /// A webhook endpoint.
    Webhook,
    /// A sending domain.
    Domain,
    /// A user of the panel.
    User,
}

impl SubjectKind {
    /// Returns the name on every interface.
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

/// A change of an alert that a notice reports. Rows store its position, so new ones are added at the end.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NoticeKind {
    /// The alert was opened.
    Opened,
    /// The severity rose.
    Worse,
    /// The alert is still open after a day.
    Reminder,
    /// The alert is resolved.
    Resolved,
    /// A test: no alert changed.
    Test,
}

impl NoticeKind {
    /// Returns the name in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Opened => "opened",
            Self::Worse => "worse",
            Self::Reminder => "reminder",
            Self::Resolved => "resolved",
            Self::Test => "test",
        }
    }

    /// Returns the type of the webhook that reports the change.
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

/// Error: the text is not the name of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("is not the name of an alert condition")]
pub struct InvalidCondition;

macro_rules! conditions {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $scope:ident, [$($severity:ident),*];)*) => {
        /// A condition that causes an alert. Rows store its position, so new ones are added at the end.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
        pub enum Condition {$($(#[$doc])* $name,)*}

        impl Condition {
            /// All conditions.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// Returns the name on every interface, which is also the anchor in the documentation.
            pub const fn as_str(self) -> &'static str {
                match self {$(Self::$name => $text,)*}
            }

            /// Returns the condition's scope.
            pub const fn scope(self) -> Scope {
                match self {$(Self::$name => Scope::$scope,)*}
            }

            /// Returns the severities that the condition may have.
            pub const fn severities(self) -> &'static [Severity] {
                match self {$(Self::$name => &[$(Severity::$severity),*],)*}
            }
        }
    };
}

conditions! {
    /// No mail server of the large providers can be reached on port 25.
    Port25Blocked = "port25_blocked", System, [Critical];
    /// A source address has no reverse name that resolves back to it, or it differs from the EHLO name.
    ReverseDns = "reverse_dns", System, [Warning, Critical];
    /// A source address is on a block list.
    Blocklisted = "blocklisted", System, [Critical];
    /// The TLS certificate expires soon.
    CertificateExpiring = "certificate_expiring", System, [Warning, Critical];
    /// The disk has little free space.
    DiskLow = "disk_low", System, [Warning, Critical];
    /// The last backup is too old.
    BackupOld = "backup_old", System, [Warning];
    /// The last run did not stop cleanly.
    UncleanStop = "unclean_stop", System, [Warning];
    /// Queued mail is not sent.
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
    /// A verified domain is failing or no longer verified.
    DomainFailing = "domain_failing", Account, [Critical];
    /// A record of a domain has changed, or the record of a standby key is missing.
    DomainRecord = "domain_record", Account, [Warning];
    /// Most of the day's quota is used, or a message was refused because the quota was exhausted.
    Quota = "quota", Account, [Warning, Critical];
    /// The account's own mail fails DMARC at receivers.
    DmarcOwnFailing = "dmarc_own_failing", Account, [Critical];
    /// A user signed in from a new browser.
    NewSignIn = "new_sign_in", Account, [Info];
    /// The wall clock is doubtful.
    ClockDoubtful = "clock_doubtful", System, [Critical];
    /// Damage was found in the store.
    StoreDamaged = "store_damaged", System, [Critical];
    /// Replication does not keep up.
    Replica = "replica", System, [Warning, Critical];
}

impl Condition {
    /// Returns the number of consecutive checks that must find the condition before its alert opens.
    pub const fn looks(self) -> u8 {
        match self {
            Self::Port25Blocked | Self::ReverseDns => 2,
            _ => 1,
        }
    }

    /// Returns whether each occurrence has its own alert, so that a later one does not hide it.
    pub const fn keeps_each(self) -> bool {
        matches!(self, Self::NewSignIn)
    }

    /// Returns the byte for storage keys.
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

/// A found condition.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Sighting {
    /// The condition.
    pub condition: Condition,
    /// Subject of the condition, if it can hold for several.
    pub subject: Option<Subject>,
    /// Urgency of the condition.
    pub severity: Severity,
    /// One line that describes the alert.
    pub summary: String,
    /// Observation, in one sentence.
    pub seen: String,
}

impl Sighting {
    /// Creates a sighting for the whole scope.
    pub fn new(condition: Condition, severity: Severity, summary: impl AsRef<str>, seen: impl AsRef<str>) -> Self {
        let summary = printable(summary.as_ref(), SUMMARY_BYTES_MAX);
        Self { condition, subject: None, severity, summary, seen: printable(seen.as_ref(), SEEN_BYTES_MAX) }
    }

    /// Sets the finding's subject.
    #[must_use]
    pub fn of(self, subject: Subject) -> Self {
        Self { subject: Some(subject), ..self }
    }

    /// Returns the identifier of its subject; empty without one.
    pub fn subject_id(&self) -> &str {
        self.subject.as_ref().map_or("", |subject| &subject.id)
    }
}

/// Returns the text as one line of at most `bytes_max` bytes. Parts of it may come from untrusted sources.
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
    fn a_condition_parses_from_its_name_and_has_a_remedy() {
        for condition in Condition::ALL {
            assert_eq!(condition.to_string().parse(), Ok(*condition));
            assert!(condition.remedy().ends_with('.') && !condition.severities().is_empty(), "{condition}");
        }
        assert!("nonsense".parse::<Condition>().is_err());
    }

    #[test]
    fn untrusted_text_becomes_one_short_line() {
        let sighting = Sighting::new(Condition::DiskLow, Severity::Warning, "a\r\nBcc: b", "ä".repeat(999));
        assert_eq!(sighting.summary, "a  Bcc: b");
        assert_eq!(sighting.seen.len(), SEEN_BYTES_MAX);
        assert_eq!(Subject::named(SubjectKind::Relay, "x\u{1b}y").name, "x y");
    }
}
