//! Counts of returned mail since the start, for metrics. They contain no addresses or message identifiers.

use super::mailbox::MailboxRefusal;
use crate::base::meter::Counter;

/// Kind of an accepted message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AcceptedKind {
    /// A failure, recorded.
    Bounced,
    /// A bounce without standard fields, recorded as undetermined.
    Undetermined,
    /// A delay, recorded.
    Delayed,
    /// A complaint, recorded.
    Complained,
    /// A report that is already recorded.
    Repeated,
    /// A report without effect: delivered, relayed, expanded, `not-spam`, or about another recipient.
    NoNews,
    /// A report without a return path or token that links it to a message.
    Untied,
    /// A complaint that only `Feedback-ID` links to a message, without a signature of its sender's domain.
    Unproven,
    /// An automatic reply (RFC 3834).
    AutoReply,
    /// A message to an automatic mailbox that is not a report.
    Unknown,
    /// A message to a mailbox for DMARC reports.
    DmarcReport,
    /// A message to a mailbox for people.
    Personal,
}

impl AcceptedKind {
    /// All kinds.
    pub const ALL: [Self; 12] = [
        Self::Bounced,
        Self::Undetermined,
        Self::Delayed,
        Self::Complained,
        Self::Repeated,
        Self::NoNews,
        Self::Untied,
        Self::Unproven,
        Self::AutoReply,
        Self::Unknown,
        Self::DmarcReport,
        Self::Personal,
    ];

    /// Returns the name in the log and in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Bounced => "bounced",
            Self::Undetermined => "undetermined",
            Self::Delayed => "delayed",
            Self::Complained => "complained",
            Self::Repeated => "repeated",
            Self::NoNews => "no_news",
            Self::Untied => "untied",
            Self::Unproven => "unproven",
            Self::AutoReply => "auto_reply",
            Self::Unknown => "unknown",
            Self::DmarcReport => "dmarc_report",
            Self::Personal => "letter",
        }
    }
}

/// The counts.
#[derive(Debug, Default)]
pub struct ReceiptCounts {
    taken: [Counter; AcceptedKind::ALL.len()],
    refused: [Counter; MailboxRefusal::ALL.len()],
}

impl ReceiptCounts {
    pub(super) fn count(&self, taken: AcceptedKind) {
        self.taken[taken as usize].count();
    }

    pub(super) fn count_refused(&self, why: MailboxRefusal) {
        self.refused[why as usize].count();
    }

    /// Returns the number of accepted messages by kind.
    pub fn taken(&self) -> impl Iterator<Item = (&'static str, u64)> {
        AcceptedKind::ALL.into_iter().map(|taken| (taken.as_str(), self.taken[taken as usize].read()))
    }

    /// Returns the number of refused recipients by reason.
    pub fn refused(&self) -> impl Iterator<Item = (&'static str, u64)> {
        MailboxRefusal::ALL.into_iter().map(|why| (why.as_str(), self.refused[why as usize].read()))
    }
}
