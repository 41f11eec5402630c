//! Searches in a partly indexed store.

use super::*;
use crate::domain::subject_words::wanted;
use crate::store::op::message_index::{BLOCK, IndexMessages};
use crate::store::op::settle_transfer::TransferEnd;
use crate::store::row::message_index::METADATA_BYTES_MAX;
use crate::store::testing::{Sender, TestStore};
use crate::store::timer::TimerKind;

/// Number of messages after the blocks.
const REST: usize = 40;

fn send(test: &TestStore, sender: &Sender<'_>, to: &str, subject: &str) -> MessageId {
    let mut accept = sender.message(to);
    accept.message.subject = Some(subject.to_owned());
    let id = accept.id;
    assert!(test.commit(accept).is_ok());
    id
}

/// Writes two blocks and some more messages. Each message has a unique word, and every hundredth is to Ann.
fn fill(test: &TestStore, sender: &Sender<'_>) -> Vec<MessageId> {
    let write = |number: usize| {
        let to = if number % 100 == 7 { "Ann@example.net".to_owned() } else { format!("n{number}@example.net") };
        send(test, sender, &to, &format!("Order {number:05} for you"))
    };
    let mut messages: Vec<_> = (0..2 * BLOCK).map(write).collect();
    for timer in test.timers(TimerKind::MessageIndex) {
        test.done(IndexMessages { timer });
    }
    assert_eq!(test.count(Table::MessageIndex, &[]), 2);
    messages.extend((2 * BLOCK..2 * BLOCK + REST).map(write));
    messages
}

fn of_subject(text: &str) -> MessageFilter {
    MessageFilter { subject_words: wanted(text), ..MessageFilter::default() }
}

/// Returns all results of a search, page by page.
fn all(test: &TestStore, sender: &Sender<'_>, filter: &MessageFilter, limit: usize) -> Vec<MessageId> {
    let (mut found, mut before) = (Vec::new(), None);
    loop {
        let page = search(test.store(), sender.account, filter, PageRequest { before, limit }).unwrap();
        found.extend(page.rows.iter().map(|record| record.id));
        before = page.next;
        if before.is_none() {
            return found;
        }
    }
}

#[test]
fn a_message_is_found_by_its_fields_whether_it_is_indexed_or_not() {
    let test = TestStore::new();
    let sender = test.sender();
    let messages = fill(&test, &sender);
    for number in [0, BLOCK - 1, BLOCK, 2 * BLOCK - 1, 2 * BLOCK, 2 * BLOCK + REST - 1] {
        let found = |text: &str| all(&test, &sender, &of_subject(text), 10);
        assert_eq!(found(&format!("{number:05}")), [messages[number]]);
        assert_eq!(found(&format!("you order {number:05}")), [messages[number]]);
        assert!(found(&format!("invoice {number:05}")).is_empty());
    }
    let to_ann = MessageFilter { to: Some("ann@EXAMPLE.net".parse().unwrap()), ..MessageFilter::default() };
    let wanted: Vec<_> = messages.iter().skip(7).step_by(100).rev().copied().collect();
    assert_eq!((all(&test, &sender, &to_ann, 1), wanted.len()), (wanted, 6));
}

#[test]
fn pages_of_any_size_return_the_same_messages_in_both_directions() {
    let test = TestStore::new();
    let sender = test.sender();
    let messages = fill(&test, &sender);
    // Messages 100 to 199 and 500 to 551: in both blocks and in the part without an index.
    for (text, numbers) in [("001", 100..200), ("005", 500..2 * BLOCK + REST)] {
        let wanted: Vec<_> = messages[numbers].iter().rev().copied().collect();
        for limit in [1, 7, 100, 1000] {
            assert_eq!(all(&test, &sender, &of_subject(text), limit), wanted);
        }
        let oldest = *wanted.last().unwrap();
        let newer = search_newer(test.store(), sender.account, &of_subject(text), oldest, 10).unwrap();
        let newer: Vec<_> = newer.rows.iter().map(|record| record.id).collect();
        assert_eq!(newer, wanted[wanted.len() - 11..wanted.len() - 1]);
    }
}

#[test]
fn a_message_is_found_by_a_status_that_changed_late() {
    let test = TestStore::new();
    let sender = test.sender();
    let messages = fill(&test, &sender);
    let delivered = MessageFilter { statuses: vec![Status::Delivered], ..MessageFilter::default() };
    assert!(all(&test, &sender, &delivered, 10).is_empty());
    for number in [3, 2 * BLOCK + 1] {
        sender.settle(messages[number], TransferEnd::Delivered);
    }
    assert_eq!(all(&test, &sender, &delivered, 10), [messages[2 * BLOCK + 1], messages[3]]);
}

#[test]
fn a_filter_by_several_statuses_finds_messages_with_any_of_them() {
    let test = TestStore::new();
    let sender = test.sender();
    let messages = fill(&test, &sender);
    sender.settle(messages[3], TransferEnd::Suppressed);
    sender.settle(messages[BLOCK], TransferEnd::Delivered);
    sender.settle(messages[2 * BLOCK + 1], TransferEnd::Suppressed);
    let of = |statuses: &[Status]| MessageFilter { statuses: statuses.to_vec(), ..MessageFilter::default() };
    let suppressed = [messages[2 * BLOCK + 1], messages[3]];
    assert_eq!(all(&test, &sender, &of(&[Status::Failed, Status::Suppressed]), 1), suppressed);
    let ended = [messages[2 * BLOCK + 1], messages[BLOCK], messages[3]];
    assert_eq!(all(&test, &sender, &of(&[Status::Delivered, Status::Suppressed]), 10), ended);
}

#[test]
fn messages_that_wait_are_found_by_the_table_of_queued_messages() {
    let test = TestStore::new();
    let sender = test.sender();
    let messages = fill(&test, &sender);
    for id in &messages[2..messages.len() - 2] {
        sender.settle(*id, TransferEnd::Delivered);
    }
    let waiting = [messages.len() - 1, messages.len() - 2, 1, 0].map(|number| messages[number]);
    let filter = MessageFilter { statuses: vec![Status::Queued, Status::Deferred], ..MessageFilter::default() };
    for limit in [1, 3, 10] {
        assert_eq!(all(&test, &sender, &filter, limit), waiting);
    }
    let snapshot = test.snapshot();
    let queued = |filter: &MessageFilter| {
        let (from, to) = bounds(sender.account, filter, Some(messages[1].0));
        waiting::messages(&snapshot, sender.account, filter, (&from, &to)).unwrap()
    };
    assert_eq!(queued(&filter), Some(vec![messages[0].0]));
    let to = |text: &str| MessageFilter { to: Some(text.parse().unwrap()), ..filter.clone() };
    assert_eq!(queued(&to("N0@example.net")), Some(vec![messages[0].0]));
    assert_eq!(queued(&to("n2@example.net")), Some(Vec::new()));
    assert_eq!(queued(&MessageFilter::default()), None);
    let mixed = MessageFilter { statuses: vec![Status::Queued, Status::Delivered], ..filter.clone() };
    assert_eq!(queued(&mixed), None);
    let newer = search_newer(test.store(), sender.account, &to("n1@example.net"), messages[0], 5).unwrap();
    assert_eq!(newer.rows.iter().map(|record| record.id).collect::<Vec<_>>(), [messages[1]]);
}

#[test]
fn times_limit_the_results_within_a_block_too() {
    let test = TestStore::new();
    let sender = test.sender();
    let messages = fill(&test, &sender);
    let page = PageRequest { before: Some(messages[12].0), limit: 5 };
    let found = search(test.store(), sender.account, &of_subject("order"), page).unwrap();
    let found: Vec<_> = found.rows.iter().map(|record| record.id).collect();
    assert_eq!(found, messages[7..12].iter().rev().copied().collect::<Vec<_>>());
    let after = MessageFilter { after: Some(messages[0].0.timestamp()), ..of_subject("order") };
    assert!(all(&test, &sender, &after, 50).is_empty(), "the clock did not advance, so no message was created later");
}

#[test]
fn metadata_is_found_in_indexed_blocks_and_in_unindexed_messages() {
    let test = TestStore::new();
    let sender = test.sender();
    let write = |number: usize| {
        let mut accept = sender.message("a@example.net");
        accept.message.metadata.insert("order".to_owned(), number.to_string());
        accept.message.metadata.insert("long".to_owned(), "x".repeat(METADATA_BYTES_MAX + 1));
        let id = accept.id;
        assert!(test.commit(accept).is_ok());
        id
    };
    let mut messages: Vec<_> = (0..2 * BLOCK).map(write).collect();
    for timer in test.timers(TimerKind::MessageIndex) {
        test.done(IndexMessages { timer });
    }
    messages.extend((2 * BLOCK..2 * BLOCK + REST).map(write));
    let of_order = |number: usize| {
        let metadata = vec![("order".to_owned(), number.to_string())];
        all(&test, &sender, &MessageFilter { metadata, ..MessageFilter::default() }, 10)
    };
    let since = || metadata_indexed_since(test.store(), sender.account).unwrap();
    for number in [0, BLOCK, 2 * BLOCK, 2 * BLOCK + REST - 1] {
        assert_eq!(of_order(number), [messages[number]]);
    }
    assert!(of_order(2 * BLOCK + REST).is_empty());
    assert_eq!(since(), None);
    let of_value = |number: usize| {
        let filter = MessageFilter { metadata_value: Some(number.to_string()), ..MessageFilter::default() };
        all(&test, &sender, &filter, 10)
    };
    for number in [0, BLOCK, 2 * BLOCK + REST - 1] {
        assert_eq!(of_value(number), [messages[number]]);
    }
    assert!(of_value(2 * BLOCK + REST).is_empty());
    // The first block in the format of an earlier version.
    let key = sender.key(messages[BLOCK - 1]);
    let mut value = test.snapshot().get(Table::MessageIndex, &key).unwrap().unwrap();
    value[0] = 2;
    test.put(Table::MessageIndex, &key, Some(&value));
    assert!(of_order(0) == [messages[0]] && of_value(0).is_empty() && of_value(BLOCK) == [messages[BLOCK]]);
    value[0] = 1;
    test.put(Table::MessageIndex, &key, Some(&value));
    assert!(of_order(0).is_empty() && of_order(BLOCK - 1).is_empty());
    assert_eq!(of_order(BLOCK), [messages[BLOCK]]);
    assert_eq!(since(), Some(messages[BLOCK - 1].0.timestamp().moved_by(1)));
}

#[test]
fn another_accounts_messages_are_never_read() {
    let test = TestStore::new();
    let sender = test.sender();
    fill(&test, &sender);
    let page = PageRequest { before: None, limit: 10 };
    let other = AccountId(sender.account.0.next());
    assert!(search(test.store(), other, &of_subject("order"), page).unwrap().rows.is_empty());
}
