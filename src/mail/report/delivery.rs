//! Delivery status notifications (RFC 3464, RFC 6533): the fields of a `message/delivery-status` part, for the message
//! and for each recipient.

use super::Returned;
use crate::domain::enhanced_code::EnhancedCode;

/// A delivery status notification.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeliveryReport {
    /// The name of the server that reports, without its type (RFC 3464 2.2.2).
    pub reporting_mta: Option<String>,
    /// What became of each recipient: at least one, at most [`super::RECIPIENTS_MAX`].
    pub recipients: Vec<RecipientReport>,
    /// What the report returns of the message.
    pub returned: Returned,
}

/// What became of a message for one recipient (RFC 3464 2.3).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecipientReport {
    /// The address that the reporting server tried, decoded and without its type where that is `rfc822` or `utf-8`;
    /// an address of another type keeps it (`x400; /C=de/`). Absent where the report breaks the rule to name it.
    pub final_recipient: Option<String>,
    /// The address that the sender named, written as `final_recipient` is.
    pub original_recipient: Option<String>,
    /// What the server did.
    pub action: Action,
    /// Why, as a code.
    pub status: Option<EnhancedCode>,
    /// Why, in the words of the server that refused.
    pub diagnostic: Option<Diagnostic>,
    /// The name of the server that refused, without its type.
    pub remote_mta: Option<String>,
    /// Until when a delayed message is tried, as it is written.
    pub will_retry_until: Option<String>,
}

/// What the reporting server did with the message (RFC 3464 2.3.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// It gave up.
    Failed,
    /// It could not deliver yet and goes on trying.
    Delayed,
    /// It delivered to the recipient's mailbox.
    Delivered,
    /// It passed the message to a server that does not report.
    Relayed,
    /// It delivered to several addresses that the recipient stands for.
    Expanded,
}

/// A server's answer or a program's complaint (RFC 3464 2.3.6).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Diagnostic {
    /// The reply code, where the diagnostic holds a reply: 400 to 599 for a refusal, 200 to 399 for an acceptance.
    pub smtp_code: Option<u16>,
    /// The enhanced code behind the reply code, or where the text begins with one.
    pub enhanced: Option<EnhancedCode>,
    /// The text without its type: the lines of a reply joined by `\n` where they can be told apart; other folds are
    /// spaces. At most [`super::TEXT_OCTETS_MAX`].
    pub text: String,
}
