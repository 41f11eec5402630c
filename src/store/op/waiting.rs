//! Queued messages by their recipient's address. A suppression of the address ends them (contract 6).
//!
//! A message has its row from acceptance to its end. The table therefore contains only the queue. While mail flows it
//! is a page or two, and writes to it are cheap.

use std::ops::ControlFlow;

use serde::{Deserialize, Serialize};

use super::event::{self, EventDetails, Subject};
use super::{Infallible, Op, suppression};
use crate::base::id::{AccountId, MessageId, Ulid};
use crate::domain::address::Address;
use crate::machine::transfer::{AttemptProgress, Effect, Input};
use crate::store::error::{OpError, StoreError};
use crate::store::read::{Order, Read, after_prefix, sound};
use crate::store::row::message::{MessageRow, TransferRow};
use crate::store::schema::{self, Table};
use crate::store::tables::Tables;
use crate::store::timer::{Timer, TimerKind};

/// Maximum number of messages that one operation ends.
pub const ENDED_MAX: usize = 256;
/// Number of queued messages that one call of [`for_suppressed`] checks.
const LOOKED_MAX: usize = 4096;

/// Records that a message to `to` is queued.
pub(super) fn begin(tables: &mut Tables<'_>, account: AccountId, message: MessageId, to: &Address) {
    tables.put_bytes(Table::Waiting, &schema::waiting(account, &to.match_key(), message), Vec::new());
}

/// Records that a message to `to` is no longer queued, and disarms its timer.
pub(super) fn end(
    tables: &mut Tables<'_>,
    account: AccountId,
    message: MessageId,
    to: &Address,
    transfer: &mut TransferRow,
) {
    if let Some(due) = transfer.due.take() {
        tables.disarm(Timer::new(due, TimerKind::Transfer, account, message.0));
    }
    tables.remove(Table::Waiting, &schema::waiting(account, &to.match_key(), message));
}

/// Returns up to `limit` queued messages to an address after `after`, oldest first.
///
/// # Errors
/// Store errors.
pub fn to_address(
    read: &impl Read,
    account: AccountId,
    address: &Address,
    after: Option<MessageId>,
    limit: usize,
) -> Result<Vec<MessageId>, StoreError> {
    let match_key = address.match_key();
    let prefix = schema::waiting_for(account, &match_key);
    let from = match after {
        Some(message) => [schema::waiting(account, &match_key, message).as_slice(), &[0]].concat(),
        None => prefix.clone(),
    };
    let keys = read.sound_keys(Table::Waiting, &from, &after_prefix(&prefix), Order::Ascending, limit)?;
    Ok(keys.iter().filter_map(|key| key.last_chunk::<16>()).map(|id| MessageId(Ulid(*id))).collect())
}

/// A part of an account's queued messages to suppressed addresses.
#[derive(Debug, Default)]
pub struct ForSuppressed {
    /// Messages, at most [`ENDED_MAX`].
    pub messages: Vec<MessageId>,
    /// Start of the next part; `None` at the end.
    pub next: Option<Vec<u8>>,
}

/// Returns queued messages of an account to suppressed addresses, from this key on.
///
/// # Errors
/// Store errors.
pub fn for_suppressed(read: &impl Read, account: AccountId, from: &[u8]) -> Result<ForSuppressed, StoreError> {
    let (mut found, mut looked) = (ForSuppressed::default(), 0);
    let to = after_prefix(account.as_bytes());
    read.scan_sound(Table::Waiting, from, &to, Order::Ascending, &mut |key, _| {
        // The key begins with the key of the address's suppression.
        let Some((key_of_address, [0, id @ ..])) = key.split_last_chunk::<17>() else {
            return Ok(ControlFlow::Continue(()));
        };
        if sound(suppression::find(read, account, key_of_address))?.flatten().is_some() {
            found.messages.push(MessageId(Ulid(*id)));
        }
        looked += 1;
        if looked < LOOKED_MAX && found.messages.len() < ENDED_MAX {
            return Ok(ControlFlow::Continue(()));
        }
        found.next = Some([key, &[0]].concat());
        Ok(ControlFlow::Break(()))
    })?;
    Ok(found)
}

/// Ends messages to an address that was suppressed. The caller holds their leases, so none is in flight. Messages that
/// have already ended are not changed.
pub(super) fn suppress(tables: &mut Tables<'_>, account: AccountId, messages: &[MessageId]) -> Result<(), StoreError> {
    for id in messages {
        let key = schema::message(account, *id);
        let rows = (tables.sound_row::<MessageRow>(&key)?, tables.sound_row::<TransferRow>(&key)?);
        let (Some(row), Some(transfer)) = rows else {
            continue;
        };
        withdraw(
            tables,
            &Subject { account, id: *id, row: &row },
            transfer,
            Input::RecipientSuppressed(AttemptProgress::Idle),
        )?;
    }
    Ok(())
}

/// Ends messages whose address is suppressed.
#[derive(Debug, Serialize, Deserialize)]
pub struct EndWaiting {
    /// The account.
    pub account: AccountId,
    /// Queued messages whose leases the caller holds.
    pub messages: Vec<MessageId>,
}

impl Op for EndWaiting {
    type Reply = ();
    type Refusal = Infallible;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<(), OpError<Infallible>> {
        let mut suppressed = Vec::new();
        for id in &self.messages {
            // A damaged row is skipped. The worker that reads it reports the damage.
            let row: Option<MessageRow> = tables.sound_row(&schema::message(self.account, *id))?;
            if let Some(row) = row
                && sound(suppression::is_suppressed(tables, self.account, &row.to))? == Some(true)
            {
                suppressed.push(*id);
            }
        }
        Ok(suppress(tables, self.account, &suppressed)?)
    }
}

/// Removes a queued message from the queue for the reason in `input`. Does nothing if it has ended.
pub(super) fn withdraw(
    tables: &mut Tables<'_>,
    subject: &Subject<'_>,
    mut transfer: TransferRow,
    input: Input,
) -> Result<(), StoreError> {
    let next = transfer.state.step(input);
    if next.state.status() != transfer.state.status() {
        transfer.status_at = tables.now();
    }
    transfer.state = next.state;
    for effect in next.effects {
        match effect {
            Effect::Record(kind) => {
                event::record(tables, subject, kind, &EventDetails::default())?;
            }
            Effect::StopAttempts => end(tables, subject.account, subject.id, &subject.row.to, &mut transfer),
            // A withdrawn message is never retried, and the recipient did not cause the withdrawal.
            Effect::ScheduleAttempt | Effect::SuppressRecipient | Effect::RefuseCancel => {}
        }
    }
    tables.put(&schema::message(subject.account, subject.id), &transfer);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::transfer::Status;
    use crate::store::op::settle_transfer::TransferEnd;
    use crate::store::op::suppression::{Suppress, Suppression};
    use crate::store::row::suppression::SuppressionReason;
    use crate::store::testing::{Sender, TestStore};

    fn suppress(sender: &Sender<'_>, to: &str, waiting: Vec<MessageId>) -> Suppress {
        let suppression = Suppression::of(to.parse().unwrap(), SuppressionReason::Manual);
        Suppress { account: sender.account, suppression, waiting }
    }

    #[test]
    fn suppressing_an_address_ends_only_its_queued_messages_in_the_same_transaction() {
        let test = TestStore::new();
        let sender = test.sender();
        let messages =
            ["Ann@example.net", "ann@EXAMPLE.net", "ann@example.net.example.org"].map(|to| sender.accept(to));
        let waiting =
            to_address(&test.snapshot(), sender.account, &"ann@example.net".parse().unwrap(), None, 9).unwrap();
        assert_eq!(waiting, messages[..2]);
        test.done(suppress(&sender, "ann@example.net", waiting));
        let status = |id: MessageId| test.row::<TransferRow>(&sender.key(id)).state.status();
        assert_eq!(messages.map(status), [Status::Suppressed, Status::Suppressed, Status::Queued]);
        assert_eq!((test.timers(TimerKind::Transfer).len(), test.count(Table::Waiting, &[])), (1, 1));
        test.done(EndWaiting { account: sender.account, messages: messages.to_vec() });
        assert_eq!(status(messages[2]), Status::Queued, "its address is not suppressed");
        assert_eq!(test.count(Table::Timeline, &sender.key(messages[0])), 2);
    }

    #[test]
    fn a_message_is_queued_from_acceptance_to_its_end() {
        let test = TestStore::new();
        let sender = test.sender();
        let message = sender.accept("b@example.net");
        let deferred = || TransferEnd::Deferred { bounce: None, not_before: None };
        for (end, left) in [(deferred(), 1), (TransferEnd::Delivered, 0)] {
            sender.settle(message, end);
            assert_eq!(test.count(Table::Waiting, &[]), left);
        }
    }

    #[test]
    fn a_message_in_flight_ends_when_its_outcome_would_defer_it() {
        let test = TestStore::new();
        let sender = test.sender();
        let message = sender.accept("b@example.net");
        test.done(suppress(&sender, "b@example.net", vec![]));
        assert_eq!(test.count(Table::Waiting, &[]), 1);
        sender.settle(message, TransferEnd::Deferred { bounce: None, not_before: None });
        let transfer: TransferRow = test.row(&sender.key(message));
        assert_eq!((transfer.state.status(), transfer.due), (Status::Suppressed, None));
        assert_eq!(test.count(Table::Waiting, &[]) + test.timers(TimerKind::Transfer).len(), 0);
        // Queued, deferred, suppressed.
        assert_eq!(test.count(Table::Timeline, &sender.key(message)), 3);
    }
}
