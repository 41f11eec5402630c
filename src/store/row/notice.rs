//! Notices: mails and webhook requests that report alerts, and invitations. They are not messages. They have no quota,
//! events or suppressions, and are not in any account's queue.

use serde::{Deserialize, Serialize};

use super::Row;
use super::alert::Channel;
use crate::base::id::{AccountId, AlertId, ChangeId, NoticeId, UserId};
use crate::base::time::Timestamp;
use crate::domain::address::Address;
use crate::domain::alert::NoticeKind;
use crate::machine::delivery;
use crate::store::schema::Table;

/// Maximum number of changes in one mail.
pub const ITEMS_MAX: usize = 200;

/// A notice to be sent. The row is removed when it was accepted or given up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoticeRow {
    /// Content and recipient.
    pub content: NoticeContent,
    /// Time of creation.
    pub created_at: Timestamp,
    /// Attempts that failed.
    pub attempts: u8,
    /// Due time of the next attempt.
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
        /// Body of the request, the same at every attempt.
        body: Vec<u8>,
        /// Attempts.
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

    /// Returns the changes in the notice.
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
    /// The account of the alert; zero for alerts of the service.
    pub account: AccountId,
    /// The alert.
    pub alert: AlertId,
    /// The change.
    pub kind: NoticeKind,
    /// Time of the change.
    pub at: Timestamp,
}

/// An invitation. Its link is created when it is sent, so that no secret is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InvitationRow {
    /// The account.
    pub account: AccountId,
    /// The user who is invited.
    pub user: UserId,
    /// The audit log line of the inviting user.
    pub line: ChangeId,
    /// Expiry of its link.
    pub expires_at: Timestamp,
}

impl Row for NoticeRow {
    const TABLE: Table = Table::Notices;
}

/// The mails to one address.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct NoticeAddressRow {
    /// The mail that collects further changes.
    pub gathering: Option<NoticeId>,
    /// First due times of the latest mails, and times of retried ones, oldest first.
    pub dues: Vec<Timestamp>,
    /// The mail that is retried. Other mails whose attempt fails are merged with it.
    pub retried: Option<NoticeId>,
}

impl Row for NoticeAddressRow {
    const TABLE: Table = Table::NoticeAddresses;
    const VERSION: u8 = 2;

    /// Decodes version 1, which lacks the last field. The field is then `None`: a zero byte.
    fn decode_earlier(version: u8, bytes: &[u8]) -> Option<postcard::Result<Self>> {
        (version == 1).then(|| postcard::from_bytes(&[bytes, &[0]].concat()))
    }
}

/// An address that may get notices: set by the operator on the command line, or confirmed by a link sent to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProvenAddressRow {
    /// Time of the confirmation.
    pub since: Timestamp,
}

impl Row for ProvenAddressRow {
    const TABLE: Table = Table::ProvenAddresses;
}

/// The invitations of an account in the last day.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct InvitationsRow {
    /// Time of each, oldest first.
    pub made: Vec<Timestamp>,
}

impl Row for InvitationsRow {
    const TABLE: Table = Table::Invitations;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_version_1_has_no_retried_mail() {
        let gathering = Some(NoticeId(crate::base::id::Ulid([9; 16])));
        let dues = vec![Timestamp::from_millis(1_000)];
        let bytes = postcard::to_allocvec(&(gathering, &dues)).unwrap();
        let row = NoticeAddressRow::decode(&[&[1], &bytes[..]].concat()).unwrap();
        assert_eq!(row, NoticeAddressRow { gathering, dues, retried: None });
    }
}
