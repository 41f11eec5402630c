//! Feedback reports in the Abuse Reporting Format (RFC 5965): the fields of a `message/feedback-report` part.

use super::Returned;

/// A feedback report.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FeedbackReport {
    /// What is reported.
    pub feedback_type: FeedbackType,
    /// Who reports: the User-Agent, or else the name of the Reporting-MTA.
    pub reporter: Option<String>,
    /// The sender in the envelope of the message (MAIL FROM), without brackets; empty for the null sender.
    pub original_mail_from: Option<String>,
    /// Those recipients in the envelope (RCPT TO) that are addresses, without brackets. Many providers redact them: a
    /// redacted one is left out, or is an address that nobody has (RFC 6590).
    pub original_rcpt_to: Vec<String>,
    /// What the report returns of the message.
    pub returned: Returned,
}

/// What a feedback report is about (RFC 5965 7.3, RFC 6591 3.1).
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
    /// The message is no spam: a withdrawn complaint, or none.
    NotSpam,
    /// SPF, DKIM or DMARC failed.
    AuthFailure,
    /// The recipient wants no more of these messages.
    OptOut,
    /// A type that is in no register, in lower case.
    Unregistered(String),
}
