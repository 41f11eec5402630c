//! Texts of notices by mail: alerts, tests and invitations.

use std::collections::HashSet;
use std::fmt::Write as _;

use super::record::Alert;
use crate::base::id::AlertId;
use crate::base::time::Timestamp;
use crate::domain::alert::{NoticeKind, Scope, SubjectKind};
use crate::domain::provider_name::provider_name;
use crate::engine::settings::Settings;
use crate::store::row::notice::NoticeItem;

/// A mail without its addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MailText {
    pub(super) subject: String,
    pub(super) text: String,
    /// Alerts that the mail reports.
    pub(super) alerts: Vec<String>,
}

impl Settings {
    /// Returns the mail that reports these changes, oldest first. The most urgent alert comes first in the mail.
    pub(super) fn alert_mail(&self, changes: Vec<(NoticeItem, Alert)>) -> MailText {
        let mut changes = last_of_each(changes);
        let urgency = |(item, alert): &(NoticeItem, Alert)| match item.kind {
            NoticeKind::Resolved => None,
            _ => Some(alert.row.severity),
        };
        changes.sort_by_key(|change| std::cmp::Reverse(urgency(change)));
        let hostname = &self.hostname;
        let headings: Vec<_> = changes.iter().map(|(item, alert)| heading(item.kind, alert)).collect();
        let first = headings.first().map(String::as_str).unwrap_or_default();
        let more = match headings.len().saturating_sub(1) {
            0 => String::new(),
            more => format!(" (and {more} more)"),
        };
        let mut text = String::new();
        for ((item, alert), heading) in changes.iter().zip(&headings) {
            self.describe(&mut text, *item, alert, heading);
        }
        let mut alerts: Vec<_> = changes.iter().map(|(_, alert)| alert.id.to_string()).collect();
        alerts.sort();
        self.sign(&mut text);
        self.link_alerts(&mut text);
        MailText { subject: format!("[{hostname}] {first}{more}"), text, alerts }
    }

    /// Appends one change. Writing to a string can't fail.
    fn describe(&self, text: &mut String, item: NoticeItem, alert: &Alert, heading: &str) {
        let row = &alert.row;
        let _ = writeln!(text, "{heading}\n");
        let _ = writeln!(text, "Alert:     {} ({})", row.condition, alert.id);
        if let Some(subject) = &row.subject {
            let name = match subject.kind {
                SubjectKind::Provider => provider_name(&subject.name),
                _ => &subject.name,
            };
            let _ = writeln!(text, "About:     {} {name}", subject.kind.as_str());
        }
        if row.condition.scope() == Scope::Account {
            let _ = writeln!(text, "Account:   {}", alert.account);
        }
        if !row.seen.is_empty() {
            let _ = writeln!(text, "Seen:      {}", row.seen);
        }
        let _ = writeln!(text, "Opened at: {}", row.opened_at);
        match row.resolved_at {
            Some(resolved_at) if item.kind == NoticeKind::Resolved => {
                let _ = writeln!(text, "Ended at:  {resolved_at}");
            }
            _ => {
                if item.kind == NoticeKind::Reminder {
                    let _ = writeln!(text, "It is still open.");
                }
                let _ = writeln!(text, "\nWhat to do: {}", self.alert_remedy(row.condition));
            }
        }
        text.push_str("\n\n");
    }

    /// Returns the mail of a test. It names an alert that does not exist, so that filters for alerts match it.
    pub(super) fn test_mail(&self, alert: AlertId) -> MailText {
        let hostname = &self.hostname;
        let mut text = "This is a test of alerts. Nothing is wrong, and there is nothing to do.\n\n".to_owned();
        self.sign(&mut text);
        self.link_alerts(&mut text);
        MailText { subject: format!("[{hostname}] INFO: Test of alerts"), text, alerts: vec![alert.to_string()] }
    }

    /// Returns the mail of an invitation. It contains no text that the inviter or the account chose.
    pub(super) fn invitation_mail(&self, link: &str, expires_at: Timestamp) -> MailText {
        let hostname = &self.hostname;
        let mut text = format!(
            "You are invited to the panel of the mail service at {hostname}.\n\n\
             Open this link to choose a password:\n\n{link}\n\n\
             The link works once, until {expires_at}.\n\
             If you did not expect this mail, ignore it: without the link nobody can use the invitation.\n\n"
        );
        self.sign(&mut text);
        MailText { subject: format!("[{hostname}] Invitation to the panel"), text, alerts: Vec::new() }
    }

    fn sign(&self, text: &mut String) {
        let _ = writeln!(text, "-- \nSent by Postrider at {}.", self.hostname);
    }

    fn link_alerts(&self, text: &mut String) {
        if let Some(url) = self.public_url.get() {
            let _ = writeln!(text, "{}/alerts", url.trim_end_matches('/'));
        }
    }
}

/// Keeps the last change of each alert. Its row is the result of all of them, so an earlier one would repeat it.
fn last_of_each(changes: Vec<(NoticeItem, Alert)>) -> Vec<(NoticeItem, Alert)> {
    let mut seen = HashSet::new();
    let mut kept: Vec<_> = changes.into_iter().rev().filter(|(_, alert)| seen.insert(alert.id)).collect();
    kept.reverse();
    kept
}

fn heading(kind: NoticeKind, alert: &Alert) -> String {
    let word = match kind {
        NoticeKind::Resolved => "RESOLVED",
        NoticeKind::Opened | NoticeKind::Worse | NoticeKind::Reminder | NoticeKind::Test => {
            alert.row.severity.as_heading()
        }
    };
    format!("{word}: {}", alert.row.summary)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::{AccountId, Ulid};
    use crate::domain::alert::{Condition, Severity};
    use crate::store::row::alert::AlertRow;

    const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);

    fn change(number: u8, condition: Condition, severity: Severity, kind: NoticeKind) -> (NoticeItem, Alert) {
        let (account, id) = (AccountId(Ulid([1; 16])), AlertId(Ulid([number; 16])));
        let row = AlertRow {
            condition,
            severity,
            worst: severity,
            subject: None,
            summary: format!("summary of {condition}"),
            seen: "seen".to_owned(),
            opened_at: NOW,
            resolved_at: (kind == NoticeKind::Resolved).then_some(NOW),
            announcements: Vec::new(),
            notices: Vec::new(),
        };
        (NoticeItem { account, alert: id, kind, at: NOW }, Alert { account, id, row })
    }

    #[test]
    fn an_alert_that_opens_and_becomes_worse_counts_once() {
        let quota = |kind| change(1, Condition::Quota, Severity::Critical, kind);
        let disk = change(2, Condition::DiskLow, Severity::Warning, NoticeKind::Opened);
        let changes = vec![quota(NoticeKind::Opened), disk, quota(NoticeKind::Worse)];
        let mail = Settings::for_tests().alert_mail(changes);
        assert_eq!(mail.subject, "[mail.example.com] CRITICAL: summary of quota (and 1 more)");
        assert_eq!(mail.text.matches("summary of quota").count(), 1);
        assert_eq!(mail.alerts.len(), 2);
        let alone = Settings::for_tests().alert_mail(vec![quota(NoticeKind::Opened), quota(NoticeKind::Worse)]);
        assert_eq!(alone.subject, "[mail.example.com] CRITICAL: summary of quota");
    }

    #[test]
    fn an_alert_that_opens_and_ends_is_reported_as_ended_behind_open_ones() {
        let quota = |kind| change(1, Condition::Quota, Severity::Critical, kind);
        let disk = change(2, Condition::DiskLow, Severity::Warning, NoticeKind::Opened);
        let mail = Settings::for_tests().alert_mail(vec![quota(NoticeKind::Opened), quota(NoticeKind::Resolved), disk]);
        assert_eq!(mail.subject, "[mail.example.com] WARNING: summary of disk_low (and 1 more)");
        assert!(mail.text.contains("RESOLVED: summary of quota") && !mail.text.contains("CRITICAL"));
    }

    #[test]
    fn only_mails_about_alerts_lead_to_the_alerts() {
        let settings = Settings::for_tests();
        let link = "https://mail.example.com/setup?token=x";
        let invitation = settings.invitation_mail(link, NOW).text;
        let links: Vec<_> = invitation.lines().filter(|line| line.contains("https://")).collect();
        assert_eq!(links, [link]);
        assert!(invitation.ends_with("-- \nSent by Postrider at mail.example.com.\n"));
        let disk = change(2, Condition::DiskLow, Severity::Warning, NoticeKind::Opened);
        for mail in [settings.test_mail(AlertId(Ulid([9; 16]))), settings.alert_mail(vec![disk])] {
            assert!(mail.text.ends_with("\nhttps://mail.example.com/alerts\n"), "{}", mail.text);
        }
    }
}
