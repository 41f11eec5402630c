//! Tests of the timer cache: each due timer is taken once, whether it was armed early or late, for soon or later.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::upcoming::{HORIZON, WAITING_MAX};
use super::*;
use crate::base::id::{AccountId, Ulid};
use crate::store::error::OpError;
use crate::store::op::Op;
use crate::store::schema::meta;
use crate::store::tables::Tables;
use crate::store::testing::{START, TestStore};
use crate::store::timer::TimerKind;

/// Arms and disarms timers, each `seconds` after the start.
#[derive(Default, Serialize, Deserialize)]
struct Turn {
    arm: Vec<u64>,
    disarm: Vec<u64>,
}

impl Op for Turn {
    type Reply = ();
    type Refusal = ();

    fn apply(&self, tables: &mut Tables<'_>) -> Result<(), OpError<()>> {
        self.disarm.iter().for_each(|seconds| tables.disarm(timer(*seconds)));
        self.arm.iter().for_each(|seconds| tables.arm(timer(*seconds)));
        Ok(())
    }
}

fn timer(seconds: u64) -> Timer {
    let due = START + Duration::from_secs(seconds);
    Timer::new(due, TimerKind::Transfer, AccountId::default(), Ulid::new(due, [1; 10]))
}

fn arm(test: &TestStore, seconds: impl IntoIterator<Item = u64>) {
    test.done(Turn { arm: seconds.into_iter().collect(), ..Turn::default() });
}

fn disarm(test: &TestStore, seconds: impl IntoIterator<Item = u64>) {
    test.done(Turn { disarm: seconds.into_iter().collect(), ..Turn::default() });
}

fn refill(test: &TestStore) {
    test.store().timers().refill(test.now(), || test.store().snapshot()).unwrap();
}

/// Returns the timers that a dispatcher takes now, in seconds after the start. It refills while it is empty.
fn taken(test: &TestStore) -> Vec<u64> {
    let mut found = Vec::new();
    loop {
        let due = test.store().timers().take_due(test.now(), 1000);
        if due.needs_refill {
            refill(test);
        } else if due.timers.is_empty() {
            return found;
        }
        found.extend(due.timers.iter().map(|timer| timer.due.since(START).as_secs()));
    }
}

#[test]
fn timers_armed_before_the_start_are_read_from_the_table() {
    let mut test = TestStore::new();
    arm(&test, [0, 5, 1000]);
    test.reopen();
    assert_eq!(taken(&test), [0]);
    test.pass(Duration::from_secs(10));
    assert_eq!(taken(&test), [5]);
    test.pass(Duration::from_secs(1000));
    assert_eq!(taken(&test), [1000]);
    assert_eq!(taken(&test), [0; 0], "each is taken once");
}

#[test]
fn a_commit_caches_near_timers_and_leaves_far_ones_to_the_table() {
    let test = TestStore::new();
    refill(&test);
    arm(&test, [100, 10_000]);
    test.pass(Duration::from_secs(10_000));
    assert_eq!(taken(&test), [100, 10_000]);
}

#[test]
fn the_next_check_is_never_after_the_horizon() {
    let test = TestStore::new();
    refill(&test);
    let cache = test.store().timers();
    assert!(cache.take_due(test.now(), 9).next < test.now() + HORIZON, "the table is checked before the horizon");
    arm(&test, [30]);
    assert_eq!(
        cache.take_due(test.now(), 9),
        Due { timers: Vec::new(), alarms: Vec::new(), next: timer(30).due, needs_refill: false }
    );
}

#[test]
fn a_taken_timer_is_unsettled_until_its_row_is_removed() {
    let test = TestStore::new();
    arm(&test, [0]);
    let cache = test.store().timers();
    assert!(!cache.is_settled(test.now()), "the table has not been read yet");
    refill(&test);
    assert!(!cache.is_settled(test.now()));
    assert_eq!(taken(&test), [0]);
    assert!(!cache.is_settled(test.now()));
    disarm(&test, [0]);
    assert!(cache.is_settled(test.now()));
    assert!(!cache.is_settled(test.now() + 2 * HORIZON), "timers after the horizon are unknown");
}

#[test]
fn a_stale_timer_can_be_forgotten() {
    let test = TestStore::new();
    arm(&test, [0]);
    assert_eq!(taken(&test), [0]);
    test.store().timers().forget(&timer(0));
    assert!(test.store().timers().is_settled(test.now()));
}

#[test]
fn a_timer_armed_again_at_the_same_time_is_taken_again() {
    let test = TestStore::new();
    arm(&test, [0]);
    assert_eq!(taken(&test), [0]);
    test.done(Turn { arm: vec![0], disarm: vec![0] });
    assert_eq!(taken(&test), [0]);
}

#[test]
fn a_timer_settled_before_its_due_time_never_fires() {
    let test = TestStore::new();
    refill(&test);
    arm(&test, [10, 20, 400]);
    disarm(&test, [20, 400]);
    test.pass(Duration::from_secs(500));
    assert_eq!(taken(&test), [10]);
}

#[test]
fn timers_beyond_one_refill_are_all_taken_in_order() {
    let mut test = TestStore::new();
    let count = REFILL as u64 * 2 + 10;
    arm(&test, 0..count);
    test.reopen();
    test.pass(Duration::from_secs(count));
    assert_eq!(taken(&test), (0..count).collect::<Vec<_>>());
}

#[test]
fn a_long_queue_on_hold_takes_no_memory_and_is_complete_after_release() {
    let mut test = TestStore::new();
    let count = REFILL as u64 * 2 + 10;
    arm(&test, 0..count);
    let restored = RestoreOrigin {
        backup_at: START,
        has_content: true,
        last_message: timer(count).id,
        last_id: Ulid::default(),
        is_on_hold: true,
        cause: crate::store::row::restored::HoldCause::Restored,
    };
    test.write(meta::RESTORED, &restored);
    test.reopen();
    test.pass(Duration::from_secs(count));
    assert_eq!(taken(&test), [0; 0]);
    let cache = test.store().timers();
    assert!(cache.state().upcoming.waiting.is_empty() && cache.is_settled(test.now()), "as if the queue were empty");
    cache.release();
    assert_eq!(taken(&test), (0..count).collect::<Vec<_>>());
}

#[test]
fn memory_holds_the_nearest_timers_and_later_ones_are_read_in_time() {
    let test = TestStore::new();
    refill(&test);
    let far = HORIZON.as_secs() - 1;
    let of = |number: u64| {
        let due = START + Duration::from_millis(number * far * 1000 / (WAITING_MAX as u64 + 100));
        Timer::new(due, TimerKind::Transfer, AccountId::default(), Ulid(u128::from(number).to_be_bytes()))
    };
    let timers: BTreeSet<_> = (0..WAITING_MAX as u64 + 100).map(of).collect();
    let cache = TimerCache::default();
    cache.refill(START, || test.store().snapshot()).unwrap();
    cache.notify(cache.committed(&timers, &[]));
    assert_eq!(cache.state().upcoming.waiting.len(), WAITING_MAX);
    let beyond = timers.iter().nth(WAITING_MAX).copied();
    assert_eq!(Some(cache.state().upcoming.horizon), beyond, "later timers are read from the table");
    cache.notify(cache.committed(&BTreeSet::from([*timers.iter().next_back().unwrap()]), &[]));
    assert_eq!(cache.state().upcoming.waiting.len(), WAITING_MAX);
}

#[test]
fn a_horizon_moved_back_during_a_refill_stays_there() {
    let test = TestStore::new();
    arm(&test, 0..REFILL as u64 + 5);
    let cache = TimerCache::default();
    let now = START + Duration::from_secs(REFILL as u64 * 2);
    let read = cache.refill(now, || {
        assert!(!cache.is_settled(START), "timers being read are not settled");
        cache.state().upcoming.horizon = timer(3);
        test.store().snapshot()
    });
    read.unwrap();
    assert_eq!(cache.state().upcoming.horizon, timer(3));
    assert_eq!(cache.take_due(now, 9).timers, [timer(0), timer(1), timer(2)]);
}

#[test]
fn messages_of_a_suspended_queue_count_as_settled_until_it_is_resumed() {
    let test = TestStore::new();
    arm(&test, [0, 1, 2]);
    test.pass(Duration::from_secs(3));
    assert_eq!(taken(&test), [0, 1, 2]);
    let cache = test.store().timers();
    (0..2).for_each(|n| cache.enqueue(&timer(n), 7));
    cache.suspend(7);
    assert!(!cache.is_settled(test.now()), "one message is in no queue");
    cache.enqueue(&timer(2), 7);
    assert!(cache.is_settled(test.now()));
    assert_eq!(taken(&test), [0; 0], "waiting messages are not taken twice");
    cache.dequeue([timer(0)]);
    assert!(!cache.is_settled(test.now()));
    disarm(&test, [0, 1]);
    assert!(cache.is_settled(test.now()), "messages settled in the queue are gone");
    cache.dequeue([timer(1)]);
    assert!(cache.is_settled(test.now()));
    cache.resume(7);
    assert!(!cache.is_settled(test.now()));
    cache.suspend(7);
    cache.forget(&timer(2));
    assert!(cache.is_settled(test.now()));
}

#[test]
fn a_message_of_a_suspended_queue_can_be_given_back_and_is_not_read_twice() {
    let test = TestStore::new();
    arm(&test, [0]);
    assert_eq!(taken(&test), [0]);
    test.store().timers().suspend(7);
    test.store().timers().enqueue(&timer(0), 7);
    test.pass(2 * HORIZON);
    assert_eq!(taken(&test), [0; 0]);
    test.store().timers().give_back(timer(0));
    assert_eq!(taken(&test), [0]);
}

#[test]
fn a_due_alarm_is_reported_and_unsettles_the_cache_until_it_is_silenced() {
    let test = TestStore::new();
    refill(&test);
    let cache = test.store().timers();
    let at = timer(20).due;
    cache.set_alarm((at, 7));
    assert_eq!((cache.next_alarm(test.now()), cache.take_due(test.now(), 9).next), (Some(at), at));
    assert!(cache.is_settled(test.now()));
    test.set_now(at);
    assert_eq!(cache.take_due(test.now(), 9).alarms, [(at, 7)]);
    assert!(!cache.is_settled(test.now()) && cache.next_alarm(at).is_none());
    cache.silence(&(at, 7));
    assert!(cache.is_settled(test.now()));
}

#[test]
fn the_cache_is_unsettled_during_held_work() {
    let test = TestStore::new();
    refill(&test);
    let cache = test.store().timers();
    assert!(cache.is_settled(START));
    let (one, two) = (cache.hold(), cache.hold());
    drop(one);
    assert!(!cache.is_settled(START));
    drop(two);
    assert!(cache.is_settled(START));
}
