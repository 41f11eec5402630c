//! Inputs and effects of a destination.

use std::time::Duration;

use super::{Place, Slot, Spill};
use crate::base::time::Timestamp;
use crate::domain::stream::Stream;

/// The time on both clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// The time of day, by which messages end and backoffs are over.
    pub wall: Timestamp,
    /// The monotonic clock, by which messages are spaced.
    pub machine: Duration,
}

/// A message that is due. Its rows are read once it has started, so a long queue is small.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct QueuedMessage {
    /// Its place among all that wait.
    pub place: Place,
    /// Its stream.
    pub stream: Stream,
    /// When its lifetime ends.
    pub give_up_at: Timestamp,
}

/// Limits on serving the site.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Connections at once.
    pub connections: usize,
    /// Messages a minute.
    pub messages_per_minute: Option<u32>,
    /// New connections a minute.
    pub connections_per_minute: Option<u32>,
    /// Whether both streams use the destination, so that a connection is kept for transactional mail.
    pub is_shared: bool,
    /// Whether messages may be left to the store alone when memory is short.
    pub may_spill: bool,
}

/// Meaning of an ended attempt for the site.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Signal {
    /// The site took the message.
    Took,
    /// It spoke of the message.
    Answered,
    /// It asked for less.
    Slowed,
    /// It turned us away, or could not be reached.
    PushedBack,
    /// It closed the connection with 421.
    TurnedAway,
    /// It stopped answering in the midst of the message.
    TimedOut,
    /// Nothing was learnt of it.
    Silent,
}

/// An event in the world that the destination decides about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Input {
    /// A message is due, or was read again.
    Due(QueuedMessage),
    /// A started message opens a connection.
    Connecting(Slot),
    /// A started message uses a kept connection.
    Reuse(Slot),
    /// The connection of a started message is kept.
    Keep(Slot),
    /// So many kept connections were closed: they were old, or the server ended them.
    Closed(usize),
    /// Messages to other sites wait for a connection.
    ConnectionsWanted,
    /// A server did not answer in time.
    ServerSilent,
    /// The site is to get nothing until then.
    Throttle(Timestamp),
    /// The site is to get no more than so many messages a minute until then.
    Space(u32, Timestamp),
    /// The site is to get no more than so many connections until then.
    Narrow(usize, Timestamp),
    /// A started message waited for a connection in vain, and lets other accounts pass.
    LetPass(Slot),
    /// A started message has ended.
    Ended(Slot, Signal),
    /// Somebody asks for the site to be tried now.
    TryNow,
    /// A wake-up that was asked for has come.
    Woken,
    /// The turn of the next message in the minute has come.
    TurnCame,
    /// Memory is short.
    Spill,
    /// The reading of spilled messages has ended, and these are still spilled.
    Refilled(Option<Spill>),
    /// All messages that wait have to look for another way.
    Clear,
    /// The service stops.
    Stop,
}

/// An instruction to the driver. Effects are carried out in their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// This message waits in the queue.
    Wait(QueuedMessage),
    /// Send this message.
    Start(Slot, QueuedMessage),
    /// Nothing happens to the messages that wait until a wake-up.
    Suspend,
    /// The messages that wait are worked on again.
    Resume,
    /// Come back with [`Input::Woken`] then.
    WakeAt(Timestamp),
    /// These messages end before the site is tried again: put them off until their ends.
    PutOff(Vec<QueuedMessage>),
    /// These messages are in the store alone from now on.
    Leave(Vec<QueuedMessage>),
    /// Read spilled messages, and come back with [`Input::Refilled`].
    Refill(Spill),
    /// These messages look for their way again.
    Reroute(Vec<QueuedMessage>),
    /// Close so many kept connections, the oldest first.
    Quit(usize),
}

impl QueuedMessage {
    pub(super) const fn is_marketing(&self) -> bool {
        matches!(self.stream, Stream::Marketing)
    }
}
