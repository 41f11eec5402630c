//! Groups of message statuses: the tabs above the list of messages, and further values of a search's `status:`.

use crate::machine::transfer::Status;

/// A group of statuses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum StatusGroup {
    /// Messages that need attention: they were not delivered, or were reported as spam.
    Problems,
    /// Messages that are not delivered yet.
    Waiting,
}

impl StatusGroup {
    /// All groups.
    pub(super) const ALL: [Self; 2] = [Self::Problems, Self::Waiting];

    /// Returns the name in a search.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Problems => "problems",
            Self::Waiting => "waiting",
        }
    }

    /// Returns the group with this name in a search.
    pub(super) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|group| group.as_str() == name)
    }

    /// Returns the group's statuses.
    pub(super) fn statuses(self) -> Vec<Status> {
        Status::ALL.into_iter().filter(|status| self.contains(*status)).collect()
    }

    const fn contains(self, status: Status) -> bool {
        match status {
            Status::Queued | Status::Deferred => matches!(self, Self::Waiting),
            Status::Bounced | Status::Failed | Status::Suppressed | Status::Complained => {
                matches!(self, Self::Problems)
            }
            Status::Delivered | Status::Canceled => false,
        }
    }
}

/// Labels of the tabs, with their values of `status:` in a search.
pub(super) const TABS: [(&str, &str); 4] = [
    ("All", ""),
    ("Problems", StatusGroup::Problems.as_str()),
    ("Waiting", StatusGroup::Waiting.as_str()),
    ("Delivered", Status::Delivered.as_str()),
];
