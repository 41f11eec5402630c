//! Tests of the writer: operations are all or nothing within a batch, answers come after the sync, identifiers only
//! grow.

use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::base::id::{EventId, Ulid};
use crate::store::error::{OpError, StoreError};
use crate::store::failpoint::Point;
use crate::store::health::Progress;
use crate::store::job::Answer;
use crate::store::op::Op;
use crate::store::read::Read;
use crate::store::row::Row;
use crate::store::row::suppression::SuppressionRow;
use crate::store::schema::Table;
use crate::store::tables::Tables;
use crate::store::testing::TestStore;
use crate::store::timer::{Timer, TimerKind};

/// Writes one key, creates some identifiers, and ends as configured.
#[derive(Debug, Serialize, Deserialize)]
struct Write {
    key: Vec<u8>,
    ids: usize,
    end: End,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum End {
    Commit,
    Refuse,
    Panic,
    ReadDamagedRow,
}

impl Op for Write {
    type Reply = Vec<Ulid>;
    type Refusal = End;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<Vec<Ulid>, OpError<End>> {
        tables.put_bytes(Table::Suppressions, &self.key, b"no row".to_vec());
        tables.arm(Timer::of_store(tables.now(), TimerKind::EventLog));
        let ids = (0..self.ids).map(|_| tables.next_id::<EventId>().0).collect();
        match self.end {
            End::Commit => Ok(ids),
            End::Refuse => Err(OpError::Refused(End::Refuse)),
            End::Panic => panic!("as configured"),
            End::ReadDamagedRow => {
                tables.row::<SuppressionRow>(&self.key)?;
                Ok(ids)
            }
        }
    }
}

fn write(key: &str, end: End) -> Write {
    Write { key: key.as_bytes().to_vec(), ids: 1, end }
}

/// Blocks the writer after a commit, so that operations posted in the meantime become one batch.
fn hold_up(test: &TestStore) -> mpsc::Sender<()> {
    let (release, held) = mpsc::channel();
    test.store().post(write("first", End::Commit), move |_| held.recv().unwrap());
    release
}

#[test]
fn a_refusal_or_panic_leaves_the_rest_of_its_batch_intact() {
    let test = TestStore::new();
    let (answers, notified) = mpsc::channel();
    let release = hold_up(&test);
    let ends = [End::Commit, End::Refuse, End::Panic, End::ReadDamagedRow, End::Commit];
    for (number, end) in ends.into_iter().enumerate() {
        let answers = answers.clone();
        test.store().post(write(&format!("key {number}"), end), move |answer| answers.send(answer).unwrap());
    }
    release.send(()).unwrap();
    let notified: Vec<_> = notified.iter().take(ends.len()).collect();
    assert!(matches!(
        notified.as_slice(),
        [
            Ok(_),
            Err(OpError::Refused(End::Refuse)),
            Err(OpError::Failed(StoreError::Panicked)),
            Err(OpError::Failed(StoreError::Row { .. })),
            Ok(_)
        ]
    ));
    assert_eq!(test.keys(Table::Suppressions, b"key"), [b"key 0", b"key 4"]);
    assert!(test.store().health().failure().is_none());
    test.done(write("and on", End::Commit));
}

/// Waits until the store has failed.
fn failure_of(test: &TestStore) -> StoreError {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let failed = async { tokio::time::timeout(Duration::from_secs(20), test.store().health().failed()).await };
    runtime.block_on(failed).expect("the failure is latched")
}

#[test]
fn a_panic_of_a_store_thread_is_latched_before_any_answer() {
    for point in Point::ALL {
        let test = TestStore::new();
        let sender = test.sender();
        let id = sender.message("b@example.net").id;
        test.store().health().tripwire.set(point, 0);
        let health = Arc::clone(test.store().health());
        let (answers, notified) = mpsc::channel();
        let body = test.store().content().seal(test.now() + Duration::from_secs(3600), id, b"body".to_vec());
        let send = move |answer: Answer<Write>| {
            answers.send((answer.is_ok(), health.failure().is_some())).unwrap();
        };
        test.store().post_with_body(test.store().announce(), body, |_| write("key", End::Commit), send);
        if point == Point::Checkpoint {
            test.pass(Duration::from_secs(60));
            test.store().post(write("later", End::Commit), drop);
        }
        assert!(failure_of(&test).to_string().contains("panicked"), "{point:?}");
        // The answer is a success before the panic, a failure after it is latched, or none.
        if let Ok((is_ok, has_failed)) = notified.recv() {
            assert!(is_ok || has_failed, "{point:?}");
        }
        assert!(
            matches!(test.commit(write("late", End::Commit)), Err(OpError::Failed(StoreError::Closed))),
            "{point:?}"
        );
        test.store().close();
    }
}

#[test]
fn a_panic_in_an_answer_callback_fails_the_store() {
    let test = TestStore::new();
    test.store().post(write("key", End::Commit), |_| panic!("a defect of the caller"));
    failure_of(&test);
    assert!(matches!(test.commit(write("late", End::Commit)), Err(OpError::Failed(StoreError::Closed))));
}

#[test]
fn a_hanging_writer_is_not_writing() {
    let test = TestStore::new();
    test.done(write("first", End::Commit));
    let mut seen = Progress::default();
    // An answer comes shortly before its piece of work ends.
    while !test.store().health().is_writing(&mut seen) {
        thread::yield_now();
    }
    let (begun, has_begun) = mpsc::channel();
    let (release, held) = mpsc::channel::<()>();
    test.store().post(write("second", End::Commit), move |_| {
        begun.send(()).unwrap();
        held.recv().unwrap_err();
    });
    has_begun.recv().unwrap();
    test.store().health().is_writing(&mut seen);
    assert!(!test.store().health().is_writing(&mut seen), "it has made no progress since the last check");
    drop(release);
    test.done(write("third", End::Commit));
    assert!(test.store().health().is_writing(&mut seen));
}

#[test]
fn an_answered_row_is_visible_to_snapshots() {
    let test = TestStore::new();
    for number in 0..20 {
        let key = format!("key {number}");
        test.done(write(&key, End::Commit));
        assert!(test.snapshot().get(Table::Suppressions, key.as_bytes()).unwrap().is_some());
        let timers = test.store().timers().take_due(test.now(), 9).timers;
        // The cache is empty before the first refill; the table has the timers.
        assert!(timers.is_empty() && !test.timers(TimerKind::EventLog).is_empty());
    }
}

#[test]
fn a_caller_answered_early_waits_for_the_database_in_its_snapshot() {
    let test = TestStore::new();
    let database = test.store().database.begin_write().unwrap();
    test.done(write("key", End::Commit));
    assert!(test.store().read_barrier.is_blocking(), "it was answered but is not in the database");
    let (looks, is_looking) = mpsc::channel();
    thread::scope(|threads| {
        let looking = threads.spawn(|| {
            looks.send(()).unwrap();
            test.snapshot().get(Table::Suppressions, b"key").unwrap()
        });
        is_looking.recv().unwrap();
        database.abort().unwrap();
        assert!(looking.join().unwrap().is_some());
    });
}

#[test]
fn a_checkpoint_follows_monotonic_time_regardless_of_the_wall_clock() {
    let test = TestStore::new();
    let checkpoints = || test.store().meters().checkpoint_duration.read().count;
    // The writer checks before each batch whether a checkpoint is due, so the second answer comes after it.
    let resume = || {
        test.done(write("one", End::Commit));
        test.done(write("two", End::Commit));
    };
    resume();
    test.set_now(test.now() + Duration::from_secs(40 * 86_400));
    resume();
    assert_eq!(checkpoints(), 0, "no time passed");
    test.set_now(test.now() - Duration::from_secs(41 * 86_400));
    test.pass(Duration::from_secs(6));
    resume();
    assert_eq!(checkpoints(), 1);
}

#[test]
fn a_snapshot_does_not_change() {
    let test = TestStore::new();
    let before = test.snapshot();
    test.done(write("key", End::Commit));
    assert_eq!(before.get(Table::Suppressions, b"key").unwrap(), None);
}

#[test]
fn identifiers_grow_across_refusals_restarts_and_clock_steps() {
    let mut test = TestStore::new();
    let mut given = Vec::new();
    let mut messages = Vec::new();
    for round in 0..4 {
        let ids = |end| Write { key: vec![round], ids: 3, end };
        given.extend(test.done(ids(End::Commit)));
        assert!(test.commit(ids(End::Refuse)).is_err());
        given.extend(test.done(ids(End::Commit)));
        messages.extend((0..3).map(|_| test.store().reserve_message_id(test.now())));
        match round {
            0 => test.set_now(test.now() - Duration::from_secs(3600)),
            1 => test.reopen(),
            _ => test.pass(Duration::from_secs(7200)),
        }
    }
    assert!(given.is_sorted_by(|one, next| one < next), "{given:?}");
    assert_eq!(given.len(), 24);
    assert!(messages[..6].is_sorted_by(|one, next| one < next), "{messages:?}");
}

#[test]
fn reserved_message_identifiers_exceed_the_last_accepted_one() {
    let mut test = TestStore::new();
    let last = test.sender().accept("b@example.net");
    test.set_now(test.now() - Duration::from_secs(24 * 3600));
    test.reopen();
    assert!(test.store().reserve_message_id(test.now()) > last);
}

#[test]
fn a_timer_disarmed_later_in_its_batch_is_not_cached() {
    #[derive(Serialize, Deserialize)]
    struct Disarm;
    impl Op for Disarm {
        type Reply = ();
        type Refusal = ();
        fn apply(&self, tables: &mut Tables<'_>) -> Result<(), OpError<()>> {
            tables.disarm(Timer::of_store(tables.now(), TimerKind::EventLog));
            Ok(())
        }
    }
    let test = TestStore::new();
    test.store().timers().refill(test.now(), || test.store().snapshot()).unwrap();
    let release = hold_up(&test);
    let (answers, notified) = mpsc::channel();
    test.store().post(write("key", End::Commit), |_| ());
    test.store().post(Disarm, move |answer| answers.send(answer.is_ok()).unwrap());
    release.send(()).unwrap();
    assert!(notified.recv().unwrap());
    assert!(test.store().timers().take_due(test.now(), 9).timers.is_empty());
    assert!(test.timers(TimerKind::EventLog).is_empty());
}

#[test]
fn closing_commits_queued_operations_and_refuses_later_ones() {
    let test = TestStore::new();
    let (answers, notified) = mpsc::channel();
    for number in 0..50 {
        let answers = answers.clone();
        test.store().post(write(&format!("key {number}"), End::Commit), move |answer| {
            answers.send(answer.is_ok()).unwrap();
        });
    }
    test.store().close();
    assert_eq!(notified.try_iter().filter(|is_ok| *is_ok).count(), 50);
    assert!(matches!(test.commit(write("late", End::Commit)), Err(OpError::Failed(StoreError::Closed))));
}

#[test]
fn a_row_of_a_later_version_is_an_error() {
    let bytes = [SuppressionRow::VERSION + 1, 0, 0];
    assert!(matches!(SuppressionRow::decode(&bytes), Err(StoreError::Row { .. })));
    assert!(SuppressionRow::decode(&[]).is_err());
}
