//! An alert as an object of the API and of the webhook, also shown to people.

use serde::Serialize;

use crate::base::id::{self, AccountId, AlertId};
use crate::base::time::{Timestamp, iso};
use crate::domain::alert::{Condition, NoticeKind, Scope, Severity, Subject, SubjectKind};
use crate::engine::Engine;
use crate::engine::settings::Settings;
use crate::store::row::alert::{AlertNotice, AlertRow, Channel, NoticeStatus};

/// An alert with its keys.
#[derive(Debug, Clone)]
pub struct Alert {
    /// Account; zero for the service.
    pub account: AccountId,
    /// Identifier.
    pub id: AlertId,
    /// The alert.
    pub row: AlertRow,
}

/// The record of an alert.
#[derive(Debug, Serialize)]
pub struct AlertRecord<'a> {
    /// Identifier.
    #[serde(serialize_with = "id::as_text")]
    pub id: AlertId,
    /// Condition.
    #[serde(serialize_with = "id::as_text")]
    pub condition: Condition,
    /// Severity.
    pub severity: Severity,
    /// Scope: the service or an account.
    pub scope: Scope,
    /// Subject.
    pub subject: Option<SubjectRecord<'a>>,
    /// One line for people.
    pub summary: &'a str,
    /// Observation, in one sentence.
    pub seen: &'a str,
    /// Advice for the operator.
    pub remedy: String,
    /// Start time.
    #[serde(serialize_with = "iso::serialize")]
    pub opened_at: Timestamp,
    /// End time.
    #[serde(serialize_with = "iso::option::serialize")]
    pub resolved_at: Option<Timestamp>,
    /// Notices sent for this alert.
    pub notices: Vec<NoticeRecord<'a>>,
}

/// The subject of an alert.
#[derive(Debug, Serialize)]
pub struct SubjectRecord<'a> {
    /// Kind of the subject.
    pub kind: SubjectKind,
    /// Identifier of the subject.
    pub id: &'a str,
    /// Name of the subject.
    pub name: &'a str,
}

/// A notice of an alert, without its recipient.
#[derive(Debug, Serialize)]
pub struct NoticeRecord<'a> {
    /// Time of the reported change.
    #[serde(serialize_with = "iso::serialize")]
    pub at: Timestamp,
    /// The change.
    pub kind: NoticeKind,
    /// Mail or webhook.
    pub channel: Channel,
    /// Progress of the notice.
    pub status: NoticeStatus,
    /// The relay that accepted the notice.
    pub relay: Option<&'a str>,
}

impl<'a> From<&'a AlertNotice> for NoticeRecord<'a> {
    fn from(notice: &'a AlertNotice) -> Self {
        let AlertNotice { at, kind, channel, status, .. } = *notice;
        Self { at, kind, channel, status, relay: notice.relay.as_deref() }
    }
}

impl<'a> From<&'a Subject> for SubjectRecord<'a> {
    fn from(subject: &'a Subject) -> Self {
        Self { kind: subject.kind, id: &subject.id, name: &subject.name }
    }
}

impl Engine {
    /// Returns the record of an alert.
    pub fn alert_record<'a>(&self, id: AlertId, row: &'a AlertRow) -> AlertRecord<'a> {
        AlertRecord {
            id,
            condition: row.condition,
            severity: row.severity,
            scope: row.condition.scope(),
            subject: row.subject.as_ref().map(SubjectRecord::from),
            summary: &row.summary,
            seen: &row.seen,
            remedy: self.settings.alert_remedy(row.condition),
            opened_at: row.opened_at,
            resolved_at: row.resolved_at,
            notices: row.notices.iter().map(NoticeRecord::from).collect(),
        }
    }
}

impl Settings {
    /// Returns the advice for a condition, with the URL of its documentation.
    pub fn alert_remedy(&self, condition: Condition) -> String {
        match self.public_url.get() {
            Some(url) => {
                format!("{} See {}/docs/alerts#{condition}", condition.remedy(), url.trim_end_matches('/'))
            }
            None => condition.remedy().to_owned(),
        }
    }
}
