//! Texts of notices by mail: alerts, tests and invitations.

use std::fmt::Write as _;

use super::record::Alert;
use crate::base::time::Timestamp;
use crate::domain::alert::{NoticeKind, Scope};
use crate::engine::Engine;
use crate::store::row::notice::NoticeItem;

/// A mail without its addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MailText {
    pub(super) subject: String,
    pub(super) text: String,
    /// Alerts that it reports.
    pub(super) alerts: Vec<String>,
}

impl Engine {
    /// Returns the mail that reports these changes, the most urgent first.
    pub(super) fn words_of_alerts(&self, mut changes: Vec<(NoticeItem, Alert)>) -> MailText {
        let urgency = |(item, alert): &(NoticeItem, Alert)| match item.kind {
            NoticeKind::Resolved => None,
            _ => Some(alert.row.severity),
        };
        changes.sort_by_key(|change| std::cmp::Reverse(urgency(change)));
        let hostname = &self.settings.hostname;
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
        alerts.dedup();
        self.sign(&mut text);
        MailText { subject: format!("[{hostname}] {first}{more}"), text, alerts }
    }

    /// Appends one change. Writing to a string can't fail.
    fn describe(&self, text: &mut String, item: NoticeItem, alert: &Alert, heading: &str) {
        let row = &alert.row;
        let _ = writeln!(text, "{heading}\n");
        let _ = writeln!(text, "Alert:     {} ({})", row.condition, alert.id);
        if let Some(subject) = &row.subject {
            let _ = writeln!(text, "About:     {} {}", subject.kind.as_str(), subject.name);
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

    /// Returns the mail of a test.
    pub(super) fn words_of_test(&self) -> MailText {
        let hostname = &self.settings.hostname;
        let mut text = "This is a test of alerts. Nothing is wrong, and there is nothing to do.\n\n".to_owned();
        self.sign(&mut text);
        MailText { subject: format!("[{hostname}] INFO: Test of alerts"), text, alerts: Vec::new() }
    }

    /// Returns the mail of an invitation. It contains no text chosen by the inviter or the account.
    pub(super) fn words_of_invitation(&self, link: &str, expires_at: Timestamp) -> MailText {
        let hostname = &self.settings.hostname;
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
        let _ = writeln!(text, "-- \nSent by Postrider at {}.", self.settings.hostname);
        if let Some(url) = self.settings.public_url.get() {
            let _ = writeln!(text, "{}/alerts", url.trim_end_matches('/'));
        }
    }
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
