//! A recipient's one-click unsubscription (contract 3, RFC 8058): `unsubscribed` in the timeline, once, and the address
//! suppressed.

use serde::{Deserialize, Serialize};

use super::event::{self, EventDetails, Subject};
use super::suppression::{self, Suppression};
use super::{NotFound, Op, waiting};
use crate::base::id::{AccountId, MessageId};
use crate::machine::transfer::{Effect, Input};
use crate::store::error::OpError;
use crate::store::read::Read;
use crate::store::row::message::{MessageRow, TransferRow};
use crate::store::row::suppression::SuppressionReason;
use crate::store::schema;
use crate::store::tables::Tables;

/// Unsubscribes the recipient of a message.
#[derive(Debug, Serialize, Deserialize)]
pub struct Unsubscribe {
    /// The account.
    pub account: AccountId,
    /// The message whose link was used.
    pub message: MessageId,
    /// Queued messages to the same address whose leases the caller holds; they end.
    pub waiting: Vec<MessageId>,
}

impl Op for Unsubscribe {
    type Reply = ();
    type Refusal = NotFound;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<(), OpError<NotFound>> {
        let key = schema::message(self.account, self.message);
        let (Some(row), Some(mut transfer)) = (tables.row::<MessageRow>(&key)?, tables.row::<TransferRow>(&key)?)
        else {
            return Err(OpError::Refused(NotFound));
        };
        let next = transfer.state.step(Input::Unsubscribed);
        transfer.state = next.state;
        tables.put(&key, &transfer);
        for effect in next.effects {
            if let Effect::Record(kind) = effect {
                let subject = Subject { account: self.account, id: self.message, row: &row };
                let details = EventDetails { transfer: Some(&transfer), ..EventDetails::default() };
                event::record(tables, &subject, kind, &details)?;
            }
        }
        // A recipient who was subscribed again can unsubscribe again; the timeline shows it once.
        let suppression = Suppression {
            message: Some(self.message),
            ..Suppression::of(row.to.clone(), SuppressionReason::Unsubscribe)
        };
        suppression::add(tables, self.account, &suppression)?;
        Ok(waiting::suppress(tables, self.account, &self.waiting)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::op::settle_transfer::TransferEnd;
    use crate::store::op::suppression::{Name, Unsuppress};
    use crate::store::row::suppression::SuppressionRow;
    use crate::store::schema::Table;
    use crate::store::testing::TestStore;

    #[test]
    fn an_unsubscription_is_recorded_once_and_suppresses_every_time() {
        let test = TestStore::new();
        let sender = test.sender();
        let (account, message) = (sender.account, sender.accept("Ann@example.net"));
        sender.settle(message, TransferEnd::Delivered);
        let waits = sender.accept("ann@example.net");
        let click = || Unsubscribe { account, message, waiting: vec![waits] };
        test.done(click());
        let row: SuppressionRow = test.row(&schema::named(account, b"ann@example.net"));
        assert_eq!((row.reason, row.message), (SuppressionReason::Unsubscribe, Some(message)));
        assert_eq!(test.row::<TransferRow>(&sender.key(message)).state.status().as_str(), "delivered");
        assert_eq!(test.row::<TransferRow>(&sender.key(waits)).state.status().as_str(), "suppressed");
        test.done(Unsuppress { account, name: Name::Id(row.id) });
        test.done(click());
        assert_eq!(test.count(Table::Suppressions, &[]), 1);
        // Queued, delivered, unsubscribed.
        assert_eq!(test.count(Table::Timeline, &sender.key(message)), 3);
        let nothing = Unsubscribe { account, message: MessageId::default(), waiting: vec![] };
        assert!(matches!(test.commit(nothing), Err(OpError::Refused(NotFound))));
    }
}
