//! Tests of the key slots: damage of one copy loses nothing, a damaged slot is never reused, and no key outlives its
//! bucket in either file.

use std::fs;

use super::slot::{self, SLOT, Slot};
use super::*;
use crate::base::id::MessageId;
use crate::store::check::{KeyPlace, Rule, check};
use crate::store::content::tests::{bucket, keep, message, read};
use crate::store::content::{Place, Unreadable};
use crate::store::disk::simulated::{Fault, FsyncMode, SimulatedDisk};
use crate::store::testing::TestStore;

fn path(test: &TestStore, name: &str) -> PathBuf {
    test.directory().join("content").join(name)
}

fn bytes(test: &TestStore, name: &str) -> Vec<u8> {
    fs::read(path(test, name)).unwrap()
}

fn master(test: &TestStore) -> MasterKey {
    MasterKey::new(&fs::read(test.directory().join("master.key")).unwrap().try_into().unwrap())
}

fn flip(test: &TestStore, name: &str, at: usize) {
    let mut changed = bytes(test, name);
    changed[at] ^= 1;
    fs::write(path(test, name), changed).unwrap();
}

/// Returns the key failures that `check` reports for a closed store.
fn faults(test: &TestStore) -> Vec<String> {
    let report = check(test.directory(), test.now(), KeyPlace::WithStore, &mut |_| {}).unwrap();
    assert!(report.failures.iter().all(|failure| failure.rule == Rule::Content), "{:?}", report.failures);
    report.failures.into_iter().map(|failure| failure.what).collect()
}

/// Creates a closed store with one body, whose key is in slot 0.
fn with_a_body() -> (TestStore, Place, MessageId) {
    let mut test = TestStore::new();
    let place = keep(&test, bucket(0), message(1), b"whole");
    test.close();
    (test, place, message(1))
}

#[test]
fn a_damaged_slot_is_read_from_its_copy_reported_and_never_reused() {
    for name in [FILE, MIRROR] {
        for at in [0, 7, 12, 19, 40, 100, 127] {
            let (mut test, place, id) = with_a_body();
            flip(&test, name, at);
            let found = faults(&test);
            assert!(matches!(&found[..], [one] if one.contains(&format!("content/{name} is damaged"))), "{found:?}");
            test.open().unwrap();
            assert_eq!(read(&test, place, id).unwrap(), b"whole", "byte {at} of {name}");
            assert_eq!(test.store().content().damaged_key_slots(), 1);
            assert_eq!(test.store().content().key_faults(), 1);
            keep(&test, bucket(1), message(2), b"next");
            for name in [FILE, MIRROR] {
                assert_eq!(bytes(&test, name)[..SLOT], slot::retired(), "slot 0 of {name}");
            }
            test.reopen();
            assert_eq!((read(&test, place, id).unwrap(), bytes(&test, FILE).len()), (b"whole".to_vec(), 3 * SLOT));
            assert_eq!(test.store().content().damaged_key_slots(), 1, "it is remembered");
            assert_eq!(test.store().content().key_faults(), 0, "it was repaired");
            test.close();
            assert_eq!(faults(&test), [""; 0], "both copies are intact again");
        }
    }
}

#[test]
fn a_key_missing_before_its_deadline_is_a_failure_and_counted_at_start() {
    let (mut test, place, id) = with_a_body();
    for name in [FILE, MIRROR] {
        fs::write(path(&test, name), b"").unwrap();
    }
    test.open().unwrap();
    let store = test.store();
    let missing = |now| store.content().segments_without_key(|bucket| bucket <= now).unwrap().len();
    assert_eq!((missing(test.now()), missing(place.bucket)), (1, 0));
    assert!(matches!(store.body(place, id, test.now()), Err(Unreadable::Failed(_))));
    assert!(matches!(store.body(place, id, place.bucket), Err(Unreadable::Gone)), "its deadline has passed");
}

#[test]
fn a_key_lost_in_both_copies_does_not_prevent_a_start_and_is_overwritten_at_the_deadline() {
    let (mut test, place, id) = with_a_body();
    let sealed = bytes(&test, FILE)[20..80].to_vec();
    flip(&test, FILE, 30);
    flip(&test, MIRROR, 60);
    assert!(faults(&test).iter().any(|fault| fault.contains("is lost")), "{:?}", faults(&test));
    test.open().unwrap();
    assert!(matches!(read(&test, place, id), Err(Unreadable::Failed(_))), "damage is not a passed deadline");
    let other = keep(&test, bucket(1), message(2), b"next");
    assert_eq!(read(&test, other, message(2)).unwrap(), b"next");
    assert_eq!(test.store().content().damaged_key_slots(), 1);
    test.store().content().destroy(bucket(0)).unwrap();
    for name in [FILE, MIRROR] {
        let left = bytes(&test, name);
        assert_eq!(left[..SLOT], slot::retired(), "{name}");
        assert!(!left.windows(8).any(|window| sealed.windows(8).any(|piece| piece == window)), "{name}");
    }
    test.reopen();
    assert_eq!(read(&test, other, message(2)).unwrap(), b"next");
}

#[test]
fn a_key_that_both_copies_lost_is_a_fault_of_every_start() {
    let (mut test, ..) = with_a_body();
    flip(&test, FILE, 30);
    flip(&test, MIRROR, 60);
    test.open().unwrap();
    assert!(test.store().content().key_faults() > 0);
    test.reopen();
    assert!(test.store().content().key_faults() > 0, "nothing repairs it");
}

#[test]
fn a_key_is_gone_from_both_files_when_its_bucket_is_destroyed() {
    let (mut test, ..) = with_a_body();
    assert_eq!(bytes(&test, FILE), bytes(&test, MIRROR));
    test.open().unwrap();
    test.store().content().destroy(bucket(0)).unwrap();
    assert!([FILE, MIRROR].iter().all(|name| bytes(&test, name) == [0; SLOT]));
}

#[test]
fn a_missing_key_file_is_restored_from_its_mirror() {
    for name in [FILE, MIRROR] {
        let (mut test, place, id) = with_a_body();
        fs::remove_file(path(&test, name)).unwrap();
        assert_eq!(faults(&test), [""; 0]);
        test.open().unwrap();
        assert_eq!(read(&test, place, id).unwrap(), b"whole");
        assert_eq!(bytes(&test, FILE), bytes(&test, MIRROR));
    }
}

#[test]
fn slots_of_format_1_are_rewritten_with_a_mirror() {
    let (mut test, place, id) = with_a_body();
    let master = master(&test);
    let Slot::Key { segment, key, is_first: false } = slot::read(&bytes(&test, FILE), &master) else {
        panic!("slot 0 has a key")
    };
    let entropy = crate::base::entropy::SeededEntropy::new(5);
    let first = encode_first(segment, &key, &master, &entropy);
    let damaged = [&first[..30], &[first[30] ^ 1], &first[31..]].concat();
    fs::write(path(&test, FILE), [&first[..], &damaged].concat()).unwrap();
    fs::remove_file(path(&test, MIRROR)).unwrap();
    test.open().unwrap();
    assert_eq!(read(&test, place, id).unwrap(), b"whole");
    assert_eq!(test.store().content().damaged_key_slots(), 1, "the damaged one costs only its own bodies");
    for name in [FILE, MIRROR] {
        let slot = slot::read(&bytes(&test, name)[..SLOT], &master);
        assert!(matches!(slot, Slot::Key { is_first: false, segment: of, .. } if of == segment), "{name}");
    }
    test.reopen();
    assert_eq!(read(&test, place, id).unwrap(), b"whole");
}

#[test]
fn a_slot_of_format_1_without_a_segment_file_is_not_a_key() {
    for (damaged_bucket, damaged_number) in [(bucket(7), 0), (bucket(0), 5)] {
        let (mut test, place, id) = with_a_body();
        let master = master(&test);
        let Slot::Key { key, .. } = slot::read(&bytes(&test, FILE), &master) else { panic!("slot 0 has a key") };
        let entropy = crate::base::entropy::SeededEntropy::new(5);
        fs::write(path(&test, FILE), encode_first((damaged_bucket, damaged_number), &key, &master, &entropy)).unwrap();
        fs::remove_file(path(&test, MIRROR)).unwrap();
        assert!(faults(&test).iter().any(|fault| fault.contains("is lost")), "{:?}", faults(&test));
        test.open().unwrap();
        assert!(!test.store().content().has((damaged_bucket, damaged_number)));
        assert_eq!(test.store().content().damaged_key_slots(), 1);
        assert!(matches!(read(&test, place, id), Err(Unreadable::Failed(_))));
        test.store().content().destroy(bucket(0)).unwrap();
        assert_eq!(bytes(&test, FILE)[..SLOT], slot::retired(), "the key ends with the newest bucket");
    }
}

#[test]
fn different_keys_of_format_1_for_one_segment_are_reported_and_both_kept() {
    let (mut test, ..) = with_a_body();
    let master = master(&test);
    let Slot::Key { segment, key, .. } = slot::read(&bytes(&test, FILE), &master) else { panic!("slot 0 has a key") };
    let entropy = crate::base::entropy::SeededEntropy::new(5);
    let first = |key: &[u8; MasterKey::LENGTH]| encode_first(segment, key, &master, &entropy);
    let second = first(&[9; MasterKey::LENGTH]);
    fs::write(path(&test, FILE), [first(&key), second.clone()].concat()).unwrap();
    fs::remove_file(path(&test, MIRROR)).unwrap();
    assert!(faults(&test).iter().any(|fault| fault.contains("another key")), "{:?}", faults(&test));
    test.open().unwrap();
    assert_eq!(bytes(&test, FILE)[SLOT..], second);
}

#[test]
fn an_interrupted_move_leaves_the_key_in_one_slot() {
    let (mut test, place, id) = with_a_body();
    let twice = bytes(&test, FILE).repeat(2);
    fs::write(path(&test, MIRROR), &twice).unwrap();
    fs::write(path(&test, FILE), &twice).unwrap();
    flip(&test, FILE, 50);
    test.open().unwrap();
    assert_eq!(read(&test, place, id).unwrap(), b"whole");
    test.store().content().destroy(bucket(0)).unwrap();
    for name in [FILE, MIRROR] {
        assert_eq!(bytes(&test, name), [slot::retired(), [0; SLOT]].concat(), "no second copy of the key is left");
    }
}

#[test]
fn a_slot_opens_only_for_its_own_bucket_and_number() {
    let (test, ..) = with_a_body();
    let (master, whole) = (master(&test), bytes(&test, FILE));
    assert!(matches!(slot::read(&whole, &master), Slot::Key { .. }));
    for at in [15, 19] {
        let mut moved: slot::Bytes = whole[..SLOT].try_into().unwrap();
        moved[at] ^= 1;
        assert!(matches!(slot::read(&slot::checked(moved), &master), Slot::Damaged { .. }), "byte {at}");
    }
}

#[test]
fn a_key_in_only_one_file_after_a_full_disk_is_overwritten_at_the_deadline() {
    let disk = SimulatedDisk::new(1, FsyncMode::Honored);
    let directory = Path::new("/content");
    disk.create_directory(directory).unwrap();
    let master = Arc::new(MasterKey::new(&[3; MasterKey::LENGTH]));
    let entropy = Arc::new(crate::base::entropy::SeededEntropy::new(5));
    let keys = KeySlots::open(Arc::new(disk.clone()), directory, master, entropy).unwrap();
    let segment = Segment::new(bucket(0), 0, [7; MasterKey::LENGTH]);
    let holds_a_key = |name| disk.read(&directory.join(name)).unwrap().iter().any(|byte| *byte != 0);
    // The write to the first file succeeds, and the one to its mirror does not.
    disk.plan(1, Fault::Full(0));
    assert!(matches!(keys.put(&segment), Err(StoreError::Full)));
    assert!(holds_a_key(FILE) && !holds_a_key(MIRROR));
    assert!(keys.buckets().contains(&bucket(0)), "the sweep sees the bucket");
    keys.put(&Segment::new(bucket(1), 0, [8; MasterKey::LENGTH])).unwrap();
    keys.destroy(bucket(1)).unwrap();
    keys.destroy(bucket(0)).unwrap();
    assert!(!holds_a_key(FILE) && !holds_a_key(MIRROR));
    keys.put(&segment).unwrap();
    assert_eq!(disk.read(&directory.join(FILE)).unwrap().len(), 2 * SLOT, "the places are reused");
}
