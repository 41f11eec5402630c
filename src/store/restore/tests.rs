//! Tests of backup and restore: the copy has everything committed before the backup and nothing committed later, and a
//! bad backup restores nothing.

use std::io::Write;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use super::*;
use crate::base::id::MessageId;
use crate::domain::account::QuotaLimits;
use crate::domain::sending_domain::DomainStatus;
use crate::domain::stream::Stream;
use crate::store::Store;
use crate::store::backup::Extent;
use crate::store::content::{Place, Unreadable};
use crate::store::error::OpError;
use crate::store::open::OpenError;
use crate::store::row::message::{MessageRow, TransferRow};
use crate::store::testing::{START, Sender, TestStore};

const ALL: Extent = Extent { content: true, master_key: true };
const ROWS: Extent = Extent { content: false, master_key: true };

/// Runs a callback when the first bytes of the backup are written, which is after its snapshot.
struct Meanwhile<'a, F: FnMut()>(&'a mut Vec<u8>, Option<F>);

impl<F: FnMut()> Write for Meanwhile<'_, F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(mut act) = self.1.take() {
            act();
        }
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn backup(test: &TestStore, extent: Extent) -> Vec<u8> {
    let mut bytes = Vec::new();
    test.store().back_up(test.now(), extent, &["beside"], &mut bytes).unwrap();
    bytes
}

fn restored_into(directory: &Path, bytes: &[u8], given: Option<Raw>) -> Result<Restoration, RestoreError> {
    restore(bytes, directory, given, &["beside"], &mut |_, _| {})
}

fn restored(bytes: &[u8]) -> (TestStore, Restoration) {
    let directory = tempfile::tempdir().unwrap();
    let restoration = restored_into(directory.path(), bytes, None).unwrap();
    (TestStore::in_directory(directory), restoration)
}

fn place(sender: &Sender<'_>, test: &TestStore, id: MessageId) -> Place {
    test.row::<MessageRow>(&sender.key(id)).place
}

fn body(sender: &Sender<'_>, test: &TestStore, id: MessageId) -> Result<Vec<u8>, Unreadable> {
    test.store().content().read(place(sender, test, id), id)
}

#[test]
fn a_restore_has_everything_committed_before_the_backup_on_hold_and_nothing_later() {
    let mut test = TestStore::new();
    let sender = test.sender();
    let (account, domain) = (sender.account, sender.domain);
    test.endpoint(account, None);
    let long = (0..700_000_u32).flat_map(u32::to_be_bytes).collect::<Vec<_>>();
    let first = Sender::of(&test, account, domain).accept_with_body("b@example.net", 5, b"first");
    test.reopen();
    let sender = Sender::of(&test, account, domain);
    let second = sender.accept_with_body("b@example.net", 5, &long);
    std::fs::write(test.directory().join("beside"), "a file").unwrap();

    let mut bytes = Vec::new();
    let after = || {
        sender.accept_with_body("b@example.net", 5, b"after");
    };
    let totals = test.store().back_up(test.now(), ALL, &["beside", "no such"], Meanwhile(&mut bytes, Some(after)));
    assert_eq!(totals.unwrap().segments, 2);
    assert_eq!(test.count(Table::Messages, &[]), 3, "accepted while the backup was taken");

    let (copy, restoration) = restored(&bytes);
    assert_eq!(restoration.on_hold, TimersOnHold { messages: 2, deliveries: 2 });
    assert_eq!(copy.count(Table::Messages, &[]), 2);
    let sender = Sender::of(&copy, account, domain);
    assert_eq!(body(&sender, &copy, first).unwrap(), b"first");
    assert_eq!(body(&sender, &copy, second).unwrap(), long);
    assert_eq!(copy.row::<TransferRow>(&sender.key(first)).due, Some(START));
    assert_eq!(std::fs::read(copy.directory().join("beside")).unwrap(), b"a file");
    let restore_hold = copy.store().restore_hold().unwrap().unwrap();
    assert_eq!(copy.store().timers_on_hold(&restore_hold).unwrap(), restoration.on_hold);
    // A backup of the copy is a backup like any other.
    let (again, _) = restored(&backup(&copy, ALL));
    assert_eq!(body(&Sender::of(&again, account, domain), &again, first).unwrap(), b"first");
}

#[test]
fn a_restore_without_content_has_no_bodies_and_never_reuses_their_places() {
    let test = TestStore::new();
    let sender = test.sender();
    let old = sender.accept_with_body("b@example.net", 5, b"old");
    let (copy, _) = restored(&backup(&test, ROWS));
    let sender = Sender::of(&copy, sender.account, sender.domain);
    let new = sender.accept_with_body("b@example.net", 5, b"new");
    assert_eq!(place(&sender, &copy, new).bucket, place(&sender, &copy, old).bucket);
    assert!(matches!(body(&sender, &copy, old), Err(Unreadable::Gone)));
    assert_eq!(body(&sender, &copy, new).unwrap(), b"new");
}

#[test]
fn a_bucket_that_ends_during_the_backup_is_missing_from_it() {
    let test = TestStore::new();
    let sender = test.sender();
    let (doomed, kept) =
        (sender.accept_with_body("b@example.net", 1, b"doomed"), sender.accept_with_body("b@example.net", 2, b"kept"));
    let mut bytes = Vec::new();
    let end = START + Duration::from_secs(3600);
    let destroy = || test.store().content().destroy(end).unwrap();
    test.store().back_up(START, ALL, &[], Meanwhile(&mut bytes, Some(destroy))).unwrap();
    let (copy, _) = restored(&bytes);
    let sender = Sender::of(&copy, sender.account, sender.domain);
    assert!(matches!(body(&sender, &copy, doomed), Err(Unreadable::Gone)));
    assert_eq!(body(&sender, &copy, kept).unwrap(), b"kept");
}

#[test]
fn the_backup_has_the_master_key_only_on_request_and_no_other_key_restores_it() {
    let test = TestStore::new();
    let own = std::fs::read(test.directory().join("master.key")).unwrap();
    let without = backup(&test, Extent { content: true, master_key: false });
    let holds = |bytes: &[u8]| bytes.windows(own.len()).any(|window| window == own);
    assert!(holds(&backup(&test, ALL)) && !holds(&without));

    let directory = tempfile::tempdir().unwrap();
    let own: Raw = Raw::new(own.clone().try_into().unwrap());
    for (given, expected) in [(None, "has no master key"), (Some(Raw::new([9; 32])), "does not belong")] {
        let refused = restored_into(directory.path(), &without, given).unwrap_err();
        assert!(refused.to_string().contains(expected), "{refused}");
        assert!(is_empty(directory.path()).unwrap(), "the directory is empty");
    }
    restored_into(directory.path(), &without, Some(own.clone())).unwrap();
    assert_eq!(std::fs::read(directory.path().join("master.key")).unwrap(), *own);
}

#[test]
fn an_incomplete_backup_restores_nothing() {
    let test = TestStore::new();
    let sender = test.sender();
    sender.accept_with_body("b@example.net", 5, b"body");
    let bytes = backup(&test, ALL);
    let directory = tempfile::tempdir().unwrap();
    for length in [0, 10, 100, bytes.len() / 2, bytes.len() - 1] {
        assert!(restored_into(directory.path(), &bytes[..length], None).is_err(), "{length}");
        assert!(is_empty(directory.path()).unwrap(), "{length}");
    }
    let mut damaged = bytes;
    let last = damaged.len() - 40;
    damaged[last] ^= 1;
    assert!(matches!(restored_into(directory.path(), &damaged, None), Err(RestoreError::Backup(_))));
    assert!(is_empty(directory.path()).unwrap());
}

#[test]
fn a_partly_restored_directory_does_not_open() {
    let mut test = TestStore::new();
    let directory = tempfile::tempdir().unwrap();
    let target = Target { disk: Arc::new(FileSystem), directory: directory.path() };
    let building = DirectoryBuilder::begin(target, None, (FORMAT, FORMAT)).unwrap();
    let opened = Store::open(directory.path(), test.surroundings());
    assert!(matches!(opened, Err(OpenError::HalfRestored)));
    assert!(!is_empty(directory.path()).unwrap());
    drop(building);
    assert!(is_empty(directory.path()).unwrap());
    std::fs::write(directory.path().join("notes.txt"), "mine").unwrap();
    assert!(!is_empty(directory.path()).unwrap());
}

#[test]
fn restored_files_are_accessible_only_to_their_owner() {
    let test = TestStore::new();
    let sender = test.sender();
    sender.accept_with_body("b@example.net", 5, b"body");
    let directory = tempfile::tempdir().unwrap();
    restored_into(directory.path(), &backup(&test, ALL), None).unwrap();
    let mut waiting = vec![directory.path().to_owned()];
    let mut files = 0;
    while let Some(path) = waiting.pop() {
        for entry in std::fs::read_dir(path).unwrap() {
            let path = entry.unwrap().path();
            let mode = std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
            assert_eq!(mode, if path.is_dir() { 0o700 } else { 0o600 }, "{}", path.display());
            files += usize::from(path.is_file());
            if path.is_dir() {
                waiting.push(path);
            }
        }
    }
    assert_eq!(files, 5, "rows, keys, one segment, the master key, the mark of a copy");
}

#[test]
fn a_backup_of_a_later_format_is_refused() {
    let test = TestStore::new();
    let bytes = backup(&test, ALL);
    let (_, head) = Reader::open(&bytes[..]).unwrap();
    let mut later = Vec::new();
    let head = Head { store_format: FORMAT + 1, ..head };
    crate::store::archive::Writer::begin(&mut later, &head).unwrap().end().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let refused = restored_into(directory.path(), &later, None);
    assert!(matches!(refused, Err(RestoreError::NewerStore { found }) if found == FORMAT + 1));
}

#[test]
fn a_failing_output_fails_the_backup_and_the_store_continues() {
    struct Full;
    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let test = TestStore::new();
    let account = test.account(QuotaLimits::default());
    assert!(test.store().back_up(START, ALL, &[], Full).is_err());
    let domain = test.domain(account, "example.org", Stream::Marketing, DomainStatus::Verified);
    let of = Sender::of(&test, account, domain);
    assert!(!matches!(test.commit(of.message("a@example.net")), Err(OpError::Failed(_))));
}
