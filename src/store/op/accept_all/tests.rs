//! Tests of messages accepted together: all of them or none, and the cost of replays.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::base::id::MessageId;
use crate::domain::account::QuotaLimits;
use crate::machine::quota::Quota;
use crate::store::op::admission::IdempotencyClaim;
use crate::store::op::suppression::{Suppress, Suppression};
use crate::store::read::{Order, Read as _, after_prefix};
use crate::store::row::suppression::SuppressionReason;
use crate::store::schema::Table;
use crate::store::testing::{START, Sender, TestStore};
use crate::store::timer::TimerKind;

/// Returns every row of the store except its own facts.
fn rows(test: &TestStore) -> Vec<(&'static str, Vec<u8>, Vec<u8>)> {
    let mut rows = Vec::new();
    for table in Table::ALL.iter().filter(|table| **table != Table::Meta) {
        let keys = test.snapshot().keys(*table, &[], &after_prefix(&[]), Order::Ascending, usize::MAX).unwrap();
        for key in keys {
            let value = test.snapshot().get(*table, &key).unwrap().unwrap();
            rows.push((table.name(), key, value));
        }
    }
    rows
}

fn accept_all(test: &TestStore, messages: Vec<Accept>) -> Result<Vec<Accepted>, FirstRefusal> {
    test.commit(AcceptAll { messages }).map_err(|stop| match stop {
        OpError::Refused(refused) => refused,
        OpError::Failed(error) => panic!("the store failed: {error}"),
    })
}

fn to_each(sender: &Sender<'_>, count: usize) -> Vec<Accept> {
    (0..count).map(|number| sender.message(&format!("n{number}@example.net"))).collect()
}

fn with_key(accept: Accept, key: u8, body: u8) -> Accept {
    let claim = IdempotencyClaim { key_hash: [key; 32], body_hash: [body; 32] };
    Accept { idempotency: Some(claim), ..accept }
}

#[test]
fn all_are_accepted_and_the_quota_adds_up() {
    let test = TestStore::new();
    let sender = test.sender_with(QuotaLimits { per_hour: 5, per_day: 100 });
    let accepted = accept_all(&test, to_each(&sender, 3)).unwrap();
    let remaining: Vec<_> = accepted.iter().map(|accepted| accepted.quota.hour.remaining).collect();
    assert_eq!(remaining, [4, 3, 2]);
    assert_eq!(test.row::<Quota>(sender.account.as_bytes()).hour_used, 3);
    assert_eq!(test.timers(TimerKind::Transfer).len(), 3);
}

#[test]
fn one_message_over_the_quota_refuses_all() {
    let test = TestStore::new();
    let sender = test.sender_with(QuotaLimits { per_hour: 5, per_day: 100 });
    accept_all(&test, to_each(&sender, 3)).unwrap();
    let before = rows(&test);
    let refused = accept_all(&test, to_each(&sender, 3)).unwrap_err();
    assert!(matches!(refused, FirstRefusal { place: 2, refusal: Refusal::QuotaExhausted(_) }), "{refused:?}");
    assert_eq!(rows(&test), before);
    assert_eq!(accept_all(&test, to_each(&sender, 2)).unwrap().len(), 2);
}

#[test]
fn a_replay_among_new_recipients_returns_the_first_answer_and_uses_no_quota() {
    let test = TestStore::new();
    let sender = test.sender();
    let first = accept_all(&test, vec![with_key(sender.message("a@example.net"), 1, 1)]).unwrap();
    let both = vec![with_key(sender.message("a@example.net"), 1, 1), with_key(sender.message("b@example.net"), 2, 1)];
    let again = accept_all(&test, both).unwrap();
    assert_eq!((again[0].is_replay, &again[0].answer), (true, &first[0].answer));
    assert!(!again[1].is_replay);
    assert_eq!(test.count(Table::Messages, &[]), 2);
    assert_eq!(test.row::<Quota>(sender.account.as_bytes()).hour_used, 2);
    let other = vec![sender.message("c@example.net"), with_key(sender.message("a@example.net"), 1, 2)];
    let refused = accept_all(&test, other).unwrap_err();
    assert_eq!(refused, FirstRefusal { place: 1, refusal: Refusal::IdempotencyMismatch });
    assert_eq!(test.count(Table::Messages, &[]), 2);
}

#[test]
fn messages_with_the_same_new_key_are_accepted_once() {
    let test = TestStore::new();
    let sender = test.sender();
    let twice = (0..2).map(|_| with_key(sender.message("a@example.net"), 1, 1)).collect();
    let accepted = accept_all(&test, twice).unwrap();
    assert_eq!(accepted.iter().filter(|accepted| accepted.is_replay).count(), 1);
    assert_eq!(accepted[0].answer, accepted[1].answer);
    assert_eq!(test.count(Table::Messages, &[]), 1);
}

#[test]
fn bodies_are_appended_in_order_and_named_in_one_commit() {
    let test = TestStore::new();
    let sender = test.sender();
    let store = test.store();
    let messages = to_each(&sender, 5);
    let ids: Vec<MessageId> = messages.iter().map(|accept| accept.id).collect();
    let body = |place: usize| vec![u8::try_from(place).unwrap(); 10 << (4 * place)];
    let bucket = START + std::time::Duration::from_secs(3600);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let accepted = runtime.block_on(async {
        let mut appended = store.announce_bodies();
        let seal = |place: usize| store.content().seal(bucket, ids[place], body(place));
        store.append_bodies(&mut appended, vec![seal(0)]).await.unwrap();
        store.append_bodies(&mut appended, (1..5).map(seal).collect()).await.unwrap();
        let op = |places: Vec<_>| {
            let mut messages = messages;
            messages.iter_mut().zip(places).for_each(|(accept, place)| accept.message.place = place);
            AcceptAll { messages }
        };
        store.commit_appended(appended, op).await
    });
    assert_eq!(accepted.map_err(|_| ()).unwrap().len(), 5);
    for (place, id) in ids.into_iter().enumerate() {
        let row: crate::store::row::message::MessageRow = test.row(&sender.key(id));
        assert_eq!(store.body(row.place, id, START).unwrap(), body(place));
    }
}

#[test]
fn identifiers_reserved_together_ascend() {
    let test = TestStore::new();
    let ids = test.store().reserve_message_ids(test.now(), 100);
    assert!(ids.windows(2).all(|pair| pair[0] < pair[1]));
    assert!(ids[99] < test.store().reserve_message_id(test.now()));
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), 100);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn a_refusal_leaves_no_rows(count in 1_usize..12, bad in 0_usize..12, per_hour in 0_u64..14) {
        let test = TestStore::new();
        let sender = test.sender_with(QuotaLimits { per_hour, per_day: 100 });
        test.endpoint(sender.account, None);
        let suppressed = format!("n{bad}@example.net").parse().unwrap();
        let suppression = Suppression::of(suppressed, SuppressionReason::Manual);
        test.done(Suppress { account: sender.account, suppression, waiting: Vec::new() });
        let before = rows(&test);
        let answer = accept_all(&test, to_each(&sender, count));
        let room = usize::try_from(per_hour).unwrap();
        match answer {
            Ok(accepted) => {
                prop_assert!(bad >= count && room >= count);
                prop_assert_eq!(accepted.len(), count);
                prop_assert_eq!(test.count(Table::Messages, &[]), count);
            }
            Err(FirstRefusal { place, .. }) => {
                prop_assert_eq!(place, bad.min(room));
                prop_assert_eq!(rows(&test), before);
            }
        }
    }
}
