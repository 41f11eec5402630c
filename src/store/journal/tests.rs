//! Stories of the journal: what a crash leaves of the database and of the file, and what is made of it.

use std::fs;
use std::path::{Path, PathBuf};

use redb::ReadableTable;

use super::*;
use crate::base::entropy::SeededEntropy;
use crate::store::check::{KeyPlace, check};
use crate::store::disk::FileSystem;
use crate::store::read::{Order, Read};
use crate::store::row::message::MessageRow;
use crate::store::testing::TestStore;

const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);

/// What the directory would hold after `kill -9`: the files as they stand, while the process still runs.
fn killed(test: &TestStore) -> tempfile::TempDir {
    let left = tempfile::tempdir().unwrap();
    copy(test.directory(), left.path());
    left
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

fn messages(test: &TestStore) -> Vec<Vec<u8>> {
    test.snapshot().keys(Table::Messages, &[], &[u8::MAX; 64], Order::Ascending, usize::MAX).unwrap()
}

#[test]
fn what_was_answered_after_the_last_checkpoint_is_there_after_a_crash() {
    let test = TestStore::new();
    let sender = test.sender();
    for number in 0..20 {
        sender.accept(&format!("r{number}@example.net"));
    }
    let expected = messages(&test);
    assert_eq!(expected.len(), 20);
    let left = killed(&test);
    // The database's own file knows nothing of them yet: it is the journal that does.
    let mut after = TestStore::in_directory(left);
    assert_eq!(messages(&after), expected);
    after.reopen();
    assert_eq!(messages(&after), expected);
}

#[test]
fn a_torn_record_and_all_behind_it_are_as_if_they_had_never_been() {
    let test = TestStore::new();
    let sender = test.sender();
    let mut ends = vec![journal_of(&test).len()];
    for number in 0..5 {
        sender.accept(&format!("r{number}@example.net"));
        ends.push(journal_of(&test).len());
    }
    let all = messages(&test);
    for (kept, pair) in ends.windows(2).enumerate() {
        for cut in [pair[0], pair[0] + 1, (pair[0] + pair[1]) / 2, pair[1] - 1] {
            let left = killed(&test);
            let journal = fs::OpenOptions::new().write(true).open(left.path().join(FILE)).unwrap();
            journal.set_len(cut as u64).unwrap();
            let after = TestStore::in_directory(left);
            assert_eq!(messages(&after), all[..kept], "cut at {cut}");
        }
    }
}

#[test]
fn a_body_stands_in_the_record_of_its_row_until_its_segment_is_synced() {
    let test = TestStore::new();
    let sender = test.sender();
    let bodies = [b"a first body".as_slice(), b"and another"];
    let ids = bodies.map(|body| sender.accept_with_body("b@example.net", 2, body));
    let left = killed(&test);
    // What a power cut may leave of a file that was never synced.
    let segment = buckets(left.path())[0].join("000000.segment");
    fs::OpenOptions::new().write(true).open(segment).unwrap().set_len(7).unwrap();
    let report = check(left.path(), test.now(), KeyPlace::WithStore, &mut |_| {}).unwrap();
    assert!(report.failures.is_empty(), "a check finds them where they are: {:?}", report.failures);
    let mut after = TestStore::in_directory(left);
    for _ in 0..2 {
        for (body, id) in bodies.iter().zip(ids) {
            let place = after.row::<MessageRow>(&sender.key(id)).place;
            assert_eq!(after.store().content().read(place, id).unwrap(), *body);
        }
        after.reopen();
    }
}

#[test]
fn a_body_whose_bucket_is_over_is_not_written_again_and_one_that_was_lost_is() {
    let test = TestStore::new();
    let sender = test.sender();
    let ids = [(0, b"over"), (2, b"lost")].map(|(hours, body)| sender.accept_with_body("b@example.net", hours, body));
    let left = killed(&test);
    let buckets = buckets(left.path());
    buckets.iter().for_each(|bucket| fs::remove_dir_all(bucket).unwrap());
    let after = TestStore::in_directory(left);
    assert!(!buckets[0].exists());
    let place = after.row::<MessageRow>(&sender.key(ids[1])).place;
    assert_eq!(after.store().content().read(place, ids[1]).unwrap(), b"lost", "what is not over is made anew");
}

/// The folders of the buckets in a data directory, the earliest first.
fn buckets(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory.join("content")).unwrap().map(|entry| entry.unwrap().path());
    let mut buckets: Vec<_> = entries.filter(|path| path.is_dir()).collect();
    buckets.sort();
    buckets
}

fn journal_of(test: &TestStore) -> Vec<u8> {
    fs::read(test.directory().join(FILE)).unwrap()
}

#[test]
fn one_wrong_bit_ends_the_journal_there() {
    let test = TestStore::new();
    let sender = test.sender();
    sender.accept("first@example.net");
    let first = journal_of(&test).len();
    sender.accept("second@example.net");
    let whole = journal_of(&test);
    for at in (first..whole.len()).step_by(97) {
        let left = killed(&test);
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        fs::write(left.path().join(FILE), bytes).unwrap();
        assert_eq!(messages(&TestStore::in_directory(left)).len(), 1, "bit at {at}");
    }
}

#[test]
fn records_of_an_earlier_epoch_are_nothing() {
    let mut test = TestStore::new();
    test.sender().accept("a@example.net");
    let key = messages(&test).remove(0);
    let earlier = journal_of(&test);
    test.close();
    test.open().unwrap();
    test.put(Table::Messages, &key, None);
    test.close();
    fs::write(test.directory().join(FILE), earlier).unwrap();
    test.open().unwrap();
    assert_eq!(messages(&test), Vec::<Vec<u8>>::new());
}

fn one_row(key: &[u8], value: Vec<u8>) -> Changes {
    let mut changes = Changes::default();
    changes.put(Table::Messages, key.to_vec(), Some(value));
    changes
}

#[test]
fn a_journal_without_room_leaves_the_batch_to_a_checkpoint() {
    let directory = tempfile::tempdir().unwrap();
    let mut journal = Journal::open(&FileSystem, directory.path(), [7; 16]).unwrap();
    let large = one_row(b"key", vec![0; 600 << 10]);
    assert_eq!(journal.append(&large, &[], Some(SHORT), NOW).unwrap(), Kept::Record);
    assert_eq!(journal.append(&large, &[], Some(SHORT - 1), NOW).unwrap(), Kept::NoRoom);
    assert_eq!(journal.append(&large, &[], Some(SHORT), NOW).unwrap(), Kept::Record);
    let huge = one_row(b"key", vec![0; OCTETS_MAX as usize]);
    assert_eq!(journal.append(&huge, &[], None, NOW).unwrap(), Kept::NoRoom);
}

#[test]
fn a_checkpoint_begins_the_file_again_under_another_epoch() {
    let directory = tempfile::tempdir().unwrap();
    let database = Database::create(directory.path().join("database")).unwrap();
    let entropy = SeededEntropy::new(1);
    let epoch = checkpoint(database.begin_write().unwrap(), &entropy).unwrap();
    let mut journal = Journal::open(&FileSystem, directory.path(), epoch).unwrap();
    let append = |journal: &mut Journal, key: &[u8]| {
        journal.append(&one_row(key, b"value".to_vec()), &[], None, NOW).unwrap();
    };
    let found = || {
        lay_over(&database, &FileSystem, directory.path(), |_, _| Ok(())).unwrap().map(|transaction| {
            let table = transaction.open_table(Table::Messages.definition()).unwrap();
            table.iter().unwrap().map(|row| row.unwrap().0.value().to_vec()).collect::<Vec<_>>()
        })
    };
    assert_eq!(journal.due(), None);
    append(&mut journal, b"a");
    append(&mut journal, b"b");
    assert_eq!(journal.due(), Some(NOW + AGE_MAX));
    assert_eq!(found(), Some(vec![b"a".to_vec(), b"b".to_vec()]));
    journal.check_in(database.begin_write().unwrap(), &entropy).unwrap();
    assert_eq!((journal.due(), found()), (None, None));
    append(&mut journal, b"c");
    assert_eq!(found(), Some(vec![b"c".to_vec()]));
}
