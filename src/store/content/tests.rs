//! Tests of content: a body can be read until its bucket's end, only for its own message, and never afterwards.

use std::io::Write;

use super::*;
use crate::store::disk::simulated::{Fault, FsyncMode, SimulatedDisk};
use crate::store::error::OpError;
use crate::store::op::Op;
use crate::store::tables::Tables;
use crate::store::testing::{START, TestStore};

/// An operation that returns the place of the body committed with it.
#[derive(Serialize, Deserialize)]
struct Keep(Place);

impl Op for Keep {
    type Reply = Place;
    type Refusal = ();

    fn apply(&self, _tables: &mut Tables<'_>) -> Result<Place, OpError<()>> {
        Ok(self.0)
    }
}

pub(super) fn bucket(number: u64) -> Timestamp {
    START + std::time::Duration::from_secs(3600 * (1 + number))
}

pub(super) fn message(number: u8) -> MessageId {
    MessageId(crate::base::id::Ulid([number; 16]))
}

fn commit(test: &TestStore, body: SealedBody) -> Place {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let Ok(place) = runtime.block_on(test.store().commit_with_body(test.store().announce(), body, Keep)) else {
        panic!("the body was not stored")
    };
    place
}

pub(super) fn keep(test: &TestStore, bucket: Timestamp, message: MessageId, body: &[u8]) -> Place {
    commit(test, test.store().content().seal(bucket, message, body.to_vec()))
}

pub(super) fn read(test: &TestStore, place: Place, message: MessageId) -> Result<Vec<u8>, Unreadable> {
    test.store().content().read(place, message)
}

fn files_of(test: &TestStore, bucket: Timestamp) -> Vec<PathBuf> {
    let directory = test.directory().join("content").join(format!("{:013}", bucket.as_millis()));
    std::fs::read_dir(directory).map_or(Vec::new(), |entries| entries.map(|entry| entry.unwrap().path()).collect())
}

fn key_file(test: &TestStore) -> Vec<u8> {
    std::fs::read(test.directory().join("content/keys")).unwrap()
}

#[test]
fn a_body_is_read_back_before_and_after_reopening() {
    let mut test = TestStore::new();
    let long = vec![b'a'; 2_000_000];
    let bodies: [&[u8]; 4] = [b"From: a\r\n\r\nhello", b"", &long, b"last"];
    let places = [0, 1, 2, 3].map(|n| keep(&test, bucket(0), message(n), bodies[usize::from(n)]));
    for round in 0..2 {
        for (number, body) in (0..).zip(bodies) {
            assert_eq!(read(&test, places[usize::from(number)], message(number)).unwrap(), body, "{number} {round}");
        }
        test.reopen();
    }
    assert!(places[2].length < 10_000, "bodies are compressed");
}

#[test]
fn a_body_opens_only_for_its_own_message() {
    let test = TestStore::new();
    let place = keep(&test, bucket(0), message(1), b"for one");
    assert!(matches!(read(&test, place, message(2)), Err(Unreadable::Failed(StoreError::Content(_)))));
    let elsewhere = Place { offset: place.offset + 1, ..place };
    assert!(matches!(read(&test, elsewhere, message(1)), Err(Unreadable::Failed(_))));
}

#[test]
fn files_contain_no_plaintext() {
    let test = TestStore::new();
    keep(&test, bucket(0), message(1), b"a canary of some length that would be seen");
    for file in files_of(&test, bucket(0)) {
        let bytes = std::fs::read(file).unwrap();
        assert!(!bytes.windows(6).any(|window| window == b"canary"));
    }
}

#[test]
fn a_torn_tail_is_never_appended_to() {
    let mut test = TestStore::new();
    let first = keep(&test, bucket(0), message(1), b"whole");
    test.close();
    let [file] = &files_of(&test, bucket(0))[..] else { panic!("one segment") };
    std::fs::OpenOptions::new().append(true).open(file).unwrap().write_all(b"half a bod").unwrap();
    test.open().unwrap();
    let second = keep(&test, bucket(0), message(2), b"after");
    assert_ne!(first.segment, second.segment);
    assert_eq!(read(&test, first, message(1)).unwrap(), b"whole");
    assert_eq!(read(&test, second, message(2)).unwrap(), b"after");
}

#[test]
fn a_recent_body_is_read_from_memory_until_its_deadline() {
    let test = TestStore::new();
    keep(&test, bucket(0), message(1), b"fresh");
    assert_eq!(test.store().content().fresh(message(1)).unwrap(), b"fresh");
    assert_eq!(test.store().content().fresh(message(1)), None, "a body is taken once");
    keep(&test, bucket(0), message(2), b"over");
    test.store().content().destroy(bucket(0)).unwrap();
    assert_eq!(test.store().content().fresh(message(2)), None, "its bucket has ended");
}

#[test]
fn a_file_left_by_a_full_disk_does_not_block_a_new_segment() {
    let test = TestStore::new();
    let body = test.store().content().seal(bucket(0), message(1), b"late".to_vec());
    let directory = test.directory().join("content").join(format!("{:013}", bucket(0).as_millis()));
    std::fs::create_dir(&directory).unwrap();
    std::fs::write(directory.join("000000.segment"), b"from the earlier try").unwrap();
    let place = commit(&test, body);
    assert_eq!(read(&test, place, message(1)).unwrap(), b"late");
}

#[test]
fn the_size_counts_bodies_and_keys_of_every_bucket() {
    let test = TestStore::new();
    let size = || test.store().size_bytes().content;
    assert_eq!(size(), 0);
    let mut noise = vec![0; 20_000];
    test.store().entropy().fill(&mut noise);
    let places = [0, 1].map(|number| keep(&test, bucket(u64::from(number)), message(number), &noise));
    let [first, second] = places.map(|place| u64::from(place.length));
    assert!(first > 20_000, "noise does not compress");
    assert_eq!(size(), first + second + 4 * 128, "each key is stored twice");
    test.store().content().destroy(bucket(0)).unwrap();
    assert_eq!(size(), second + 4 * 128);
}

#[test]
fn destroying_a_bucket_removes_its_keys_and_files() {
    let mut test = TestStore::new();
    let mine = keep(&test, bucket(0), message(1), b"doomed");
    test.reopen();
    keep(&test, bucket(0), message(2), b"doomed too");
    let other = keep(&test, bucket(1), message(3), b"kept");
    let before = key_file(&test);
    test.store().content().destroy(bucket(0)).unwrap();
    test.store().content().destroy(bucket(0)).unwrap();
    assert!(matches!(read(&test, mine, message(1)), Err(Unreadable::Gone)));
    assert!(files_of(&test, bucket(0)).is_empty());
    let after = key_file(&test);
    let wiped = after.chunks(128).filter(|slot| slot.iter().all(|byte| *byte == 0)).count();
    assert_eq!((after.len(), wiped), (before.len(), 2));
    test.reopen();
    assert!(matches!(read(&test, mine, message(1)), Err(Unreadable::Gone)));
    assert_eq!(read(&test, other, message(3)).unwrap(), b"kept");
}

#[test]
fn slots_of_destroyed_keys_are_reused() {
    let mut test = TestStore::new();
    for number in 0..6 {
        keep(&test, bucket(number), message(1), b"hourly");
        test.store().content().destroy(bucket(number)).unwrap();
        if number == 3 {
            test.reopen();
        }
    }
    assert_eq!(key_file(&test).len(), 128);
}

#[test]
fn a_torn_slot_is_never_reused() {
    let mut test = TestStore::new();
    let place = keep(&test, bucket(0), message(1), b"whole");
    test.close();
    let path = test.directory().join("content/keys");
    std::fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(&key_file(&test)[..40]).unwrap();
    test.open().unwrap();
    assert_eq!(read(&test, place, message(1)).unwrap(), b"whole");
    let next = keep(&test, bucket(1), message(2), b"next");
    assert_eq!(key_file(&test).len(), 3 * 128);
    test.reopen();
    assert_eq!(read(&test, next, message(2)).unwrap(), b"next");
}

#[test]
fn a_failed_sync_is_reported_to_every_later_caller() {
    let disk = SimulatedDisk::new(1, FsyncMode::Honored);
    disk.create_directory(Path::new("/content")).unwrap();
    let segment = Segment::new(bucket(0), 0, [7; MasterKey::LENGTH]);
    let file = segment.create(&disk, Path::new("/content")).unwrap();
    file.write_all_at(b"a body", 0).unwrap();
    assert!(segment.file.set(Arc::clone(&file)).is_ok());
    disk.plan(0, Fault::Error);
    assert!(segment.sync().is_err());
    assert!(file.sync_data().is_ok(), "the system reports a lost write once");
    assert!(segment.sync().is_err(), "the segment reports it at every sync");
}

#[test]
fn a_body_with_a_precompressed_end_is_read_back_whole() {
    let test = TestStore::new();
    let body = b"DKIM-Signature: v=1\r\nSubject: Your order\r\n\r\nHello\r\n".repeat(20);
    for length in [0, 1, body.len() - 21, body.len()] {
        let end = CompressedEnd::of(&body[body.len() - length..]);
        let place = commit(&test, test.store().content().seal_with(bucket(0), message(1), body.clone(), &end));
        assert_eq!(read(&test, place, message(1)).unwrap(), body, "{length} length ahead");
    }
}

#[test]
fn only_a_single_small_body_is_written_on_the_callers_thread() {
    let test = TestStore::new();
    let store = test.store();
    let is_written = |announcement, body: &[u8]| {
        let body = store.content().seal(bucket(0), message(1), body.to_vec());
        store.appender.append_alone(Append { announcement, body, job: Box::new(|_| None) }).is_ok()
    };
    assert!(!is_written(store.announce(), b"the first body of the hour creates the file"));
    keep(&test, bucket(0), message(2), b"here it is");
    assert!(is_written(store.announce(), b"small"));
    let mut noise = vec![0; 32 * 1024];
    store.entropy().fill(&mut noise);
    assert!(!is_written(store.announce(), &noise), "larger than the journal inlines");
    let other = store.announce();
    assert!(!is_written(store.announce(), b"small"), "another body is announced");
    drop(other);
    assert!(is_written(store.announce(), b"small"));
}
