//! Inputs and effects of a destination.

use std::time::Duration;

use super::{Place, Slot, Spill};
use crate::base::id::AccountId;
use crate::base::time::Timestamp;
use crate::domain::stream::Stream;

/// The time on both clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// The wall-clock time, which decides when messages expire and backoffs end.
    pub wall: Timestamp,
    /// The monotonic time, by which messages are spaced.
    pub machine: Duration,
}

/// A due message. Its rows are read when it starts, so a long queue uses little memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct QueuedMessage {
    /// Position among all waiting messages.
    pub place: Place,
    /// Stream.
    pub stream: Stream,
    /// End of its lifetime.
    pub give_up_at: Timestamp,
}

/// Limits of a site.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Maximum number of connections.
    pub connections: usize,
    /// Maximum number of messages per minute.
    pub messages_per_minute: Option<u32>,
    /// Maximum number of new connections per minute.
    pub connections_per_minute: Option<u32>,
    /// Whether both streams use the destination. Then a connection is reserved for transactional mail.
    pub is_shared: bool,
    /// Whether messages may be spilled when memory is short.
    pub may_spill: bool,
}

/// Meaning of an ended attempt for the site.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Signal {
    /// The site accepted the message.
    Took,
    /// The site's answer was about the message.
    Answered,
    /// The site asked for a lower rate.
    Slowed,
    /// The site could not be reached.
    PushedBack,
    /// The server refused or closed an open connection, for example with 421.
    TurnedAway,
    /// The site answered 421 to the message, which may concern only the message's account.
    RefusedAccount,
    /// The site stopped answering during the message.
    TimedOut,
    /// The attempt gave no information about the site.
    Silent,
}

/// A limit for a site that ends at a given time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RequestedLimit {
    /// The site gets nothing.
    Pause(Timestamp),
    /// The site gets at most this many messages per minute.
    Rate(u32, Timestamp),
    /// The site gets at most this many connections.
    Connections(usize, Timestamp),
}

/// An input of a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Input {
    /// A message is due, or was read from the store again.
    Due(QueuedMessage),
    /// A started message opens a connection.
    Connecting(Slot),
    /// A started message uses a kept connection.
    Reuse(Slot),
    /// The connection of a started message is kept.
    Keep(Slot),
    /// This many kept connections were closed, because they were old or the server ended them.
    Closed(usize),
    /// Messages to other sites wait for a connection.
    ConnectionsWanted,
    /// A server did not answer in time: from MAIL on, to a message of this account.
    ServerSilent(Option<AccountId>),
    /// The site, or the operator, requests a limit. If the answer to a message requests it, the limit may concern only
    /// that message's account.
    Limit(RequestedLimit, Option<AccountId>),
    /// A started message got no connection in time, and lets other accounts pass.
    LetPass(Slot),
    /// A started message has ended.
    Ended(Slot, Signal),
    /// A user requests an attempt at the site now.
    TryNow,
    /// A requested wake-up is due.
    Woken,
    /// The time of the next message has come.
    TurnCame,
    /// Memory is short.
    Spill,
    /// Reading of spilled messages has ended, and these are still spilled.
    Refilled(Option<Spill>),
    /// All waiting messages must be routed again.
    Clear,
    /// The service's time was set back by this, because the clock had been ahead.
    SetBack(Duration),
    /// The service stops.
    Stop,
}

/// An instruction to the driver. Effects are carried out in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// This message waits in the queue.
    Wait(QueuedMessage),
    /// The driver must send this message.
    Start(Slot, QueuedMessage),
    /// The waiting messages are suspended until a wake-up.
    Suspend,
    /// The waiting messages are resumed.
    Resume,
    /// The driver must send [`Input::Woken`] at this time.
    WakeAt(Timestamp),
    /// Defer these messages until they expire: they expire before the site is tried again.
    PutOff(Vec<QueuedMessage>),
    /// Spill these messages: from now on they are only in the store.
    Leave(Vec<QueuedMessage>),
    /// The driver must read spilled messages, and then send [`Input::Refilled`].
    Refill(Spill),
    /// Route these messages again.
    Reroute(Vec<QueuedMessage>),
    /// The driver must close this many kept connections, the oldest first.
    Quit(usize),
}

impl QueuedMessage {
    pub(super) const fn is_marketing(&self) -> bool {
        matches!(self.stream, Stream::Marketing)
    }
}
