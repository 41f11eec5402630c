//! A timer: a row that becomes due at a moment. It is written in the transaction of the state that it serves, and stays
//! until the operation that settles it. After a crash it fires again.

use serde::{Deserialize, Serialize};

use crate::base::id::{AccountId, MessageId, Ulid};
use crate::base::time::Timestamp;
use crate::machine::destination::{Place, QueuedMessage};

/// Purpose of a timer. Storage keys contain its number, which is never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[repr(u8)]
pub enum TimerKind {
    /// A message's next attempt or expiry.
    Transfer = 1,
    /// A webhook delivery's next attempt.
    Delivery = 2,
    /// Parked deliveries of an endpoint that was enabled again.
    Unpark = 3,
    /// A domain's next check.
    DomainCheck = 4,
    /// Idempotency records past their 24 hours.
    Idempotency = 5,
    /// A content bucket past its end.
    Content = 6,
    /// Events past their 30 days.
    EventLog = 7,
    /// Deliveries of an endpoint that was deleted.
    EndpointEnd = 8,
    /// Webhook deliveries past their 30 days.
    Deliveries = 9,
    /// A receiving domain's expired MTA-STS policy.
    StsPolicy = 12,
    /// Counts of TLS sessions past their 30 days.
    TlsReports = 13,
    /// The next evaluation of an account's bounces and complaints.
    Reputation = 14,
    /// The sending of a domain's TLS report of a day.
    TlsReport = 15,
    /// The indexing of an account's messages for searches.
    MessageIndex = 16,
    /// An import of suppressions that must be undone or finished after its process ended.
    SuppressionImport = 17,
    /// The next rotation of a domain's DKIM keys.
    DkimRotation = 18,
    /// The end of an operator's view of an account.
    ViewEnd = 24,
    /// Changes of an alert to be announced.
    AlertAnnouncement = 30,
    /// A notice's next attempt.
    Notice = 31,
    /// An open alert's next reminder.
    AlertReminder = 32,
    /// An alert past its 90 days.
    AlertExpiry = 33,
}

impl TimerKind {
    /// Returns whether the timer sweeps, forgets or destroys data after its deadline. Such timers are suspended while
    /// deadlines are frozen.
    pub const fn ends_things(self) -> bool {
        match self {
            Self::Idempotency
            | Self::Content
            | Self::EventLog
            | Self::Deliveries
            | Self::StsPolicy
            | Self::TlsReports
            | Self::AlertExpiry => true,
            // A message's expiry is judged when its timer is served. Until then the message is retried.
            Self::Transfer
            | Self::Delivery
            | Self::Unpark
            | Self::DomainCheck
            | Self::EndpointEnd
            | Self::Reputation
            | Self::TlsReport
            | Self::MessageIndex
            | Self::SuppressionImport
            | Self::DkimRotation
            | Self::ViewEnd
            | Self::AlertAnnouncement
            | Self::Notice
            | Self::AlertReminder => false,
        }
    }
}

/// One timer. Timers sort by due time first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Timer {
    /// Time at which the timer fires.
    pub due: Timestamp,
    /// Purpose of the timer.
    pub kind: TimerKind,
    /// Account of the timer; the zero account if it belongs to the whole store.
    pub account: AccountId,
    /// Object of the timer.
    pub id: Ulid,
}

impl Timer {
    /// Length of the stored form in bytes.
    pub const LENGTH: usize = 41;

    /// Creates a timer about `id` of `account`.
    pub const fn new(due: Timestamp, kind: TimerKind, account: AccountId, id: Ulid) -> Self {
        Self { due, kind, account, id }
    }

    /// Returns the timer of a queued message.
    pub const fn of_message(message: &QueuedMessage) -> Self {
        Self::at(message.place)
    }

    /// Returns the timer of the message at this place.
    pub const fn at(Place { due, account, id }: Place) -> Self {
        Self::new(due, TimerKind::Transfer, account, id.0)
    }

    /// Returns the position of a message's timer in due order.
    pub const fn place(&self) -> Place {
        Place { due: self.due, account: self.account, id: MessageId(self.id) }
    }

    /// Creates a timer of the whole store.
    pub fn of_store(due: Timestamp, kind: TimerKind) -> Self {
        Self::new(due, kind, AccountId::default(), Ulid::default())
    }

    /// Returns the key in the timers table: due time, kind, account, identifier.
    pub fn encode(&self) -> [u8; Self::LENGTH] {
        let mut key = [0; Self::LENGTH];
        key[..8].copy_from_slice(&self.due.as_millis().to_be_bytes());
        key[8] = self.kind as u8;
        key[9..25].copy_from_slice(self.account.as_bytes());
        key[25..].copy_from_slice(&self.id.0);
        key
    }

    /// Decodes a key of the timers table; `None` if this version does not know the timer.
    pub fn decode(key: &[u8]) -> Option<Self> {
        let key: &[u8; Self::LENGTH] = key.try_into().ok()?;
        let (due, rest) = key.split_first_chunk::<8>()?;
        let (&kind, rest) = rest.split_first()?;
        let (account, id) = rest.split_first_chunk::<16>()?;
        let kind = match kind {
            1 => TimerKind::Transfer,
            2 => TimerKind::Delivery,
            3 => TimerKind::Unpark,
            4 => TimerKind::DomainCheck,
            5 => TimerKind::Idempotency,
            6 => TimerKind::Content,
            7 => TimerKind::EventLog,
            8 => TimerKind::EndpointEnd,
            9 => TimerKind::Deliveries,
            12 => TimerKind::StsPolicy,
            13 => TimerKind::TlsReports,
            14 => TimerKind::Reputation,
            15 => TimerKind::TlsReport,
            16 => TimerKind::MessageIndex,
            17 => TimerKind::SuppressionImport,
            18 => TimerKind::DkimRotation,
            24 => TimerKind::ViewEnd,
            30 => TimerKind::AlertAnnouncement,
            31 => TimerKind::Notice,
            32 => TimerKind::AlertReminder,
            33 => TimerKind::AlertExpiry,
            _ => return None,
        };
        let due = Timestamp::from_millis(u64::from_be_bytes(*due));
        Some(Self::new(due, kind, AccountId(Ulid(*account)), Ulid(id.try_into().ok()?)))
    }

    /// Returns the first key of the timers table that is due after `moment`.
    pub fn first_after(moment: Timestamp) -> [u8; 8] {
        (moment.as_millis() + 1).to_be_bytes()
    }
}
