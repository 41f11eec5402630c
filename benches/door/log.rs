//! An event log of any length, written in bulk: the same rows as for real events, without their messages.

use postrider::base::id::{AccountId, EventId, MessageId, Ulid};
use postrider::domain::event::EventType;
use postrider::store::error::OpError;
use postrider::store::op::{Infallible, Op};
use postrider::store::row::event::{EventLogRow, EventOfTypeRow};
use postrider::store::schema::{self, Table};
use postrider::store::tables::Tables;
use serde::{Deserialize, Serialize};

/// Events per message.
pub(crate) const EVENTS_OF_MESSAGE: usize = 4;
/// Messages per operation.
pub(crate) const MESSAGES_AT_ONCE: u64 = 2500;
/// One of this many messages has a complaint: one event in 100,000.
const COMPLAINED_EVERY: u64 = 25_000;
/// Size of an event, in bytes.
const EVENT_BYTES: usize = 700;

/// Positions in the log.
pub(crate) struct Log {
    /// An event in the middle.
    pub(crate) middle: Ulid,
    /// One of the first events.
    pub(crate) early: Ulid,
    /// A message in the middle.
    pub(crate) message: MessageId,
}

/// Operation that writes the events of [`MESSAGES_AT_ONCE`] messages.
#[derive(Serialize, Deserialize)]
pub(crate) struct Fill {
    pub(crate) account: AccountId,
    /// Number of messages that exist already.
    pub(crate) from: u64,
}

impl Op for Fill {
    type Reply = (MessageId, EventId);
    type Refusal = Infallible;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<Self::Reply, OpError<Infallible>> {
        let bytes = format!("{{\"id\":\"{}\"}}", "x".repeat(EVENT_BYTES)).into_bytes();
        let mut last = (MessageId::default(), EventId::default());
        for number in self.from..self.from + MESSAGES_AT_ONCE {
            let message: MessageId = tables.next_id();
            for kind in kinds(number) {
                let event: EventId = tables.next_id();
                let account = self.account;
                tables.put_bytes(Table::Timeline, &schema::timeline(account, message, event), bytes.clone());
                tables.put(&schema::event(account, event), &EventLogRow { message, kind });
                tables.put(&schema::event_of_type(account, kind, event), &EventOfTypeRow { message });
                last = (message, event);
            }
        }
        Ok(last)
    }
}

fn kinds(message: u64) -> [EventType; EVENTS_OF_MESSAGE] {
    let last = if message.is_multiple_of(COMPLAINED_EVERY) { EventType::Complained } else { EventType::Delivered };
    [EventType::Queued, EventType::Deferred, EventType::Deferred, last]
}
