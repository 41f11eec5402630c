//! Canceling a queued message (contract 3). The caller holds its lease, so the message is not in flight.

use serde::{Deserialize, Serialize};

use super::event::Subject;
use super::{Op, waiting};
use crate::base::id::{AccountId, MessageId};
use crate::machine::transfer::{AttemptProgress, Effect, Input};
use crate::store::error::OpError;
use crate::store::read::Read;
use crate::store::row::message::{MessageRow, TransferRow};
use crate::store::schema;
use crate::store::tables::Tables;

/// Cancels a message. The caller holds its lease.
#[derive(Debug, Serialize, Deserialize)]
pub struct CancelMessage {
    /// The account.
    pub account: AccountId,
    /// The message.
    pub message: MessageId,
}

/// Reason why a message can't be canceled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelRefusal {
    /// There is no such message.
    NotFound,
    /// The message has ended, or is in flight now.
    TooLate,
}

impl Op for CancelMessage {
    type Reply = ();
    type Refusal = CancelRefusal;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<(), OpError<CancelRefusal>> {
        let key = schema::message(self.account, self.message);
        let (Some(row), Some(transfer)) = (tables.row::<MessageRow>(&key)?, tables.row::<TransferRow>(&key)?) else {
            return Err(OpError::Refused(CancelRefusal::NotFound));
        };
        let asked = Input::CancelAsked(AttemptProgress::Idle);
        if transfer.state.step(asked).effects.contains(&Effect::RefuseCancel) {
            return Err(OpError::Refused(CancelRefusal::TooLate));
        }
        let subject = Subject { account: self.account, id: self.message, row: &row };
        waiting::withdraw(tables, &subject, transfer, asked)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::transfer::Status;
    use crate::store::op::settle_transfer::{SettleOutcome, SettleTransfer, TransferEnd};
    use crate::store::schema::Table;
    use crate::store::testing::TestStore;
    use crate::store::timer::TimerKind;

    #[test]
    fn a_canceled_message_has_an_event_and_no_timer_and_ignores_a_late_outcome() {
        let test = TestStore::new();
        let sender = test.sender();
        let message = sender.accept("b@example.net");
        let cancel = || CancelMessage { account: sender.account, message };
        test.done(cancel());
        let transfer: TransferRow = test.row(&sender.key(message));
        assert_eq!((transfer.state.status(), transfer.due), (Status::Canceled, None));
        assert!(test.timers(TimerKind::Transfer).is_empty());
        assert_eq!(test.count(Table::Timeline, &sender.key(message)), 2);
        assert!(matches!(test.commit(cancel()), Err(OpError::Refused(CancelRefusal::TooLate))));
        let late = SettleTransfer {
            account: sender.account,
            message,
            due: test.now(),
            end: TransferEnd::Delivered,
            facts: Default::default(),
            provider: None,
            random: [0; 4],
            others: vec![],
            transcript: None,
        };
        assert_eq!(test.done(late), SettleOutcome::Stale);
    }
}
