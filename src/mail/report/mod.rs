//! Reports that arrive by mail: delivery reports (RFC 3464), feedback reports (RFC 5965), auto-replies (RFC 3834), and
//! bounces that follow no standard. [`read`] says which of these a message is, and what it reports.
//!
//! The receiver calls it with whatever strangers sent. It is a pure function: it believes nothing (who may report on
//! which message is decided by the return path), it never panics, its time grows with the message's length and its
//! output is bounded by the limits below. Only the top level counts: a report inside a forwarded message or a mailing
//! list's wrapper is somebody's quotation, and no report. OpenSMTPD's reports don't say that they are reports; they are
//! known by their parts and their sender.

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
pub use returned::Returned;
pub use unstructured::UnstructuredBounce;

use entity::Entity;

/// Bytes of a message that are read: what the receiver takes, and room for the fields that it adds. What a report
/// says comes first (RFC 6522 3), so more than this could only be the end of the returned message.
pub const MESSAGE_BYTES_MAX: usize = 1024 * 1024 + 64 * 1024;
/// Bytes of a header section, the returned message's included; a longer one is not read.
pub const HEADER_BYTES_MAX: usize = 64 * 1024;
/// Parts of a multipart; a message with more is no report.
pub const PARTS_MAX: usize = 100;
/// Multiparts inside multiparts that are entered in search of a text to show.
pub const DEPTH_MAX: usize = 20;
/// Recipients of one report; further ones are not read. A message of ours has one.
pub const RECIPIENTS_MAX: usize = 100;
/// Bytes of a diagnostic or of an unstructured bounce's text.
pub const TEXT_BYTES_MAX: usize = 4 * 1024;
/// Bytes of any other text in a report.
pub const FIELD_BYTES_MAX: usize = 1024;

/// Kind of a message that came back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Report {
    /// A delivery status notification: what became of a message for each of its recipients (RFC 3464).
    Delivery(DeliveryReport),
    /// An abuse report in ARF: what a recipient or their provider thinks of a message (RFC 5965).
    Feedback(FeedbackReport),
    /// An answer by a machine on the recipient's behalf, such as a vacation notice (RFC 3834).
    AutoReply,
    /// None of these; where it is a bounce in the words of its program alone, what it says.
    Unknown(Option<UnstructuredBounce>),
}

/// The media types that a part with the fields of a delivery report may have (RFC 6533 4).
const STATUSES: [&str; 2] = ["message/delivery-status", "message/global-delivery-status"];
/// The media type of a part with the fields of a feedback report.
const FEEDBACK: &str = "message/feedback-report";

/// Says what `message` is and what it reports. Line ends may be CRLF, LF or mixed.
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

/// Kind of report that a message declares itself to be.
enum ReportType {
    /// Deliveries.
    Delivery,
    /// Complaints.
    Feedback,
    /// Something else: that a message was read, how TLS fared.
    Another,
    /// It is a report and does not say of what.
    Unnamed,
    /// It does not say that it is a report, and comes of a mail system in parts, as OpenSMTPD's reports do.
    Undeclared,
    /// It is no report.
    None,
}

fn report_type(message: &Entity<'_>) -> ReportType {
    match message.media_type().as_str() {
        "multipart/report" => {}
        "multipart/mixed" if unstructured::is_of_system(message) => return ReportType::Undeclared,
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
    let mut report = delivery::read(&fields, Returned::find(&parts))?;
    if report.recipients.iter().any(|recipient| recipient.diagnostic.is_none()) {
        report.learn_from(&unstructured::words(message).unwrap_or_default());
    }
    Some(Report::Delivery(report))
}

fn feedback(message: &Entity<'_>) -> Option<Report> {
    let parts = parts(message);
    let part = parts.iter().find(|part| part.media_type() == FEEDBACK)?;
    let fields = part.content(feedback::FEEDBACK_BYTES_MAX);
    feedback::read(&fields, Returned::find(&parts)).map(Report::Feedback)
}

fn parts<'m>(message: &Entity<'m>) -> Vec<Entity<'m>> {
    message.parts().into_iter().filter_map(Entity::read).collect()
}
