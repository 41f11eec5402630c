//! Indexing messages for searches: in blocks of some hundreds that follow one another, once enough have come together.
//! What is newer than the last block is few, and is looked at one by one.
//!
//! What changes in a block later is noted in the transaction that changes it: a message that was accepted after one
//! with a greater identifier, and a status.

use std::ops::ControlFlow;

use serde::{Deserialize, Serialize};

use super::{Never, Op};
use crate::base::id::{AccountId, MessageId, Ulid};
use crate::domain::event::EventType;
use crate::machine::transfer::Status;
use crate::store::error::{Stop, StoreError};
use crate::store::read::{Order, Read, after_prefix};
use crate::store::row::Row;
use crate::store::row::message::{MessageRow, TransferRow};
use crate::store::row::message_index::{Block, IndexedBlock, Term, terms};
use crate::store::schema::{self, Table};
use crate::store::tables::Tables;
use crate::store::timer::{Timer, TimerKind};

/// Messages of a block.
pub const BLOCK: usize = 256;
/// Messages that one operation indexes at most: some milliseconds of the writer's time.
const SLICE: usize = 4 * BLOCK;
/// Interval, in messages of a day, at which the index is maintained; also with the first of each day.
const EVERY: u64 = 1024;

/// Sees to the index where an account's `day_used`th message of the day is accepted.
pub(super) fn see_to(tables: &mut Tables<'_>, account: AccountId, day_used: u64) {
    if day_used % EVERY == 1 {
        tables.arm(Timer::new(tables.now(), TimerKind::MessageIndex, account, Ulid::default()));
    }
}

/// Notes a message that is accepted after one with a greater identifier.
pub(super) fn note_late(
    tables: &mut Tables<'_>,
    account: AccountId,
    id: MessageId,
    row: &MessageRow,
) -> Result<(), StoreError> {
    let mut terms = terms(row);
    terms.push(Term::status(Status::Queued));
    note(tables, account, id, &terms)
}

/// Notes the status that an event of `kind` brings about.
pub(super) fn note_status(
    tables: &mut Tables<'_>,
    account: AccountId,
    id: MessageId,
    kind: EventType,
) -> Result<(), StoreError> {
    let status = Status::ALL.into_iter().find(|status| status.as_str() == kind.as_str());
    status.map_or(Ok(()), |status| note(tables, account, id, &[Term::status(status)]))
}

fn note(tables: &mut Tables<'_>, account: AccountId, id: MessageId, terms: &[Term]) -> Result<(), StoreError> {
    let (from, to) = (schema::message(account, id), after_prefix(account.as_bytes()));
    let mut changed = None;
    tables.scan_sound(Table::MessageIndex, &from, &to, Order::Ascending, &mut |key, value| {
        // A damaged row of the index is no reason to refuse what it would only tell of.
        let block = IndexedBlock::decode(value).ok();
        changed = block.and_then(|block| block.with(id, terms)).map(|value| (key.to_vec(), value));
        Ok(ControlFlow::Break(()))
    })?;
    if let Some((key, value)) = changed {
        tables.put_bytes(Table::MessageIndex, &key, value);
    }
    Ok(())
}

/// The last message of an account that is in a block.
///
/// # Errors
/// Those of the store.
pub fn last_indexed(read: &impl Read, account: AccountId) -> Result<Option<MessageId>, StoreError> {
    let (from, to) = (account.as_bytes(), after_prefix(account.as_bytes()));
    let keys = read.sound_keys(Table::MessageIndex, from, &to, Order::Descending, 1)?;
    Ok(keys.first().and_then(|key| key.last_chunk()).map(|id| MessageId(Ulid(*id))))
}

/// Indexes those messages of an account that make whole blocks.
#[derive(Debug, Serialize, Deserialize)]
pub struct IndexMessages {
    /// The timer that was served.
    pub timer: Timer,
}

impl Op for IndexMessages {
    type Reply = ();
    type Refusal = Never;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<(), Stop<Never>> {
        tables.disarm(self.timer);
        let account = self.timer.account;
        let from = last_indexed(tables, account)?.map_or_else(MessageId::default, |last| MessageId(last.0.next()));
        let (from, to) = (schema::message(account, from), after_prefix(account.as_bytes()));
        let (mut block, mut blocks, mut seen) = (Block::default(), Vec::new(), 0);
        tables.scan_sound(Table::Messages, &from, &to, Order::Ascending, &mut |key, bytes| {
            let Some(id) = key.last_chunk::<16>() else { return Ok(ControlFlow::Continue(())) };
            // A damaged row is found by nothing; its block goes on.
            let terms = MessageRow::decode(bytes).map(|row| terms(&row)).unwrap_or_default();
            let transfer = tables.row::<TransferRow>(key).ok().flatten();
            let status = transfer.map(|transfer| Term::status(transfer.state.status()));
            block.add(MessageId(Ulid(*id)), terms.into_iter().chain(status));
            if block.count == BLOCK {
                blocks.push((key.to_vec(), block.encode()));
                block = Block::default();
            }
            seen += 1;
            Ok(if seen == SLICE { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        for (key, value) in blocks {
            tables.put_bytes(Table::MessageIndex, &key, value);
        }
        if seen == SLICE {
            tables.arm(Timer { due: tables.now(), ..self.timer });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::op::settle_transfer::TransferEnd;
    use crate::store::testing::TestStore;

    #[test]
    fn whole_blocks_are_indexed_and_the_rest_waits_for_more() {
        let test = TestStore::new();
        let sender = test.sender();
        let messages: Vec<_> = (0..BLOCK + 3).map(|number| sender.accept(&format!("n{number}@example.net"))).collect();
        let timers = test.timers(TimerKind::MessageIndex);
        assert_eq!(timers.len(), 1, "with the first of the day");
        test.done(IndexMessages { timer: timers[0] });
        assert!(test.timers(TimerKind::MessageIndex).is_empty());
        assert_eq!(last_indexed(&test.snapshot(), sender.account).unwrap(), Some(messages[BLOCK - 1]));
        assert_eq!(test.keys(Table::MessageIndex, &[]), [sender.key(messages[BLOCK - 1]).to_vec()]);
    }

    #[test]
    fn a_block_learns_of_every_later_status() {
        let test = TestStore::new();
        let sender = test.sender();
        let messages: Vec<_> = (0..BLOCK).map(|number| sender.accept(&format!("n{number}@example.net"))).collect();
        let timers = test.timers(TimerKind::MessageIndex);
        test.done(IndexMessages { timer: timers[0] });
        let has = |status| {
            let value = test.snapshot().get(Table::MessageIndex, &sender.key(messages[BLOCK - 1])).unwrap().unwrap();
            IndexedBlock::decode(&value).unwrap().may_have(Term::status(status))
        };
        assert!(has(Status::Queued) && !has(Status::Delivered));
        sender.settle(messages[7], TransferEnd::Delivered);
        assert!(has(Status::Delivered));
    }

    #[test]
    fn a_message_that_comes_after_its_block_is_in_it() {
        let test = TestStore::new();
        let sender = test.sender();
        let late = sender.message("late@example.net");
        let messages: Vec<_> = (0..BLOCK).map(|number| sender.accept(&format!("n{number}@example.net"))).collect();
        let timers = test.timers(TimerKind::MessageIndex);
        test.done(IndexMessages { timer: timers[0] });
        let id = late.id;
        assert!(id < messages[0] && test.answer_of(late).is_ok());
        let value = test.snapshot().get(Table::MessageIndex, &sender.key(messages[BLOCK - 1])).unwrap().unwrap();
        let block = IndexedBlock::decode(&value).unwrap();
        assert!(block.first == id && block.may_have(Term::to(&"late@example.net".parse().unwrap())));
    }
}
