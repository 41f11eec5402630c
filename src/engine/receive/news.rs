//! Meaning of a report for one message. Its fields are classified by the same rules as a live answer (contract 6).

use super::AcceptedKind;
use crate::domain::address::Address;
use crate::domain::enhanced_code::EnhancedCode;
use crate::domain::event::{AttemptFacts, Bounce, BounceKind, BounceSource, Complaint};
use crate::mail::report::{
    Action, DeliveryReport, Diagnostic, FeedbackReport, FeedbackType, RecipientReport, Report, UnstructuredBounce,
};
use crate::smtp::reply::words_of;
use crate::smtp::rules::{Refusal, Rules};
use crate::store::op::report::ReportMeaning;
use crate::store::row::message::MessageRow;

/// Advice for a temporary failure: the reporting server no longer retries.
const GAVE_UP: &str = "Send it again if it still matters: the receiver's server has stopped retrying.";

/// Returns the kind of a report that does not concern any message.
pub(super) const fn nothing_in(report: &Report) -> Option<AcceptedKind> {
    match report {
        Report::AutoReply => Some(AcceptedKind::AutoReply),
        Report::Unknown(None) => Some(AcceptedKind::Unknown),
        Report::Delivery(_) | Report::Feedback(_) | Report::Unknown(Some(_)) => None,
    }
}

/// Returns the report's meaning for the message of `row`, and the kind that it is counted as; `None` if it changes
/// nothing.
pub(super) fn of(report: &Report, row: &MessageRow, rules: &Rules) -> Option<(AcceptedKind, ReportMeaning)> {
    match report {
        Report::Delivery(report) => of_delivery(report, row, rules),
        Report::Feedback(report) => of_feedback(report),
        Report::Unknown(Some(bounce)) => Some((AcceptedKind::Undetermined, of_unstructured(bounce, rules))),
        Report::Unknown(None) | Report::AutoReply => None,
    }
}

/// Returns the worst result for our recipient.
fn of_delivery(report: &DeliveryReport, row: &MessageRow, rules: &Rules) -> Option<(AcceptedKind, ReportMeaning)> {
    let considered = of_recipient(&report.recipients, &row.to);
    let first = |action| considered.iter().find(|recipient| recipient.action == action);
    if let Some(failed) = first(Action::Failed) {
        let mut bounce = explained(report, failed, rules);
        // If at least one member of an alias got the message, the address works.
        let all_failed = considered.iter().all(|recipient| recipient.action == Action::Failed);
        bounce.suppressed &= all_failed;
        return Some((AcceptedKind::Bounced, ReportMeaning::Bounced { facts: facts(report, failed), bounce }));
    }
    let delayed = first(Action::Delayed)?;
    let bounce = Bounce { suppressed: false, ..explained(report, delayed, rules) };
    Some((AcceptedKind::Delayed, ReportMeaning::Delayed { facts: facts(report, delayed), bounce }))
}

/// Returns the blocks that name our recipient. A forwarding server names others, so without a match all blocks are
/// used.
fn of_recipient<'r>(blocks: &'r [RecipientReport], to: &Address) -> Vec<&'r RecipientReport> {
    let is_ours = |name: &Option<String>| {
        let address = name.as_deref().and_then(|name| name.parse::<Address>().ok());
        address.is_some_and(|address| address.match_key() == to.match_key())
    };
    let named = |block: &&RecipientReport| is_ours(&block.original_recipient) || is_ours(&block.final_recipient);
    let ours: Vec<_> = blocks.iter().filter(named).collect();
    if ours.is_empty() { blocks.iter().collect() } else { ours }
}

/// Classifies a failure by the receiver's own answer, because the status is the reporting server's interpretation of
/// it.
fn explained(report: &DeliveryReport, recipient: &RecipientReport, rules: &Rules) -> Bounce {
    let diagnostic = recipient.diagnostic.as_ref();
    let code = diagnostic.and_then(|diagnostic| diagnostic.smtp_code).filter(|code| *code >= 400);
    let enhanced = diagnostic.and_then(|diagnostic| diagnostic.enhanced).or(recipient.status);
    let words = diagnostic.map(|diagnostic| words_of(&diagnostic.sentence())).unwrap_or_default();
    let host = host(report, recipient);
    let bounce = rules.explain(Refusal { host, code, enhanced, words: &words }, BounceSource::Dsn);
    let promised_more = code.map_or_else(|| enhanced.is_none_or(|code| code.class != 5), |code| code < 500);
    if recipient.action == Action::Failed && promised_more {
        return Bounce { advice: GAVE_UP.to_owned(), ..bounce };
    }
    bounce
}

fn facts(report: &DeliveryReport, recipient: &RecipientReport) -> AttemptFacts {
    let diagnostic = recipient.diagnostic.as_ref();
    AttemptFacts {
        smtp_code: diagnostic.and_then(|diagnostic| diagnostic.smtp_code),
        smtp_enhanced_code: text_of(diagnostic.and_then(|diagnostic| diagnostic.enhanced).or(recipient.status)),
        smtp_response: diagnostic.map(|Diagnostic { text, .. }| text.clone()),
        mx_host: host(report, recipient).map(str::to_owned),
        ..AttemptFacts::default()
    }
}

/// Returns the server that refused, or the reporting server if none is named.
fn host<'r>(report: &'r DeliveryReport, recipient: &'r RecipientReport) -> Option<&'r str> {
    recipient.remote_mta.as_deref().or(report.reporting_mta.as_deref())
}

fn text_of(code: Option<EnhancedCode>) -> Option<String> {
    code.map(|code| code.to_string())
}

/// A bounce without standard fields is a guess. It is recorded, but does not suppress the recipient.
fn of_unstructured(said: &UnstructuredBounce, rules: &Rules) -> ReportMeaning {
    let words = words_of(&said.text);
    let refusal = Refusal { host: None, code: said.smtp_code, enhanced: said.enhanced, words: &words };
    let guess = rules.explain(refusal, BounceSource::Dsn);
    let bounce = Bounce { kind: BounceKind::Undetermined, suppressed: false, ..guess };
    let facts = AttemptFacts {
        smtp_code: said.smtp_code,
        smtp_enhanced_code: text_of(said.enhanced),
        smtp_response: Some(said.text.clone()),
        ..AttemptFacts::default()
    };
    ReportMeaning::Bounced { facts, bounce }
}

/// Only a report by a recipient is a complaint: `not-spam` withdraws one, and authentication failures are reported by
/// machines.
fn of_feedback(report: &FeedbackReport) -> Option<(AcceptedKind, ReportMeaning)> {
    let name = match &report.feedback_type {
        FeedbackType::NotSpam | FeedbackType::AuthFailure => return None,
        FeedbackType::Abuse => "abuse",
        FeedbackType::Fraud => "fraud",
        FeedbackType::Virus => "virus",
        FeedbackType::Other => "other",
        FeedbackType::OptOut => "opt-out",
        FeedbackType::Unregistered(name) => name,
    };
    let complaint = Complaint { feedback_type: Some(name.to_owned()), reporter: report.reporter.clone() };
    Some((AcceptedKind::Complained, ReportMeaning::Complained(complaint)))
}
