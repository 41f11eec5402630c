//! Reports that arrive by mail: delivery reports (RFC 3464), feedback reports (RFC 5965), automatic replies (RFC 3834),
//! and non-standard bounces. [`read`] classifies a message and returns its report.
//!
//! The receiver calls it with untrusted mail. It is a pure function. It trusts nothing (the return path decides which
//! message a report may concern) and never panics. Its time is linear in the message's length, and its output is
//! limited below. Only the top level counts: a report inside a forwarded message or a mailing list's wrapper is a
//! quotation. OpenSMTPD's reports don't declare themselves as reports; they are recognised by their parts and their
//! sender.

mod address;
mod auto_reply;
mod delivery;
mod diagnostic;
pub(in crate::mail) mod entity;
mod feedback;
mod returned;
mod text;
pub(in crate::mail) mod transfer_encoding;
mod unstructured;

pub use delivery::{Action, DeliveryReport, RecipientReport};
pub use diagnostic::Diagnostic;
pub use feedback::{FeedbackReport, FeedbackType};
pub use returned::ReturnedHeader;
pub use unstructured::UnstructuredBounce;

use entity::Entity;

/// Maximum number of bytes read of a message: the receiver's limit, plus the fields that it adds. The report comes
/// first (RFC 6522 3), so further bytes could only be the end of the returned message.
pub const MESSAGE_BYTES_MAX: usize = 1024 * 1024 + 64 * 1024;
/// Maximum size of a header section in bytes, including that of the returned message. A longer one is not read.
pub const HEADER_BYTES_MAX: usize = 64 * 1024;
/// Maximum number of parts of a multipart. A message with more is not a report.
pub const PARTS_MAX: usize = 100;
/// Maximum depth of multiparts that are searched for a text to show.
pub const DEPTH_MAX: usize = 20;
/// Maximum number of recipients read of one report. A report about one of our messages has one.
pub const RECIPIENTS_MAX: usize = 100;
/// Maximum size in bytes of a diagnostic or of the text of an unstructured bounce.
pub const TEXT_BYTES_MAX: usize = 4 * 1024;
/// Maximum size in bytes of any other text in a report.
pub const FIELD_BYTES_MAX: usize = 1024;

/// Kind of a returned message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Report {
    /// A delivery status notification: the outcome of a message for each of its recipients (RFC 3464).
    Delivery(DeliveryReport),
    /// An abuse report in ARF: a complaint of a recipient or their provider about a message (RFC 5965).
    Feedback(FeedbackReport),
    /// An automatic reply on the recipient's behalf, such as a vacation notice (RFC 3834).
    AutoReply,
    /// Any other message; with its content if it is a non-standard bounce.
    Unknown(Option<UnstructuredBounce>),
}

/// Media types of a part with the fields of a delivery report (RFC 6533 4).
const STATUSES: [&str; 2] = ["message/delivery-status", "message/global-delivery-status"];
/// Media type of a part with the fields of a feedback report.
const FEEDBACK: &str = "message/feedback-report";

/// Classifies `message` and returns its report. Line ends may be CRLF, LF or mixed.
pub fn read(message: &[u8]) -> Report {
    let message = transfer_encoding::with_crlf(&message[..message.len().min(MESSAGE_BYTES_MAX)]);
    let Some(message) = Entity::read(&message) else { return Report::Unknown(None) };
    let (report, may_be_bounce) = match report_type(&message) {
        ReportType::Delivery => (delivery(&message), true),
        ReportType::Feedback => (feedback(&message), false),
        ReportType::Unnamed => (delivery(&message).or_else(|| feedback(&message)), true),
        ReportType::Another => (None, false),
        ReportType::Undeclared => (delivery(&message), true),
        ReportType::None => (None, true),
    };
    if let Some(report) = report {
        return report;
    }
    match may_be_bounce.then(|| unstructured::read(&message)).flatten() {
        Some(bounce) => Report::Unknown(Some(bounce)),
        None if auto_reply::is_auto_reply(&message.fields) => Report::AutoReply,
        None => Report::Unknown(None),
    }
}

/// Declared kind of a report.
enum ReportType {
    /// Deliveries.
    Delivery,
    /// Complaints.
    Feedback,
    /// Another kind, such as a read receipt or a TLS report.
    Another,
    /// A report without a declared kind.
    Unnamed,
    /// A multipart message from a mail system without a declared type, as OpenSMTPD's reports are.
    Undeclared,
    /// No report.
    None,
}

fn report_type(message: &Entity<'_>) -> ReportType {
    match message.media_type().as_str() {
        "multipart/report" => {}
        "multipart/mixed" if unstructured::is_from_mail_system(message) => return ReportType::Undeclared,
        _ => return ReportType::None,
    }
    match message.parameter("report-type").map(|named| named.to_ascii_lowercase()).as_deref() {
        Some("delivery-status" | "global-delivery-status") => ReportType::Delivery,
        Some("feedback-report") => ReportType::Feedback,
        Some("") | None => ReportType::Unnamed,
        Some(_) => ReportType::Another,
    }
}

fn delivery(message: &Entity<'_>) -> Option<Report> {
    let parts = parts(message);
    let status = parts.iter().find(|part| STATUSES.contains(&part.media_type().as_str()))?;
    let fields = status.content(delivery::STATUS_BYTES_MAX);
    let mut report = delivery::read(&fields, ReturnedHeader::find(&parts))?;
    if report.recipients.iter().any(|recipient| recipient.diagnostic.is_none()) {
        report.learn_from(&unstructured::words(message).unwrap_or_default());
    }
    Some(Report::Delivery(report))
}

fn feedback(message: &Entity<'_>) -> Option<Report> {
    let parts = parts(message);
    let part = parts.iter().find(|part| part.media_type() == FEEDBACK)?;
    let fields = part.content(feedback::FEEDBACK_BYTES_MAX);
    feedback::read(&fields, ReturnedHeader::find(&parts)).map(Report::Feedback)
}

fn parts<'m>(message: &Entity<'m>) -> Vec<Entity<'m>> {
    message.parts().into_iter().filter_map(Entity::read).collect()
}
