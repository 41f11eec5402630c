//! Outcomes of the messages that were accepted in one hour: counts by stream, sending domain and provider.

use serde::{Deserialize, Serialize};

use super::Row;
use crate::domain::event::{Bounce, BounceKind, EventType};
use crate::machine::reputation::{Figures, Rate};
use crate::store::schema::Table;

/// Number of times that each outcome was recorded. A message may have several: delivered, then bounced, say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutcomeCounts {
    /// Messages accepted; counted where no provider is known yet.
    pub accepted: u64,
    /// Attempts that met a transient failure, and delays that were reported.
    pub deferred: u64,
    /// Messages that a server took.
    pub delivered: u64,
    /// Bounces: the address or its domain can't receive.
    pub bounced_hard: u64,
    /// Bounces: it may receive later, or something smaller.
    pub bounced_soft: u64,
    /// Bounces: the sender is refused.
    pub bounced_block: u64,
    /// Bounces of which nothing certain can be said.
    pub bounced_undetermined: u64,
    /// Those of the bounces whose message was delivered too: returned by a server that had taken it.
    pub returned: u64,
    /// Messages given up.
    pub failed: u64,
    /// Messages that were called spam.
    pub complained: u64,
    /// Messages by whose link the recipient unsubscribed.
    pub unsubscribed: u64,
    /// Messages not sent, because their address became suppressed.
    pub suppressed: u64,
    /// Messages withdrawn.
    pub canceled: u64,
}

impl Row for OutcomeCounts {
    const TABLE: Table = Table::Outcomes;
}

impl OutcomeCounts {
    /// Counts one event.
    pub fn count(&mut self, kind: EventType, bounce: Option<&Bounce>) {
        let counter = match kind {
            EventType::Queued => &mut self.accepted,
            EventType::Deferred => &mut self.deferred,
            EventType::Delivered => &mut self.delivered,
            EventType::Failed => &mut self.failed,
            EventType::Complained => &mut self.complained,
            EventType::Suppressed => &mut self.suppressed,
            EventType::Unsubscribed => &mut self.unsubscribed,
            EventType::Canceled => &mut self.canceled,
            EventType::Bounced => match bounce.map(|bounce| bounce.kind) {
                Some(BounceKind::Hard) => &mut self.bounced_hard,
                Some(BounceKind::Soft) => &mut self.bounced_soft,
                Some(BounceKind::Block) => &mut self.bounced_block,
                Some(BounceKind::Undetermined) | None => &mut self.bounced_undetermined,
            },
        };
        *counter += 1;
    }

    /// Adds what another row counts.
    pub fn add(&mut self, more: &Self) {
        self.accepted += more.accepted;
        self.deferred += more.deferred;
        self.delivered += more.delivered;
        self.bounced_hard += more.bounced_hard;
        self.bounced_soft += more.bounced_soft;
        self.bounced_block += more.bounced_block;
        self.bounced_undetermined += more.bounced_undetermined;
        self.returned += more.returned;
        self.failed += more.failed;
        self.complained += more.complained;
        self.unsubscribed += more.unsubscribed;
        self.suppressed += more.suppressed;
        self.canceled += more.canceled;
    }

    /// Bounces of every kind: a block says as much of a sender's standing as a dead address.
    pub const fn bounced(&self) -> u64 {
        self.bounced_hard + self.bounced_soft + self.bounced_block + self.bounced_undetermined
    }

    /// Messages that were delivered or bounced, each once.
    pub const fn answered(&self) -> u64 {
        (self.delivered + self.bounced()).saturating_sub(self.returned)
    }

    /// The rates that are judged.
    pub const fn figures(&self) -> Figures {
        Figures {
            bounces: Rate { count: self.bounced(), of: self.answered() },
            complaints: Rate { count: self.complained, of: self.delivered },
        }
    }
}
