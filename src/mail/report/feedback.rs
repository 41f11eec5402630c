//! Feedback reports in the Abuse Reporting Format (RFC 5965): the fields of a `message/feedback-report` part.

use super::super::section::{self, Field};
use super::{FIELD_BYTES_MAX, RECIPIENTS_MAX, ReturnedHeader, address, text};

/// Maximum number of bytes read of a feedback part.
pub(super) const FEEDBACK_BYTES_MAX: usize = 64 * 1024;

/// A feedback report.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FeedbackReport {
    /// Type of the report.
    pub feedback_type: FeedbackType,
    /// Name of the reporter: the User-Agent, or else the name of the Reporting-MTA.
    pub reporter: Option<String>,
    /// The envelope sender of the message (MAIL FROM), without brackets; empty for the null sender.
    pub original_mail_from: Option<String>,
    /// The envelope recipients (RCPT TO) that are valid addresses, without brackets, at most [`RECIPIENTS_MAX`]. Many
    /// providers redact them. A redacted one is omitted, or is an address that does not exist (RFC 6590).
    pub original_rcpt_to: Vec<String>,
    /// The returned part of the message.
    pub returned: ReturnedHeader,
}

/// Type of a feedback report (RFC 5965 7.3, RFC 6591 3.1).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FeedbackType {
    /// Unsolicited mail.
    Abuse,
    /// Fraud or phishing.
    Fraud,
    /// A virus.
    Virus,
    /// Anything else.
    Other,
    /// The message is not spam: a withdrawn complaint, or none at all.
    NotSpam,
    /// SPF, DKIM or DMARC failed.
    AuthFailure,
    /// The recipient does not want messages from this sender any more.
    OptOut,
    /// An unregistered type, in lower case.
    Unregistered(String),
}

/// Parses the fields of `feedback`, which has CRLF line ends; `None` if the type is missing.
pub(super) fn read(feedback: &[u8], returned: ReturnedHeader) -> Option<FeedbackReport> {
    let begin = feedback.iter().position(|c| !matches!(c, b'\r' | b'\n')).unwrap_or(feedback.len());
    let (fields, _) = section::split(&feedback[begin..]);
    let value = |name: &str| text::value_of(&fields, name);
    let agent = || text::filled(&value("User-Agent")?, FIELD_BYTES_MAX);
    let server = || text::server_name(&value("Reporting-MTA")?);
    let recipients = fields.iter().filter(|field| field.is("Original-Rcpt-To"));
    let recipients = recipients.map(|field| address::envelope(&text::unfolded(field)));
    Some(FeedbackReport {
        feedback_type: feedback_type(&fields)?,
        reporter: agent().or_else(server),
        original_mail_from: value("Original-Mail-From").map(|value| address::envelope(&value)),
        original_rcpt_to: recipients.filter(|address| address.contains('@')).take(RECIPIENTS_MAX).collect(),
        returned,
    })
}

/// Returns the type; `None` if there are two different ones, since one of them could be `not-spam`.
fn feedback_type(fields: &[Field<'_>]) -> Option<FeedbackType> {
    let named = fields.iter().filter(|field| field.is("Feedback-Type"));
    let mut named = named.map(|field| text::without_comments(&text::unfolded(field)).to_ascii_lowercase());
    let first = named.next().filter(|first| !first.is_empty())?;
    if named.any(|other| other != first) {
        return None;
    }
    Some(match first.as_str() {
        "abuse" => FeedbackType::Abuse,
        "fraud" => FeedbackType::Fraud,
        "virus" => FeedbackType::Virus,
        "other" => FeedbackType::Other,
        "not-spam" => FeedbackType::NotSpam,
        "auth-failure" => FeedbackType::AuthFailure,
        "opt-out" | "opt-out-list" => FeedbackType::OptOut,
        other => FeedbackType::Unregistered(text::clipped(other, FIELD_BYTES_MAX)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(fields: &str) -> Option<FeedbackReport> {
        read(fields.replace('\n', "\r\n").as_bytes(), ReturnedHeader::default())
    }

    #[test]
    fn parses_registered_types_and_keeps_others() {
        for (name, expected) in [
            ("abuse", FeedbackType::Abuse),
            ("Fraud (phish)", FeedbackType::Fraud),
            ("VIRUS", FeedbackType::Virus),
            ("other", FeedbackType::Other),
            ("not-spam", FeedbackType::NotSpam),
            ("auth-failure", FeedbackType::AuthFailure),
            ("opt-out", FeedbackType::OptOut),
            ("opt-out-list", FeedbackType::OptOut),
            ("Miscategorized", FeedbackType::Unregistered("miscategorized".to_owned())),
            ("abuse\nFeedback-Type: Abuse", FeedbackType::Abuse),
        ] {
            assert_eq!(report(&format!("Feedback-Type: {name}\n")).unwrap().feedback_type, expected);
        }
        for nothing in ["Feedback-Type:\n", "Version: 1\n", "Feedback-Type: abuse\nfeedback-type: not-spam\n", ""] {
            assert_eq!(report(nothing), None);
        }
    }

    #[test]
    fn skips_redacted_recipients() {
        let report = report(
            "\nFeedback-Type: abuse\nOriginal-Rcpt-To: <a@b.example>\nOriginal-Rcpt-To: redacted\n\
             Original-Rcpt-To:\nOriginal-Rcpt-To: c@d.example (c)\nReporting-MTA: dns; mail.example (here)\n",
        );
        let report = report.unwrap();
        assert_eq!(report.original_rcpt_to, ["a@b.example", "c@d.example"]);
        assert_eq!(report.reporter.as_deref(), Some("mail.example"));
        assert_eq!(report.original_mail_from, None);
    }
}
