//! Indexing messages for searches, in blocks of some hundreds of consecutive messages. The few messages after the last
//! block are searched one by one.
//!
//! Two later changes of a block are written in the transaction that causes them. One is a message accepted after
//! another with a greater identifier, and the other is a new status.

use std::ops::ControlFlow;

use serde::{Deserialize, Serialize};

use super::{Infallible, Op};
use crate::base::id::{AccountId, MessageId, Ulid};
use crate::base::time::Timestamp;
use crate::domain::event::EventType;
use crate::machine::transfer::Status;
use crate::store::error::{OpError, StoreError};
use crate::store::read::{Order, Read, after_prefix, sound};
use crate::store::row::Row;
use crate::store::row::message::{MessageRow, TransferRow};
use crate::store::row::message_index::{Block, IndexedBlock, Term, terms};
use crate::store::schema::{self, Table};
use crate::store::tables::Tables;
use crate::store::timer::{Timer, TimerKind};

/// Number of messages in a block.
pub const BLOCK: usize = 256;
/// Maximum number of messages that one operation indexes, which takes some milliseconds of the writer's time.
const SLICE: usize = 4 * BLOCK;
/// Number of an account's messages on a day between two runs of the indexing. It also runs at the first message of a
/// day.
const EVERY: u64 = 1024;

/// Arms the indexing if it is due with an account's `day_used`th message of the day.
pub(super) fn see_to(tables: &mut Tables<'_>, account: AccountId, day_used: u64) {
    if day_used % EVERY == 1 {
        tables.arm(Timer::new(tables.now(), TimerKind::MessageIndex, account, Ulid::default()));
    }
}

/// Adds a message that is accepted after one with a greater identifier to its block.
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

/// Adds the status that an event of `kind` causes to the message's block.
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
        // A damaged row of the index must not refuse an operation.
        let block = IndexedBlock::decode(value).ok();
        changed = block.and_then(|block| block.with(id, terms)).map(|value| (key.to_vec(), value));
        Ok(ControlFlow::Break(()))
    })?;
    if let Some((key, value)) = changed {
        tables.put_bytes(Table::MessageIndex, &key, value);
    }
    Ok(())
}

/// Returns the last message of an account that is in a block.
///
/// # Errors
/// Store errors.
pub fn last_indexed(read: &impl Read, account: AccountId) -> Result<Option<MessageId>, StoreError> {
    let (from, to) = (account.as_bytes(), after_prefix(account.as_bytes()));
    let keys = read.sound_keys(Table::MessageIndex, from, &to, Order::Descending, 1)?;
    Ok(keys.first().and_then(|key| key.last_chunk()).map(|id| MessageId(Ulid(*id))))
}

/// Returns the last message of an account in a block of a version before `version`; `None` if there is no such block.
/// Earlier versions of Postrider wrote them, so they precede all others and are found by bisection over their times.
///
/// # Errors
/// Store errors.
pub fn last_before_version(read: &impl Read, account: AccountId, version: u8) -> Result<Option<MessageId>, StoreError> {
    let earlier_from = |from| Ok::<_, StoreError>(block_from(read, account, from)?.filter(|(_, is)| *is < version));
    let (Some((mut last, _)), Some(newest)) = (earlier_from(Ulid::default())?, last_indexed(read, account)?) else {
        return Ok(None);
    };
    let (mut low, mut high) = (last.0.timestamp().as_millis(), newest.0.timestamp().as_millis() + 1);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        match earlier_from(Ulid::new(Timestamp::from_millis(middle), [0; 10]))? {
            Some((id, _)) => (last, low) = (id, id.0.timestamp().as_millis()),
            None => high = middle,
        }
    }
    while let Some((id, _)) = earlier_from(last.0.next())? {
        last = id;
    }
    Ok(Some(last))
}

/// Returns the last message of the first block that ends at or after `from`, and the block's version.
fn block_from(read: &impl Read, account: AccountId, from: Ulid) -> Result<Option<(MessageId, u8)>, StoreError> {
    let (from, to) = (schema::message(account, MessageId(from)), after_prefix(account.as_bytes()));
    let mut found = None;
    read.scan_sound(Table::MessageIndex, &from, &to, Order::Ascending, &mut |key, value| {
        let block = sound(IndexedBlock::decode(value))?;
        found = key.last_chunk().zip(block).map(|(id, block)| (MessageId(Ulid(*id)), block.version));
        Ok(if found.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    Ok(found)
}

/// Indexes the messages of an account that fill whole blocks.
#[derive(Debug, Serialize, Deserialize)]
pub struct IndexMessages {
    /// The timer that was served.
    pub timer: Timer,
}

impl Op for IndexMessages {
    type Reply = ();
    type Refusal = Infallible;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<(), OpError<Infallible>> {
        tables.disarm(self.timer);
        let account = self.timer.account;
        let from = last_indexed(tables, account)?.map_or_else(MessageId::default, |last| MessageId(last.0.next()));
        let (from, to) = (schema::message(account, from), after_prefix(account.as_bytes()));
        let (mut block, mut blocks, mut seen) = (Block::default(), Vec::new(), 0);
        tables.scan_sound(Table::Messages, &from, &to, Order::Ascending, &mut |key, bytes| {
            let Some(id) = key.last_chunk::<16>() else { return Ok(ControlFlow::Continue(())) };
            // A damaged row has no terms; its block is written without them.
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
    fn only_full_blocks_are_indexed() {
        let test = TestStore::new();
        let sender = test.sender();
        let messages: Vec<_> = (0..BLOCK + 3).map(|number| sender.accept(&format!("n{number}@example.net"))).collect();
        let timers = test.timers(TimerKind::MessageIndex);
        assert_eq!(timers.len(), 1, "with the first message of the day");
        test.done(IndexMessages { timer: timers[0] });
        assert!(test.timers(TimerKind::MessageIndex).is_empty());
        assert_eq!(last_indexed(&test.snapshot(), sender.account).unwrap(), Some(messages[BLOCK - 1]));
        assert_eq!(test.keys(Table::MessageIndex, &[]), [sender.key(messages[BLOCK - 1]).to_vec()]);
    }

    #[test]
    fn a_unique_metadata_pair_takes_three_bytes() {
        let bytes_a_message = |pairs: usize| {
            let test = TestStore::new();
            let sender = test.sender();
            for number in 0..BLOCK {
                let mut accept = sender.message(&format!("n{number}@example.net"));
                accept.message.subject = Some(format!("Your order {number} has been shipped"));
                let pair = |pair| (format!("name{pair}"), format!("{number}-{pair}"));
                accept.message.metadata = (0..pairs).map(pair).collect();
                assert!(test.commit(accept).is_ok());
            }
            test.timers(TimerKind::MessageIndex).into_iter().for_each(|timer| test.done(IndexMessages { timer }));
            let key = test.keys(Table::MessageIndex, &[]).remove(0);
            test.snapshot().get(Table::MessageIndex, &key).unwrap().unwrap().len() as f64 / BLOCK as f64
        };
        let [none, three, ten] = [0, 3, 10].map(bytes_a_message);
        assert!((three - none - 9.0).abs() < 0.1 && (ten - none - 30.0).abs() < 0.1, "{none} {three} {ten}");
    }

    #[test]
    fn a_block_gets_every_later_status() {
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
    fn finds_the_last_block_of_an_earlier_version_at_any_position() {
        let test = TestStore::new();
        let account = test.sender().account;
        // Three blocks at each of several times.
        let ends: Vec<_> =
            (0..30_u64).map(|n| Ulid::new(Timestamp::from_millis(n / 3 * 7919), [n as u8; 10])).collect();
        let put = |end: Ulid, version: u8| {
            let mut value = Block::default().encode();
            value[0] = version;
            test.put(Table::MessageIndex, &schema::message(account, MessageId(end)), Some(&value));
        };
        ends.iter().for_each(|end| put(*end, 2));
        assert_eq!(last_before_version(&test.snapshot(), account, 2).unwrap(), None);
        for end in ends {
            put(end, 1);
            assert_eq!(last_before_version(&test.snapshot(), account, 2).unwrap(), Some(MessageId(end)));
        }
        let other = AccountId(account.0.next());
        assert_eq!(last_before_version(&test.snapshot(), other, 2).unwrap(), None);
    }

    #[test]
    fn a_late_message_is_added_to_its_block() {
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
