//! Notices: mails and webhook requests that report alerts, and invitations. They are no messages: no queue, quota,
//! event or suppression knows them.

use serde::{Deserialize, Serialize};

use super::Row;
use super::alert::Channel;
use crate::base::id::{AccountId, AlertId, ChangeId, NoticeId, UserId};
use crate::base::time::Timestamp;
use crate::domain::address::Address;
use crate::domain::alert::NoticeKind;
use crate::machine::delivery;
use crate::store::schema::Table;

/// Changes that one mail reports at most.
pub const ITEMS_MAX: usize = 200;

/// A notice that is to be sent. The row goes when it was taken or given up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoticeRow {
    /// Content and recipient.
    pub content: NoticeContent,
    /// When it was made.
    pub created_at: Timestamp,
    /// Attempts that failed.
    pub attempts: u8,
    /// When the next one is due.
    pub due: Timestamp,
}

/// The content of a notice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NoticeContent {
    /// A mail that reports changes of alerts.
    Alerts {
        /// The recipient.
        to: Address,
        /// The changes, oldest first.
        items: Vec<NoticeItem>,
    },
    /// A webhook request that reports one change.
    Webhook {
        /// The change.
        item: NoticeItem,
        /// The bytes of the request, which are the same at every attempt.
        body: Vec<u8>,
        /// Its attempts.
        delivery: delivery::State,
    },
    /// An invitation to the panel.
    Invitation(InvitationRow),
}

impl NoticeContent {
    /// Returns the channel.
    pub const fn channel(&self) -> Channel {
        match self {
            Self::Alerts { .. } | Self::Invitation(_) => Channel::Email,
            Self::Webhook { .. } => Channel::Webhook,
        }
    }

    /// The changes that it reports.
    pub fn items(&self) -> &[NoticeItem] {
        match self {
            Self::Alerts { items, .. } => items,
            Self::Webhook { item, .. } => std::slice::from_ref(item),
            Self::Invitation(_) => &[],
        }
    }
}

/// One change of one alert.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoticeItem {
    /// The account of the alert, which is zero for the service's.
    pub account: AccountId,
    /// The alert.
    pub alert: AlertId,
    /// The change.
    pub kind: NoticeKind,
    /// When it happened.
    pub at: Timestamp,
}

/// An invitation. Its link is made when it is sent, so that no secret is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InvitationRow {
    /// The account.
    pub account: AccountId,
    /// The user who is invited.
    pub user: UserId,
    /// The line of the audit log of who invited them.
    pub line: ChangeId,
    /// When its link ends.
    pub expires_at: Timestamp,
}

impl Row for NoticeRow {
    const TABLE: Table = Table::Notices;
}

/// The mails to one address.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct NoticeAddressRow {
    /// The mail that gathers changes.
    pub gathering: Option<NoticeId>,
    /// The first due times of the last mails, oldest first.
    pub dues: Vec<Timestamp>,
}

impl Row for NoticeAddressRow {
    const TABLE: Table = Table::NoticeAddresses;
}

/// An address that may get notices: the operator's command line made it, or its owner opened a link sent there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProvenAddressRow {
    /// Since when.
    pub since: Timestamp,
}

impl Row for ProvenAddressRow {
    const TABLE: Table = Table::ProvenAddresses;
}

/// The invitations of an account in the last day.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct InvitationsRow {
    /// When each was made, oldest first.
    pub made: Vec<Timestamp>,
}

impl Row for InvitationsRow {
    const TABLE: Table = Table::Invitations;
}
