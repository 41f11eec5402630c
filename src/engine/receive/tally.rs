//! Counts of returned mail since the start, for monitoring. Counts alone: no address, no message.

use super::mailbox::NotOurs;
use crate::base::meter::Counter;

/// Kind of a message that was accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Taken {
    /// A failure, recorded.
    Bounced,
    /// A failure in a program's own words, recorded as undetermined.
    Undetermined,
    /// A delay, recorded.
    Delayed,
    /// A complaint, recorded.
    Complained,
    /// A report of what is recorded already.
    Repeated,
    /// A report that changes nothing: delivered, relayed, expanded, `not-spam`, or another's recipient.
    NoNews,
    /// A report that no return path or token ties to a message.
    Untied,
    /// A complaint that `Feedback-ID` alone ties to a message, without a signature of the domain that it comes from.
    Unproven,
    /// A machine's answer on somebody's behalf (RFC 3834).
    AutoReply,
    /// A message to a machine's mailbox that is no report.
    Unknown,
    /// A message to a mailbox for DMARC reports.
    DmarcReport,
    /// A letter to a mailbox for people.
    Letter,
}

impl Taken {
    /// All of them.
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
        Self::Letter,
    ];

    /// The name in the log and in monitoring.
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
            Self::Letter => "letter",
        }
    }
}

/// The counts.
#[derive(Debug, Default)]
pub struct Tally {
    taken: [Counter; Taken::ALL.len()],
    refused: [Counter; NotOurs::ALL.len()],
}

impl Tally {
    pub(super) fn count(&self, taken: Taken) {
        self.taken[taken as usize].count();
    }

    pub(super) fn count_refused(&self, why: NotOurs) {
        self.refused[why as usize].count();
    }

    /// Messages taken, by what they were.
    pub fn taken(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Taken::ALL.into_iter().map(|taken| (taken.as_str(), self.taken[taken as usize].read()))
    }

    /// Recipients refused, by why.
    pub fn refused(&self) -> impl Iterator<Item = (&'static str, u64)> {
        NotOurs::ALL.into_iter().map(|why| (why.as_str(), self.refused[why as usize].read()))
    }
}
