//! Alerts: one row for each alert, one for each condition and subject with its state, and one for each open alert.
//!
//! Keys begin with the account, which is zero for alerts of the whole service.

use serde::{Deserialize, Serialize};

use super::Row;
use crate::base::id::{AlertId, NoticeId};
use crate::base::time::Timestamp;
use crate::domain::alert::{Condition, NoticeKind, Severity, Sighting, Subject};
use crate::machine::alert::State;
use crate::store::schema::Table;

/// Maximum number of notices in an alert's row; older ones are dropped.
pub const NOTICES_MAX: usize = 100;

/// An alert.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlertRow {
    /// Condition.
    pub condition: Condition,
    /// Severity, or the last one before it was resolved.
    pub severity: Severity,
    /// Highest severity so far.
    pub worst: Severity,
    /// Subject, if the condition has one.
    pub subject: Option<Subject>,
    /// One line that describes the alert.
    pub summary: String,
    /// Last observation.
    pub seen: String,
    /// Time at which the alert opened.
    pub opened_at: Timestamp,
    /// Time at which the alert ended; `None` while it is open.
    pub resolved_at: Option<Timestamp>,
    /// Changes without a notice yet, oldest first.
    pub announcements: Vec<PendingNotice>,
    /// Notices sent, oldest first.
    pub notices: Vec<AlertNotice>,
}

impl AlertRow {
    /// Creates the alert of a sighting, which opens at `now`.
    pub fn opened(sighting: &Sighting, now: Timestamp) -> Self {
        Self {
            condition: sighting.condition,
            severity: sighting.severity,
            worst: sighting.severity,
            subject: sighting.subject.clone(),
            summary: sighting.summary.clone(),
            seen: sighting.seen.clone(),
            opened_at: now,
            resolved_at: None,
            announcements: Vec::new(),
            notices: Vec::new(),
        }
    }
}

/// A change to be announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingNotice {
    /// The change.
    pub kind: NoticeKind,
    /// Time of the change.
    pub at: Timestamp,
}

/// A notice of an alert, as its record lists it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlertNotice {
    /// The notice; several alerts may share one.
    pub notice: NoticeId,
    /// Time of the reported change.
    pub at: Timestamp,
    /// The change.
    pub kind: NoticeKind,
    /// Mail or webhook.
    pub channel: Channel,
    /// Progress of the notice.
    pub status: NoticeStatus,
    /// The relay that accepted the notice.
    pub relay: Option<String>,
}

/// Channel of a notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Channel {
    /// Mail.
    Email,
    /// The operator's webhook.
    Webhook,
}

impl Channel {
    /// Returns the name on every interface.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Email => "email",
            Self::Webhook => "webhook",
        }
    }
}

/// Progress of a notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NoticeStatus {
    /// The notice waits for its first attempt or a retry.
    Pending,
    /// Accepted by the receiver.
    Sent,
    /// Failed in all attempts.
    Failed,
}

impl NoticeStatus {
    /// Returns the name on every interface.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Sent => "sent",
            Self::Failed => "failed",
        }
    }
}

impl Row for AlertRow {
    const TABLE: Table = Table::Alerts;
}

/// The state of one condition and subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AlertStateRow {
    /// State of the alert's machine.
    pub state: State,
    /// Last alert, if there was one.
    pub alert: Option<AlertId>,
}

impl Row for AlertStateRow {
    const TABLE: Table = Table::AlertStates;
}

/// An open alert, for counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenAlertRow {
    /// Condition.
    pub condition: Condition,
    /// Severity.
    pub severity: Severity,
}

impl Row for OpenAlertRow {
    const TABLE: Table = Table::OpenAlerts;
}
