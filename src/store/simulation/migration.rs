//! Tests that a migration, interrupted at any disk operation, is completed by the next start with every row and body
//! unchanged.

use std::path::Path;

use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition, TableHandle};

use super::canaries::accept;
use super::damage::Served;
use super::process::{Clock, DIRECTORY, OtherWriters, Process};
use super::start::make;
use crate::base::time::Timestamp;
use crate::store::checksum;
use crate::store::disk::Disk;
use crate::store::disk::simulated::{Fault, FsyncMode, Loss, SimulatedDisk};
use crate::store::limits::Limits;
use crate::store::open::OpenError;
use crate::store::schema::{Table, meta};

/// Every disk operation of this step is disturbed.
const STEP: usize = 3;

fn start(disk: &SimulatedDisk, clock: &Clock, seed: u64) -> Result<Process, OpenError> {
    Process::start_with(disk, clock, seed, Limits::default(), OtherWriters::Announced)
}

/// Returns a closed store with some messages, and everything that it serves.
fn store() -> (SimulatedDisk, Clock, Served) {
    let disk = SimulatedDisk::new(1, FsyncMode::Honored);
    let setup = make(&disk, 100);
    let clock = Clock::new(setup.now);
    let mut process = start(&disk, &clock, 2).unwrap();
    let bucket = Timestamp::from_millis((setup.now.as_millis() / 3_600_000 + 2) * 3_600_000);
    let mut answers: Vec<_> = (0..6_u8).map(|number| accept(&process, &setup, bucket, &[number; 200]).1).collect();
    answers.iter_mut().for_each(|answer| assert!(answer.poll().is_none()));
    process.settle();
    answers.iter_mut().for_each(|answer| assert_eq!(answer.poll(), Some(true)));
    process.checkpoint_now();
    let served = Served::of(&process.store);
    drop(answers);
    drop(process);
    disk.restart();
    (disk, clock, served)
}

/// Removes the checksums from a store, because format 1 had none.
fn make_format_1(disk: &SimulatedDisk) {
    let path = Path::new(DIRECTORY).join("postrider.redb");
    let database = disk.open_database(&path, &Database::builder()).unwrap();
    let transaction = database.begin_write().unwrap();
    let before = database.begin_read().unwrap();
    for name in before.list_tables().unwrap().map(|table| table.name().to_owned()) {
        let definition = TableDefinition::<&[u8], &[u8]>::new(&name);
        let mut table = transaction.open_table(definition).unwrap();
        for row in before.open_table(definition).unwrap().iter().unwrap() {
            let (key, stored) = row.unwrap();
            table.insert(key.value(), checksum::open(&name, key.value(), stored.value()).unwrap()).unwrap();
        }
    }
    let format = 1_u32.to_be_bytes();
    transaction.open_table(Table::Meta.definition()).unwrap().insert(meta::FORMAT, format.as_slice()).unwrap();
    transaction.commit().unwrap();
    drop((before, database));
    disk.turn_off(Loss::Nothing);
    disk.restart();
}

#[test]
fn an_interrupted_migration_is_completed_by_the_next_start() {
    let (disk, clock, expected) = store();
    make_format_1(&disk);
    let whole = disk.copy(2, FsyncMode::Honored);
    let process = start(&whole, &clock, 3).unwrap();
    assert!(Served::of(&process.store).is(&expected));
    drop(process);
    whole.restart();
    assert!(whole.exists(&Path::new(DIRECTORY).join("format-1.backup")), "it was migrated");
    let faults = [
        Fault::Off(Loss::Everything),
        Fault::Off(Loss::Some),
        Fault::Off(Loss::Nothing),
        Fault::Error,
        Fault::FullAtSync,
        Fault::Full(3),
    ];
    for at in (0..whole.operations()).step_by(STEP) {
        for (number, fault) in (0..).zip(faults) {
            let disk = disk.copy(at * 10 + number, FsyncMode::Honored);
            disk.plan(at, fault);
            let when = format!("operation {at}, {fault:?}");
            if let Ok(process) = start(&disk, &clock, 4) {
                assert!(disk.undisturbed(|| Served::of(&process.store).is(&expected)), "{when}: right after");
            }
            disk.restart();
            let process = start(&disk, &clock, 5).unwrap_or_else(|error| panic!("{when}: {error}"));
            assert!(Served::of(&process.store).is(&expected), "{when}: at the next start");
        }
    }
}
