//! Properties of the parser of returned mail for arbitrary bytes: it does not panic, its output is bounded and free of
//! control characters, and it is deterministic. The fuzz target and the tests in `tests/it` call it.

use postrider::mail::report::{
    Action, DeliveryReport, FIELD_BYTES_MAX, FeedbackReport, FeedbackType, HEADER_BYTES_MAX, RECIPIENTS_MAX, Report,
    ReturnedHeader, TEXT_BYTES_MAX, read,
};

/// Parses `message`, checks the properties of every report, and returns it.
pub(crate) fn check(message: &[u8]) -> Report {
    let report = read(message);
    match &report {
        Report::Delivery(delivery) => check_delivery(delivery),
        Report::Feedback(feedback) => check_feedback(feedback),
        Report::Unknown(Some(bounce)) => {
            text(&bounce.text, TEXT_BYTES_MAX);
            assert!(bounce.smtp_code.is_none_or(|code| (400..600).contains(&code)));
        }
        Report::AutoReply | Report::Unknown(None) => {}
    }
    assert_eq!(read(message), report, "the same bytes give the same report");
    report
}

fn check_delivery(report: &DeliveryReport) {
    field(report.reporting_mta.as_deref());
    assert!((1..=RECIPIENTS_MAX).contains(&report.recipients.len()));
    for recipient in &report.recipients {
        for text in [
            &recipient.final_recipient,
            &recipient.original_recipient,
            &recipient.remote_mta,
            &recipient.will_retry_until,
        ] {
            field(text.as_deref());
        }
        if let Some(diagnostic) = &recipient.diagnostic {
            text(&diagnostic.text, TEXT_BYTES_MAX);
            assert!(!diagnostic.text.is_empty());
            assert!(diagnostic.sentence().len() <= TEXT_BYTES_MAX);
            assert!(diagnostic.smtp_code.is_none_or(|code| (200..600).contains(&code)));
        }
        let status = recipient.status.map_or(2, |status| status.class);
        assert!([2, 4, 5].contains(&status));
        assert!(matches!(
            recipient.action,
            Action::Failed | Action::Delayed | Action::Delivered | Action::Relayed | Action::Expanded
        ));
    }
    check_returned(&report.returned);
}

fn check_feedback(report: &FeedbackReport) {
    if let FeedbackType::Unregistered(name) = &report.feedback_type {
        field(Some(name));
    }
    field(report.reporter.as_deref());
    if let Some(sender) = report.original_mail_from.as_deref() {
        text(sender, FIELD_BYTES_MAX);
    }
    assert!(report.original_rcpt_to.len() <= RECIPIENTS_MAX);
    for recipient in &report.original_rcpt_to {
        field(Some(recipient));
        assert!(recipient.contains('@'));
    }
    check_returned(&report.returned);
}

fn check_returned(returned: &ReturnedHeader) {
    assert!(returned.section().len() <= HEADER_BYTES_MAX);
    for (name, value) in returned.fields() {
        text(&name, FIELD_BYTES_MAX);
        text(&value, FIELD_BYTES_MAX);
    }
}

/// Checks a field: if present, it is not empty.
fn field(found: Option<&str>) {
    if let Some(found) = found {
        text(found, FIELD_BYTES_MAX);
        assert!(!found.is_empty());
    }
}

fn text(found: &str, bytes_max: usize) {
    assert!(found.len() <= bytes_max, "{} bytes", found.len());
    assert!(!found.contains(|c: char| c.is_control() && c != '\n'), "{found:?}");
}
