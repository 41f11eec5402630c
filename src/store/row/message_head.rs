//! The first fields of a message's rows, borrowed from the stored bytes. Searches check many rows for a few fields.
//! Reading a head takes a fraction of the time that decoding the row takes, and allocates nothing.

use memchr::memmem;
use serde::Deserialize;

use crate::base::id::DomainId;
use crate::base::time::Timestamp;
use crate::domain::address::Address;
use crate::domain::stream::Stream;
use crate::machine::transfer;

/// The first fields of a [`MessageRow`](super::message::MessageRow).
#[derive(Debug, Deserialize)]
pub struct MessageHead<'a> {
    _domain: DomainId,
    /// Stream of the domain at acceptance.
    pub stream: Stream,
    #[serde(borrow)]
    from: StoredAddress<'a>,
    #[serde(borrow)]
    _from_name: Option<&'a str>,
    #[serde(borrow)]
    to: StoredAddress<'a>,
    /// The subject.
    #[serde(borrow)]
    pub subject: Option<&'a str>,
}

/// An address: as given, its local part and its domain.
type StoredAddress<'a> = (&'a str, &'a str, &'a str);

impl<'a> MessageHead<'a> {
    /// Reads the stored bytes of a message's row of any version. `None` if they can't be read.
    pub fn read(bytes: &'a [u8]) -> Option<Self> {
        read(bytes)
    }

    /// Returns the recipient as given.
    pub const fn to_as_given(&self) -> &'a str {
        self.to.0
    }

    /// Returns whether `address` is the recipient's.
    pub fn is_to(&self, address: &Address) -> bool {
        address.matches(self.to.1, self.to.2)
    }

    /// Returns whether `address` is the sender's.
    pub fn is_from(&self, address: &Address) -> bool {
        address.matches(self.from.1, self.from.2)
    }

    /// Returns the domain of the sender.
    pub const fn from_domain(&self) -> &'a str {
        self.from.2
    }

    /// Returns the domain of the recipient.
    pub const fn to_domain(&self) -> &'a str {
        self.to.2
    }
}

/// The first fields of a [`TransferRow`](super::message::TransferRow).
#[derive(Debug, Deserialize)]
pub struct TransferHead {
    /// State of the machine; its status is the message's.
    pub state: transfer::State,
    _status_at: Timestamp,
    /// Number of attempts that reached a server or were refused by the DNS.
    pub attempts: u32,
    /// Due time of its timer. `None` once it has ended.
    pub due: Option<Timestamp>,
}

impl TransferHead {
    /// Reads the stored bytes of a transfer's row of any version. `None` if they can't be read.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        read(bytes)
    }
}

/// Returns whether a stored row contains `text`. A row has each of its texts as it is.
pub fn has_text(bytes: &[u8], text: &str) -> bool {
    memmem::find(bytes, text.as_bytes()).is_some()
}

/// Reads fields after the version byte. All versions begin with the same fields.
fn read<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Option<T> {
    let (_, rest) = bytes.split_first()?;
    postcard::take_from_bytes(rest).ok().map(|(head, _)| head)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::op::settle_transfer::TransferEnd;
    use crate::store::read::Read as _;
    use crate::store::row::Row as _;
    use crate::store::row::message::{MessageRow, TransferRow};
    use crate::store::testing::TestStore;

    #[test]
    fn heads_have_the_fields_of_their_rows() {
        let test = TestStore::new();
        let sender = test.sender();
        let mut accept = sender.message("b@example.net");
        accept.message.from_name = Some("Größe".to_owned());
        accept.message.subject = Some("An order".to_owned());
        let id = accept.id;
        assert!(test.commit(accept).is_ok());
        sender.settle(id, TransferEnd::Deferred { bounce: None, not_before: None });
        let row: MessageRow = test.snapshot().row(&sender.key(id)).unwrap().unwrap();
        let transfer: TransferRow = test.snapshot().row(&sender.key(id)).unwrap().unwrap();
        let (bytes, transfer_bytes) = (row.encode(), transfer.encode());
        let head = MessageHead::read(&bytes).unwrap();
        assert_eq!((head.stream, head.subject), (row.stream, row.subject.as_deref()));
        assert_eq!((head.to_as_given(), head.to_domain()), (row.to.as_given(), row.to.domain().as_str()));
        assert_eq!(head.from_domain(), row.from.domain().as_str());
        assert!(head.is_to(&"B@example.net".parse().unwrap()) && !head.is_to(&"b@example.com".parse().unwrap()));
        assert!(head.is_from(&row.from) && !head.is_from(&row.to));
        assert!(has_text(&bytes, "An order") && has_text(&bytes, "Größe") && !has_text(&bytes, "An orders"));
        let head = TransferHead::read(&transfer_bytes).unwrap();
        assert_eq!((head.state, head.attempts, head.due), (transfer.state, 1, transfer.due));
        assert!(MessageHead::read(&bytes[..20]).is_none() && TransferHead::read(&[]).is_none());
    }
}
