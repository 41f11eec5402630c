//! Tests of the journal: the state of database and file after a crash, and their recovery.

use std::fs;
use std::path::{Path, PathBuf};

use redb::{Database, ReadableTable};

use super::record::{self, Layout, ScannedRecord};
use super::scan::{scan, scan_named};
use super::*;
use crate::base::entropy::SeededEntropy;
use crate::store::check::{KeyPlace, Rule, check};
use crate::store::disk::FileSystem;
use crate::store::open::{OnJournalDamage, OpenError};
use crate::store::read::{Order, Read};
use crate::store::row::message::MessageRow;
use crate::store::row::restored::HoldCause;
use crate::store::testing::{Sender, TestStore};

const NOW: Duration = Duration::from_secs(1_700);

/// Returns a copy of the directory as after `kill -9`: its files while the process is still running.
pub(in crate::store) fn killed(test: &TestStore) -> tempfile::TempDir {
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
fn operations_answered_since_the_last_checkpoint_survive_a_crash() {
    let test = TestStore::new();
    let sender = test.sender();
    for number in 0..20 {
        sender.accept(&format!("r{number}@example.net"));
    }
    let expected = messages(&test);
    assert_eq!(expected.len(), 20);
    let left = killed(&test);
    // The database file does not have the messages yet; only the journal does.
    let mut after = TestStore::in_directory(left);
    assert_eq!(messages(&after), expected);
    after.reopen();
    assert_eq!(messages(&after), expected);
}

#[test]
fn a_torn_record_and_all_later_ones_are_ignored() {
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
fn a_body_is_inlined_in_its_rows_record_until_its_segment_is_synced() {
    let test = TestStore::new();
    let sender = test.sender();
    let bodies = [b"a first body".as_slice(), b"a second one"];
    let ids = bodies.map(|body| sender.accept_with_body("b@example.net", 2, body));
    let left = killed(&test);
    // A power cut may leave such a file if it was never synced.
    let segment = buckets(left.path())[0].join("000000.segment");
    fs::OpenOptions::new().write(true).open(segment).unwrap().set_len(7).unwrap();
    let report = check(left.path(), test.now(), KeyPlace::WithStore, &mut |_| {}).unwrap();
    assert!(report.failures.is_empty(), "the check finds them in the journal: {:?}", report.failures);
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
fn replay_rewrites_lost_bodies_but_not_expired_ones() {
    let test = TestStore::new();
    let sender = test.sender();
    let ids = [(0, b"over"), (2, b"lost")].map(|(hours, body)| sender.accept_with_body("b@example.net", hours, body));
    let left = killed(&test);
    let buckets = buckets(left.path());
    buckets.iter().for_each(|bucket| fs::remove_dir_all(bucket).unwrap());
    let after = TestStore::in_directory(left);
    assert!(!buckets[0].exists());
    let place = after.row::<MessageRow>(&sender.key(ids[1])).place;
    assert_eq!(
        after.store().content().read(place, ids[1]).unwrap(),
        b"lost",
        "a body that has not expired is written again"
    );
}

/// Returns the folders of the buckets in a data directory, the earliest first.
fn buckets(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory.join("content")).unwrap().map(|entry| entry.unwrap().path());
    let mut buckets: Vec<_> = entries.filter(|path| path.is_dir()).collect();
    buckets.sort();
    buckets
}

fn journal_of(test: &TestStore) -> Vec<u8> {
    fs::read(test.directory().join(FILE)).unwrap()
}

/// Flips bits in a journal that a crash left, and opens the store.
fn opened_with(test: &TestStore, journal: &[u8]) -> Result<TestStore, OpenError> {
    let left = killed(test);
    fs::write(left.path().join(FILE), journal).unwrap();
    TestStore::try_in_directory(left, OnJournalDamage::Refuse)
}

#[test]
fn a_flipped_bit_before_later_records_prevents_a_start_and_changes_nothing() {
    let test = TestStore::new();
    let sender = test.sender();
    sender.accept("first@example.net");
    let first = journal_of(&test).len();
    sender.accept("second@example.net");
    let second = journal_of(&test).len();
    for number in 0..3 {
        sender.accept(&format!("later{number}@example.net"));
    }
    let whole = journal_of(&test);
    for at in (first..second).step_by(37).chain(first..first + record::HEAD) {
        let left = killed(&test);
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        fs::write(left.path().join(FILE), &bytes).unwrap();
        let path = left.path().to_owned();
        let (left, error) = TestStore::refused_in_directory(left, OnJournalDamage::Refuse);
        let OpenError::JournalDamaged(damage) = error else { panic!("bit at {at}: {error}") };
        let Damage::Record { offset, left_out, .. } = damage else { panic!("bit at {at}: {damage}") };
        assert_eq!((offset, left_out), (first as u64, 4), "bit at {at}");
        assert_eq!(fs::read(path.join(FILE)).unwrap(), bytes, "the journal is unchanged");
        let report = check(left.path(), test.now(), KeyPlace::WithStore, &mut |_| {}).unwrap();
        assert!(report.failures.iter().any(|failure| failure.rule == Rule::Journal), "{:?}", report.failures);
    }
}

#[test]
fn accepting_damage_keeps_earlier_records_and_holds_the_queue() {
    let test = TestStore::new();
    let sender = test.sender();
    let before = sender.accept("before@example.net");
    let first = journal_of(&test).len();
    sender.accept("damaged@example.net");
    sender.accept("later@example.net");
    let mut damaged = journal_of(&test);
    damaged[first + record::HEAD + 9] ^= 4;
    let left = killed(&test);
    fs::write(left.path().join(FILE), &damaged).unwrap();
    let mut after = TestStore::try_in_directory(left, OnJournalDamage::Accept).unwrap();
    assert_eq!(messages(&after), [sender.key(before).to_vec()]);
    let name = format!("journal.damaged-{}", after.now().as_millis());
    assert_eq!(fs::read(after.directory().join(name)).unwrap(), damaged, "the damaged file is kept");
    for _ in 0..2 {
        let hold = after.store().restore_hold().unwrap().expect("the queue is on hold");
        assert!(matches!(hold.cause, HoldCause::JournalDamaged { .. }));
        let accepted = Sender::of(&after, sender.account, sender.domain).accept("new@example.net");
        assert!(accepted > before);
        assert_eq!(after.store().timers_on_hold(&hold).unwrap().messages, 1, "new mail is not held");
        after.reopen();
    }
    let report = {
        after.close();
        check(after.directory(), after.now(), KeyPlace::WithStore, &mut |_| {}).unwrap()
    };
    assert!(report.failures.iter().all(|failure| failure.rule != Rule::Journal), "{:?}", report.failures);
}

#[test]
fn an_interrupted_acceptance_of_damage_finds_the_damage_again() {
    let test = TestStore::new();
    let sender = test.sender();
    let first = journal_of(&test).len();
    for number in 0..3 {
        sender.accept(&format!("r{number}@example.net"));
    }
    let mut damaged = journal_of(&test);
    damaged[first + 5] ^= 1;
    let left = killed(&test);
    fs::write(left.path().join(FILE), &damaged).unwrap();
    // The copy can't be written if a directory has its name.
    fs::create_dir(left.path().join(format!("journal.damaged-{}", test.now().as_millis()))).unwrap();
    let (left, error) = TestStore::refused_in_directory(left, OnJournalDamage::Accept);
    assert!(matches!(error, OpenError::Failed(_)), "{error}");
    let (_, error) = TestStore::refused_in_directory(left, OnJournalDamage::Refuse);
    assert!(matches!(error, OpenError::JournalDamaged(_)), "{error}");
}

#[test]
fn accepting_damage_requires_damage() {
    let test = TestStore::new();
    let sender = test.sender();
    sender.accept("first@example.net");
    let whole = journal_of(&test);
    let torn = &whole[..whole.len() - 3];
    for journal in [&whole[..], torn] {
        let left = killed(&test);
        fs::write(left.path().join(FILE), journal).unwrap();
        let (left, error) = TestStore::refused_in_directory(left, OnJournalDamage::Accept);
        assert!(matches!(error, OpenError::JournalWhole), "{error}");
        assert!(TestStore::try_in_directory(left, OnJournalDamage::Refuse).is_ok());
    }
}

#[test]
fn a_damaged_last_record_is_skipped_like_an_incomplete_one() {
    let test = TestStore::new();
    let sender = test.sender();
    sender.accept("first@example.net");
    let first = journal_of(&test).len();
    sender.accept("second@example.net");
    let mut journal = journal_of(&test);
    for at in [first, first + record::HEAD, journal.len() - 1] {
        journal[at] ^= 1;
        assert_eq!(messages(&opened_with(&test, &journal).unwrap()).len(), 1, "bit at {at}");
        journal[at] ^= 1;
    }
    assert_eq!(messages(&opened_with(&test, &journal).unwrap()).len(), 2);
}

/// Converts the records of a journal to the format of stores of format 1.
fn in_first_layout(journal: &[u8], epoch: &Epoch) -> (Vec<u8>, Vec<usize>) {
    let (mut bytes, mut begins) = (Vec::new(), Vec::new());
    for record in scan_named(journal, epoch).records {
        assert_eq!(record.layout, Layout::Second);
        begins.push(bytes.len());
        let payload = &journal[record.payload.start + 1..record.payload.end];
        bytes.extend(record::of_first_layout(epoch, bytes.len() as u64, payload));
    }
    (bytes, begins)
}

#[test]
fn finds_records_of_format_1_and_damage_among_them() {
    let test = TestStore::new();
    let sender = test.sender();
    for number in 0..4 {
        sender.accept(&format!("r{number}@example.net"));
    }
    let epoch = test.snapshot().get(Table::Meta, meta::JOURNAL).unwrap().unwrap().try_into().unwrap();
    let (journal, begins) = in_first_layout(&journal_of(&test), &epoch);
    let found = scan(&journal, &epoch, 0);
    assert_eq!((found.records.len(), found.damage), (begins.len(), None));
    let torn = scan(&journal[..journal.len() - 1], &epoch, 0);
    assert_eq!((torn.records.len(), torn.damage), (begins.len() - 1, None));
    for at in [begins[1], begins[1] + 7, begins[1] + 60] {
        let mut damaged = journal.clone();
        damaged[at] ^= 1;
        let damage = scan(&damaged, &epoch, 0).damage;
        assert!(matches!(damage, Some(Damage::Record { offset, .. }) if offset == begins[1] as u64), "byte {at}");
    }
}

#[test]
fn a_record_verifies_only_in_its_own_place_and_epoch() {
    let (epoch, mut record) = ([7; 16], vec![0; record::HEAD]);
    record.extend(b"payload");
    assert!(record::seal(&epoch, 0, 3, &mut record));
    assert!(matches!(record::at(&record, 0, &epoch), ScannedRecord::Whole(record) if record.number == Some(3)));
    assert_eq!(record::at(&record, 0, &[8; 16]), ScannedRecord::Nothing);
    let moved = [vec![0], record.clone()].concat();
    assert_eq!(record::at(&moved, 1, &epoch), ScannedRecord::Nothing, "it is at another offset");
    for at in 0..record.len() {
        record[at] ^= 1;
        let expected = if at < record::HEAD { ScannedRecord::Nothing } else { ScannedRecord::HeaderOnly { number: 3 } };
        assert_eq!(record::at(&record, 0, &epoch), expected, "bit at {at}");
        record[at] ^= 1;
    }
}

#[test]
fn a_header_after_a_bad_record_proves_damage_even_if_its_payload_is_torn() {
    let epoch = [7; 16];
    let mut journal = Vec::new();
    for number in 0..3 {
        let mut record = vec![number; record::HEAD + 100];
        assert!(record::seal(&epoch, journal.len() as u64, number.into(), &mut record));
        journal.extend(record);
    }
    journal.truncate(journal.len() - 1);
    assert_eq!((scan(&journal, &epoch, 0).records.len(), scan(&journal, &epoch, 0).damage), (2, None));
    journal[record::HEAD + 10] ^= 1;
    let damage = scan(&journal, &epoch, 0).damage;
    let third_was_written = Damage::Record { whole: 0, offset: 0, left_out: 3 };
    assert_eq!(damage, Some(third_was_written));
}

#[test]
fn records_of_an_earlier_epoch_are_ignored() {
    let mut test = TestStore::new();
    test.sender().accept("a@example.net");
    let key = messages(&test).remove(0);
    let mut journal = journal_of(&test);
    test.close();
    test.open().unwrap();
    test.put(Table::Messages, &key, None);
    test.close();
    let named = usize::try_from(epoch::RECORDS).unwrap();
    journal[..named].copy_from_slice(&journal_of(&test)[..named]);
    fs::write(test.directory().join(FILE), journal).unwrap();
    test.open().unwrap();
    assert_eq!(messages(&test), Vec::<Vec<u8>>::new());
}

#[test]
fn a_record_proves_the_epoch_if_its_name_is_damaged() {
    let test = TestStore::new();
    let idle = journal_of(&test);
    test.sender().accept("a@example.net");
    let mut journal = journal_of(&test);
    for at in (0..usize::try_from(epoch::RECORDS).unwrap()).filter(|at| idle[*at] != 0) {
        journal[at] ^= 1;
        assert_eq!(messages(&opened_with(&test, &journal).unwrap()).len(), 1, "byte {at}");
        journal[at] ^= 1;
    }
}

fn one_row(key: &[u8], value: Vec<u8>) -> Changes {
    let mut changes = Changes::default();
    changes.put(Table::Messages, key.to_vec(), Some(value));
    changes
}

#[test]
fn a_full_journal_leaves_the_batch_to_a_checkpoint() {
    let directory = tempfile::tempdir().unwrap();
    let mut journal = Journal::open(&FileSystem, directory.path(), [7; 16], Limits::default()).unwrap();
    let large = one_row(b"key", vec![0; 600 << 10]);
    let Limits { short_bytes: short, journal_bytes_max, .. } = Limits::default();
    assert_eq!(journal.append(&mut Record::of(&large, &[]), Some(short), NOW).unwrap(), RecordResult::Record);
    assert_eq!(journal.append(&mut Record::of(&large, &[]), Some(short - 1), NOW).unwrap(), RecordResult::NoRoom);
    assert_eq!(journal.append(&mut Record::of(&large, &[]), Some(short), NOW).unwrap(), RecordResult::Record);
    let huge = one_row(b"key", vec![0; journal_bytes_max as usize]);
    assert_eq!(journal.append(&mut Record::of(&huge, &[]), None, NOW).unwrap(), RecordResult::NoRoom);
}

#[test]
fn a_checkpoint_restarts_the_file_under_a_new_epoch() {
    let directory = tempfile::tempdir().unwrap();
    let database = Database::create(directory.path().join("database")).unwrap();
    let entropy = SeededEntropy::new(1);
    let transaction = database.begin_write().unwrap();
    let format = crate::store::schema::FORMAT.to_be_bytes();
    transaction.open_table(Table::Meta.definition()).unwrap().insert(meta::FORMAT, format.as_slice()).unwrap();
    let epoch = checkpoint_at_start(&FileSystem, directory.path(), transaction, &entropy).unwrap();
    let mut journal = Journal::open(&FileSystem, directory.path(), epoch, Limits::default()).unwrap();
    let append = |journal: &mut Journal, key: &[u8]| {
        journal.append(&mut Record::of(&one_row(key, b"value".to_vec()), &[]), None, NOW).unwrap();
    };
    let found = || {
        let replay = Replay::read(&database, &FileSystem, directory.path()).unwrap();
        replay.apply(&database).unwrap().map(|transaction| {
            let table = transaction.open_table(Table::Messages.definition()).unwrap();
            table.iter().unwrap().map(|row| row.unwrap().0.value().to_vec()).collect::<Vec<_>>()
        })
    };
    assert_eq!(journal.due(), None);
    append(&mut journal, b"a");
    append(&mut journal, b"b");
    assert_eq!(journal.due(), Some(NOW + Limits::default().journal_age_max));
    assert_eq!(found(), Some(vec![b"a".to_vec(), b"b".to_vec()]));
    journal.checkpoint(database.begin_write().unwrap(), &entropy).unwrap();
    assert_eq!((journal.due(), found()), (None, None));
    append(&mut journal, b"c");
    assert_eq!(found(), Some(vec![b"c".to_vec()]));
}
