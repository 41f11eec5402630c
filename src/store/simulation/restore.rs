//! Tests of restores on a disk that fails at each of their operations in turn: a finished restore survives a power cut,
//! and an unfinished one is never opened as a store.

use std::path::Path;
use std::sync::Arc;

use super::canaries::accept;
use super::process::{Clock, DIRECTORY, OtherWriters, Process};
use super::start::{Setup, make};
use crate::base::id::MessageId;
use crate::base::time::Timestamp;
use crate::store::backup::Extent;
use crate::store::disk::Disk as _;
use crate::store::disk::simulated::{Fault, FsyncMode, Loss, SimulatedDisk};
use crate::store::limits::Limits;
use crate::store::open::OpenError;
use crate::store::read::Read as _;
use crate::store::restore::{RestoreError, restore_on};
use crate::store::row::message::MessageRow;

/// Number of messages in the backup.
const MESSAGES: u8 = 4;

/// A backup, and the messages in it.
struct Backup {
    setup: Setup,
    bytes: Vec<u8>,
    messages: Vec<MessageId>,
}

fn back_up() -> Backup {
    let disk = SimulatedDisk::new(1, FsyncMode::Honored);
    let setup = make(&disk, 100);
    let clock = Clock::new(setup.now);
    let mut process = Process::start_with(&disk, &clock, 2, Limits::default(), OtherWriters::Announced).unwrap();
    let bucket = Timestamp::from_millis((setup.now.as_millis() / 3_600_000 + 2) * 3_600_000);
    let (messages, mut answers): (Vec<_>, Vec<_>) =
        (0..MESSAGES).map(|number| accept(&process, &setup, bucket, &[number; 200])).unzip();
    answers.iter_mut().for_each(|answer| assert!(answer.poll().is_none()));
    process.settle();
    process.checkpoint_now();
    let mut bytes = Vec::new();
    let extent = Extent { content: true, master_key: true };
    process.store.back_up(clock.now(), extent, &[], &mut bytes).unwrap();
    Backup { setup, bytes, messages }
}

impl Backup {
    fn restore(&self, disk: &SimulatedDisk) -> Result<(), RestoreError> {
        let directory = Path::new(DIRECTORY);
        restore_on(Arc::new(disk.clone()), &self.bytes[..], directory, None, &[], &mut |_, _| {}).map(|_| ())
    }

    /// Opens the directory. Returns the error, or `None` if it is a store with every message and body.
    fn open(&self, disk: &SimulatedDisk) -> Option<OpenError> {
        let clock = Clock::new(self.setup.now);
        let process = match Process::start_with(disk, &clock, 3, Limits::default(), OtherWriters::None) {
            Ok(process) => process,
            Err(error) => return Some(error),
        };
        let snapshot = process.store.snapshot().unwrap();
        for (number, id) in (0..MESSAGES).zip(&self.messages) {
            let key = [self.setup.account.as_bytes().as_slice(), id.as_bytes()].concat();
            let row: MessageRow = snapshot.row(&key).unwrap().unwrap_or_else(|| panic!("message {number} is lost"));
            let body = process.store.content().read(row.place, *id).unwrap();
            assert!(body == [number; 200], "body {number} differs");
        }
        None
    }
}

fn empty_disk(seed: u64) -> SimulatedDisk {
    let disk = SimulatedDisk::new(seed, FsyncMode::Honored);
    disk.create_directory(Path::new(DIRECTORY)).unwrap();
    Path::new(DIRECTORY).ancestors().for_each(|directory| disk.sync_directory(directory).unwrap());
    disk
}

#[test]
fn a_finished_restore_survives_a_power_cut() {
    let backup = back_up();
    for (seed, loss) in (0..).zip([Loss::Everything, Loss::Some, Loss::Some, Loss::Some, Loss::Some]) {
        let disk = empty_disk(seed);
        backup.restore(&disk).unwrap();
        disk.turn_off(loss);
        disk.restart();
        assert!(backup.open(&disk).is_none());
    }
}

#[test]
fn an_interrupted_restore_is_whole_or_is_not_opened() {
    let backup = back_up();
    let (mut finished, mut refused) = (0, 0);
    for after in 0.. {
        let mut is_over = false;
        for (seed, loss) in (0..).zip([Loss::Nothing, Loss::Everything, Loss::Some, Loss::Some]) {
            let disk = empty_disk(1000 * seed + after);
            disk.plan(after, Fault::Off(loss));
            let restored = backup.restore(&disk);
            is_over = !disk.is_off();
            disk.restart();
            let names: Vec<_> = disk.list(Path::new(DIRECTORY)).unwrap().into_iter().map(|entry| entry.name).collect();
            // Nothing is left, as before the restore.
            if names.is_empty() {
                assert!(restored.is_err(), "operation {after}, {loss:?}: the restored store is gone");
                continue;
            }
            match backup.open(&disk) {
                None => finished += 1,
                Some(OpenError::HalfRestored) => refused += 1,
                Some(error) => panic!("operation {after}, {loss:?}, with {names:?}: {error}"),
            }
        }
        if is_over {
            break;
        }
    }
    assert!(finished > 0 && refused > 0, "{finished} finished, {refused} refused");
}

#[test]
fn a_failed_restore_leaves_an_empty_directory() {
    let backup = back_up();
    let mut failed = 0;
    for after in 0.. {
        let disk = empty_disk(after);
        disk.plan(after, if after % 2 == 0 { Fault::Error } else { Fault::Full(1) });
        let restored = backup.restore(&disk);
        if disk.planned() > 0 {
            break;
        }
        if restored.is_ok() {
            // The operation was not needed.
            continue;
        }
        failed += 1;
        disk.forgive();
        assert_eq!(disk.list(Path::new(DIRECTORY)).unwrap(), [], "operation {after}");
        backup.restore(&disk).unwrap();
        assert!(backup.open(&disk).is_none(), "operation {after}");
    }
    assert!(failed > 10, "{failed} failed");
}
