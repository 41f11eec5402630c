//! How much of what came back since the start. Counts alone: no address, no message.

use std::sync::atomic::{AtomicU64, Ordering};

/// What a message that was taken turned out to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Taken {
    /// A failure, recorded.
    Bounced,
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
    /// A machine's answer on somebody's behalf (RFC 3834).
    AutoReply,
    /// A message to a machine's mailbox that is no report.
    Unknown,
    /// A letter to a mailbox for people.
    Letter,
}

impl Taken {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Bounced,
        Self::Delayed,
        Self::Complained,
        Self::Repeated,
        Self::NoNews,
        Self::Untied,
        Self::AutoReply,
        Self::Unknown,
        Self::Letter,
    ];

    /// The name in the log.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Bounced => "bounced",
            Self::Delayed => "delayed",
            Self::Complained => "complained",
            Self::Repeated => "repeated",
            Self::NoNews => "no news",
            Self::Untied => "untied",
            Self::AutoReply => "auto-reply",
            Self::Unknown => "unknown",
            Self::Letter => "letter",
        }
    }
}

/// The counts.
#[derive(Debug, Default)]
pub struct Tally([AtomicU64; Taken::ALL.len()]);

impl Tally {
    pub(super) fn count(&self, taken: Taken) {
        self.0[taken as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// How many were taken of one kind.
    pub fn of(&self, taken: Taken) -> u64 {
        self.0[taken as usize].load(Ordering::Relaxed)
    }
}
