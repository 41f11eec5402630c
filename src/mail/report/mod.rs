//! What comes back by mail: delivery reports (RFC 3464), feedback reports (RFC 5965), auto-replies (RFC 3834), and
//! bounces that follow no standard. [`read`] says which of these a message is, and what it reports.
//!
//! The receiver calls it with whatever strangers sent. It is a pure function: it believes nothing (who may report on
//! which message is decided by the return path), it never panics, its time grows with the message's length and its
//! output is bounded by the limits below. Only the top level counts: a report inside a forwarded message or a mailing
//! list's wrapper is somebody's quotation, and no report.

mod delivery;
mod feedback;
mod returned;
mod unstructured;

pub use delivery::{Action, DeliveryReport, Diagnostic, RecipientReport};
pub use feedback::{FeedbackReport, FeedbackType};
pub use returned::Returned;
pub use unstructured::UnstructuredBounce;

/// Octets of a message that are read: what the receiver takes, and room for the fields that it adds. What a report
/// says comes first (RFC 6522 3), so more than this could only be the end of the returned message.
pub const MESSAGE_OCTETS_MAX: usize = 1024 * 1024 + 64 * 1024;
/// Octets of a header section, the returned message's included; a longer one is not read.
pub const HEADER_OCTETS_MAX: usize = 64 * 1024;
/// Parts of a multipart; a message with more is no report.
pub const PARTS_MAX: usize = 100;
/// Multiparts inside multiparts that are entered in search of a text to show.
pub const DEPTH_MAX: usize = 20;
/// Recipients of one report; further ones are not read. A message of ours has one.
pub const RECIPIENTS_MAX: usize = 100;
/// Octets of a diagnostic or of an unstructured bounce's text.
pub const TEXT_OCTETS_MAX: usize = 4 * 1024;
/// Octets of any other text in a report.
pub const FIELD_OCTETS_MAX: usize = 1024;

/// What a message that came back is.
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

/// Says what `message` is and what it reports. Line ends may be CRLF, LF or mixed.
pub fn read(message: &[u8]) -> Report {
    let _ = message;
    Report::Unknown(None)
}
