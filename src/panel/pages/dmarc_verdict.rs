//! First lines of the DMARC page: the next step and its reason.

use crate::domain::dmarc_walk::Discovery;
use crate::machine::dmarc_advice::{Action, Advice};
use crate::store::row::domain::DomainRow;

/// The next step of a domain.
pub(super) struct Verdict {
    /// The step.
    pub(super) step: &'static str,
    /// The reason.
    pub(super) reason: String,
    /// Whether mail of the domain's own fails, or sources need a review.
    pub(super) is_problem: bool,
    /// Record to publish.
    pub(super) change: Option<String>,
    /// Whether a check of the DNS is the next step.
    pub(super) needs_check: bool,
}

impl Verdict {
    /// Describes the advice for a domain whose DMARC record is `published`.
    pub(super) fn new(advice: &Advice, published: &Discovery, row: &DomainRow, has_reports: bool) -> Self {
        let verdict = Self {
            step: words(advice.action),
            reason: advice.reason.clone(),
            is_problem: matches!(advice.action, Action::Fix | Action::Review),
            change: advice.record.clone(),
            needs_check: false,
        };
        match (published, row.last_checked_at, row.next_check_at) {
            // A record may exist, so that none is proposed before the check.
            (Discovery::Unknown, None, Some(_)) => Self {
                step: "Check the DNS first",
                reason: "The check shows whether the domain has a DMARC record, and what to publish.".to_owned(),
                change: None,
                needs_check: true,
                ..verdict
            },
            (Discovery::Unknown, None, None) => {
                let reason = "In dev mode the DNS is never checked. Keep the domain's DMARC record if it has one.";
                Self { reason: reason.to_owned(), ..verdict }
            }
            _ if advice.action == Action::Wait && !has_reports => Self {
                step: "No reports yet, so your mail can't be judged",
                reason: format!("{} Send mail and wait: receivers report once a day.", advice.reason),
                ..verdict
            },
            _ => verdict,
        }
    }
}

const fn words(action: Action) -> &'static str {
    match action {
        Action::Publish => "Publish a DMARC record",
        Action::AddRua => "Ask for reports at this server",
        Action::Wait => "Wait for more reports",
        Action::Fix => "Repair your own mail first",
        Action::Review => "Review the sources that fail",
        Action::Quarantine => "Ready for p=quarantine",
        Action::Reject => "Ready for p=reject",
        Action::Keep => "Protected: nothing to do",
    }
}
