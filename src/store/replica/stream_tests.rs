//! Tests of records on their way to the bucket, and of a store that follows them.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::base::entropy::SeededEntropy;
use crate::base::id::Ulid;
use crate::base::time::Timestamp;
use crate::domain::account::QuotaLimits;
use crate::store::disk::FileSystem;
use crate::store::op::clock_doubt::BeginDoubt;
use crate::store::open::{ReplicaStart, SyncRule};
use crate::store::read::{Order, Read as _, after_prefix};
use crate::store::row::message::MessageRow;
use crate::store::schema::{Table, meta};
use crate::store::snapshot::Snapshot;
use crate::store::testing::TestStore;

const BACKLOG_BYTES: u64 = 1 << 30;

fn at(slot: u64, sequence: u64) -> Position {
    Position { store: Ulid([7; 16]), epoch: 1, slot, hash: [0; 32], sequence }
}

/// Creates a replicated store with some messages, whose base includes everything up to its confirmed sequence.
fn replicated(backlog_bytes_max: u64) -> TestStore {
    let mut test = TestStore::new();
    accept(&test);
    test.close();
    test.replica = Some(ReplicaStart { confirmed: at(1, 0), backlog_bytes_max, sync: None });
    test.open().unwrap();
    let last = outbox(&test).resume().unwrap();
    outbox(&test).confirm(at(1, last));
    outbox(&test).base_made().unwrap();
    test
}

fn outbox(test: &TestStore) -> Arc<Outbox> {
    Arc::clone(test.store().outbox().unwrap())
}

fn waiting(test: &TestStore) -> Vec<u64> {
    outbox(test).front(usize::MAX).unwrap().iter().map(|record| record.sequence.number).collect()
}

fn accept(test: &TestStore) {
    test.account(QuotaLimits::default());
}

/// Returns all rows except those that describe the copy itself.
fn rows(snapshot: &Snapshot) -> Vec<(Table, Vec<u8>, Vec<u8>)> {
    let mut rows = Vec::new();
    for table in Table::ALL.iter().copied() {
        snapshot
            .scan(table, &[], &after_prefix(&[]), Order::Ascending, &mut |key, value| {
                if table != Table::Meta || ![meta::REPLICA, meta::JOURNAL, meta::FORMAT].contains(&key) {
                    rows.push((table, key.to_vec(), value.to_vec()));
                }
                Ok(std::ops::ControlFlow::Continue(()))
            })
            .unwrap();
    }
    rows
}

#[test]
fn unconfirmed_records_survive_checkpoints_and_restarts_in_order() {
    let mut test = replicated(BACKLOG_BYTES);
    let first = outbox(&test).last() + 1;
    for _ in 0..4 {
        accept(&test);
        test.pass(Duration::from_secs(6));
    }
    let last = outbox(&test).last();
    let expected: Vec<u64> = (first..=last).collect();
    assert_eq!(waiting(&test), expected);
    test.replica = Some(ReplicaStart { confirmed: at(1, first - 1), backlog_bytes_max: BACKLOG_BYTES, sync: None });
    test.reopen();
    assert!(!outbox(&test).has_gap());
    assert_eq!(waiting(&test), expected);
    outbox(&test).confirm(at(2, first));
    assert_eq!(waiting(&test), expected[1..]);
}

#[test]
fn confirmed_records_leave_the_backlog_and_the_next_batch_records_the_position() {
    let mut test = replicated(BACKLOG_BYTES);
    accept(&test);
    test.pass(Duration::from_secs(6));
    accept(&test);
    let last = outbox(&test).last();
    outbox(&test).confirm(at(5, last));
    assert_eq!(outbox(&test).unconfirmed(), Unconfirmed::default());
    assert!(fs::read_dir(test.directory().join("replica")).unwrap().next().is_none(), "all backlog files are removed");
    let position = |test: &TestStore| {
        Position::decode(&test.snapshot().get(Table::Meta, meta::REPLICA).unwrap().unwrap()).unwrap()
    };
    assert_ne!(position(&test).slot, 5, "an idle store writes nothing");
    accept(&test);
    assert_eq!(position(&test), at(5, last));
    test.close();
}

#[test]
fn a_store_that_ran_without_replication_has_a_gap() {
    let mut test = replicated(BACKLOG_BYTES);
    accept(&test);
    let last = outbox(&test).last();
    let replica = ReplicaStart { confirmed: at(2, last), backlog_bytes_max: BACKLOG_BYTES, sync: None };
    test.replica = None;
    test.reopen();
    accept(&test);
    test.replica = Some(replica);
    test.reopen();
    assert!(outbox(&test).has_gap());
    accept(&test);
    assert_eq!(waiting(&test), [0; 0], "records after a gap are of no use before a base");
    let dropped = outbox(&test).resume().unwrap();
    accept(&test);
    assert_eq!(waiting(&test)[0], dropped + 1);
    assert_eq!(outbox(&test).resumed(), Some(dropped));
    outbox(&test).confirm(at(3, dropped));
    assert_eq!(outbox(&test).resumed(), None);
}

#[test]
fn a_gap_is_remembered_until_a_base_is_made() {
    let mut test = replicated(BACKLOG_BYTES);
    outbox(&test).base_made().unwrap();
    outbox(&test).begin_gap();
    outbox(&test).base_made().unwrap();
    assert!(outbox(&test).owes_base(), "a base that was begun before the gap does not close it");
    let dropped = outbox(&test).resume().unwrap();
    accept(&test);
    let confirmed = outbox(&test).last();
    outbox(&test).confirm(at(3, confirmed));
    test.replica = Some(ReplicaStart { confirmed: at(3, confirmed), backlog_bytes_max: BACKLOG_BYTES, sync: None });
    test.reopen();
    assert!(dropped < confirmed && !outbox(&test).has_gap() && outbox(&test).owes_base());
    outbox(&test).base_made().unwrap();
    test.reopen();
    assert!(!outbox(&test).owes_base());
}

#[test]
fn a_backlog_that_exceeds_its_limit_is_dropped() {
    let test = replicated(300);
    for _ in 0..4 {
        accept(&test);
        test.pass(Duration::from_secs(6));
    }
    assert!(outbox(&test).has_gap());
    assert_eq!(outbox(&test).unconfirmed(), Unconfirmed::default());
    let left = fs::read_dir(test.directory().join("replica")).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(left.collect::<Vec<_>>(), ["base-owed"]);
}

#[test]
fn a_follower_of_the_records_has_every_row_and_body() {
    let mut test = replicated(BACKLOG_BYTES);
    let sender = test.sender();
    let account = sender.account;
    let copy = tempfile::tempdir().unwrap();
    let mut base = Vec::new();
    let extent = crate::store::backup::Extent { content: true, master_key: true };
    test.store().back_up(test.now(), extent, &[], &mut base).unwrap();
    crate::store::restore::restore(&base[..], copy.path(), None, &[], &mut |_, _| {}).unwrap();
    let from = outbox(&test).last();
    outbox(&test).confirm(at(2, from));
    // The last body is too large to be inlined.
    let bodies = [b"one".to_vec(), b"two".to_vec(), random(64 << 10)];
    let accepted = |(n, body): (usize, &Vec<u8>)| sender.accept_with_body(&format!("n{n}@example.net"), 48, body);
    let messages: Vec<_> = bodies.iter().enumerate().map(accepted).collect();
    test.pass(Duration::from_secs(6));
    accept(&test);
    let mut follower =
        Follower::open(&ReplicaDisk::default(), copy.path(), test.now(), Arc::new(SeededEntropy::new(5))).unwrap();
    follow(&test, &mut follower, 3);
    let expected = rows(&test.snapshot());
    let mut found = rows(&follower.snapshot().unwrap());
    // Every restore puts the queue on hold.
    found.retain(|(_, key, _)| key != meta::RESTORED);
    assert_eq!(found, expected);
    follower.checkpoint().unwrap();
    assert_eq!(follower.position(), Some(at(3, outbox(&test).last())));
    drop(follower);
    let last = outbox(&test).last();
    test.close();
    let mut copy = TestStore::in_directory(copy);
    for (message, body) in messages.iter().zip(&bodies) {
        let key = crate::store::schema::message(account, *message);
        let row: crate::store::row::message::MessageRow = copy.row(&key);
        assert_eq!(&copy.store().body(row.place, *message, copy.now()).unwrap(), body);
    }
    copy.close();
    copy.replica = Some(ReplicaStart { confirmed: at(4, last), backlog_bytes_max: BACKLOG_BYTES, sync: None });
    copy.open().unwrap();
    assert!(!outbox(&copy).has_gap());
}

fn random(length: usize) -> Vec<u8> {
    let entropy = SeededEntropy::new(11);
    std::iter::repeat_with(|| crate::base::entropy::bytes::<64>(&entropy)).flatten().take(length).collect()
}

/// Applies all records of `test` to `follower` as one slot.
fn follow(test: &TestStore, follower: &mut Follower, slot: u64) {
    let records = outbox(test).front(usize::MAX).unwrap();
    let store = test.store();
    for BatchRecord { sequence, payload } in &records {
        let payload: &[u8] = payload;
        for place in record::missing_bodies(payload).unwrap() {
            let sealed = store.sealed_body(&place).unwrap().unwrap();
            follower.body(&crate::store::content::place_key(&place), &sealed, test.now()).unwrap();
        }
        for (bucket, segment) in record::segments(payload).unwrap() {
            if follower.lacks_key(bucket, segment) {
                let key = store.sealed_key(bucket, segment).unwrap();
                follower.adopt_key(bucket, segment, &key).unwrap();
            }
        }
        follower.batch(payload, *sequence, test.now()).unwrap();
    }
    let last = records.last().unwrap().sequence;
    follower.end_slot(at(slot, last.number)).unwrap();
}

#[test]
fn a_follower_refuses_a_batch_after_a_missing_one() {
    let test = replicated(BACKLOG_BYTES);
    let copy = tempfile::tempdir().unwrap();
    let mut base = Vec::new();
    let extent = crate::store::backup::Extent { content: true, master_key: true };
    test.store().back_up(test.now(), extent, &[], &mut base).unwrap();
    crate::store::restore::restore(&base[..], copy.path(), None, &[], &mut |_, _| {}).unwrap();
    accept(&test);
    accept(&test);
    let records = outbox(&test).front(usize::MAX).unwrap();
    let mut follower =
        Follower::open(&ReplicaDisk::default(), copy.path(), test.now(), Arc::new(SeededEntropy::new(5))).unwrap();
    let (skipped, taken) = (&records[0], records.last().unwrap());
    assert!(records.len() > 1);
    assert!(matches!(follower.batch(&taken.payload, taken.sequence, test.now()), Err(FollowError::Gap { .. })));
    follower.batch(&skipped.payload, skipped.sequence, test.now()).unwrap();
    follower.batch(&skipped.payload, skipped.sequence, test.now()).unwrap();
}

#[test]
fn a_follower_destroys_content_at_its_deadline_but_not_while_a_clock_doubt_is_open() {
    for is_doubtful in [true, false] {
        let mut test = TestStore::new();
        let sender = test.sender();
        let id = sender.accept_with_body("b@example.net", 1, b"kept");
        let place = test.row::<MessageRow>(&sender.key(id)).place;
        if is_doubtful {
            test.done(BeginDoubt { number: 1 });
        }
        let now = test.now();
        test.close();
        let entropy = Arc::new(SeededEntropy::new(9));
        let mut follower = Follower::open(&ReplicaDisk::default(), test.directory(), now, entropy).unwrap();
        follower.destroy_until(now).unwrap();
        assert!(!follower.lacks_key(place.bucket, place.segment));
        follower.destroy_until(now + Duration::from_secs(30 * 24 * 3600)).unwrap();
        assert_eq!(follower.lacks_key(place.bucket, place.segment), !is_doubtful);
    }
}

/// Copies a store's directory without the directories of stores that were set aside.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let (name, target) = (entry.file_name(), to.join(entry.file_name()));
        if entry.file_type().unwrap().is_file() {
            fs::copy(entry.path(), target).unwrap();
        } else if !name.to_string_lossy().starts_with("deposed-") {
            copy(&entry.path(), &target);
        }
    }
}

#[test]
fn content_of_a_store_that_was_set_aside_expires_on_a_standby_and_on_an_active_machine() {
    for is_active in [true, false] {
        let mut test = TestStore::new();
        let sender = test.sender();
        let id = sender.accept_with_body("b@example.net", 1, b"kept");
        let place = test.row::<MessageRow>(&sender.key(id)).place;
        let now = test.now();
        test.close();
        let aside = test.directory().join("deposed-1");
        copy(test.directory(), &aside);
        let has_body = || {
            let entropy = Arc::new(SeededEntropy::new(9));
            let found = Follower::open(&ReplicaDisk::default(), &aside, now, entropy).unwrap();
            !found.lacks_key(place.bucket, place.segment)
        };
        let later = now + Duration::from_secs(30 * 24 * 3600);
        if is_active {
            test.open().unwrap();
            test.store().destroy_aside(now).unwrap();
            assert!(has_body());
            test.store().destroy_aside(later).unwrap();
        } else {
            let entropy = Arc::new(SeededEntropy::new(9));
            let mut follower = Follower::open(&ReplicaDisk::default(), test.directory(), now, entropy).unwrap();
            follower.destroy_until(now).unwrap();
            assert!(has_body());
            follower.destroy_until(later).unwrap();
        }
        assert!(!has_body());
    }
}

fn outbox_in(directory: &Path, last: u64) -> std::io::Result<Outbox> {
    outbox_with(directory, last, 1 << 20, None)
}

fn outbox_with(directory: &Path, last: u64, backlog_bytes_max: u64, sync: Option<SyncRule>) -> std::io::Result<Outbox> {
    let confirmed = Position::default();
    let start = ReplicaStart { confirmed, backlog_bytes_max, sync };
    let last = Sequence { number: last, committed_at: Timestamp::from_millis(1) };
    Outbox::open(Arc::new(FileSystem), directory, last, Some(confirmed), &start)
}

#[test]
fn a_torn_record_of_the_backlog_does_not_prevent_a_start() {
    let data = tempfile::tempdir().unwrap();
    let file = data.path().join("replica/backlog.1");
    fs::create_dir(data.path().join("replica")).unwrap();
    fs::write(&file, b"PRBL\x01torn").unwrap();
    assert!(!outbox_in(data.path(), 0).unwrap().has_gap());
    assert_eq!(fs::read(&file).unwrap(), b"PRBL\x01");
}

#[test]
fn a_log_continues_after_a_gap_behind_the_last_committed_batch() {
    let data = tempfile::tempdir().unwrap();
    let outbox = outbox_in(data.path(), 4).unwrap();
    let fifth = Sequence { number: 5, committed_at: Timestamp::from_millis(1) };
    outbox.stage(fifth, b"record");
    outbox.begin_gap();
    assert_eq!(outbox.resume().unwrap(), 4, "the fifth batch is not committed yet, and may never be");
    outbox.release_staged();
    assert_eq!(outbox.last(), 5);
    assert!(outbox.has_gap(), "the record of the fifth batch was dropped");
}

#[test]
fn a_gap_stays_until_the_disk_can_hold_the_mark_for_a_new_base() {
    let data = tempfile::tempdir().unwrap();
    let outbox = outbox_in(data.path(), 0).unwrap();
    let mark = data.path().join("replica/base-owed");
    fs::create_dir(&mark).unwrap();
    outbox.begin_gap();
    assert!(outbox.resume().is_err() && outbox.has_gap());
    fs::remove_dir(&mark).unwrap();
    assert_eq!((outbox.resume().unwrap(), outbox.has_gap()), (0, false));
    assert!(outbox_in(data.path(), 0).unwrap().owes_base());
}

#[test]
fn in_synchronous_mode_the_log_has_a_batch_whose_backlog_was_dropped() {
    for ends_before_release in [false, true] {
        let data = tempfile::tempdir().unwrap();
        let rule = SyncRule { timeout: Duration::from_secs(1), stops: true };
        // Every record exceeds the backlog's limit.
        let outbox = outbox_with(data.path(), 4, 1, Some(rule)).unwrap();
        outbox.begin_gap();
        outbox.resume().unwrap();
        outbox.stage(Sequence { number: 5, committed_at: Timestamp::from_millis(1) }, b"record");
        outbox.store();
        assert!(outbox.has_gap());
        let dropped = if ends_before_release {
            let dropped = outbox.resume().unwrap();
            outbox.release_staged();
            dropped
        } else {
            outbox.release_staged();
            outbox.resume().unwrap()
        };
        assert_eq!((dropped, outbox.last(), outbox.has_gap()), (4, 5, false), "{ends_before_release}");
        let front: Vec<u64> = outbox.front(1 << 20).unwrap().iter().map(|record| record.sequence.number).collect();
        assert_eq!(front, [5], "{ends_before_release}");
    }
}
