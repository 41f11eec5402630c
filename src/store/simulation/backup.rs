//! Tests that a backup of a store with failing reads is complete or reports the failure, and that the process ends
//! after an I/O error of the database.

use super::canaries::accept;
use super::process::{Clock, OtherWriters, Process};
use super::start::make;
use crate::base::time::Timestamp;
use crate::store::backup::{BackupError, Extent};
use crate::store::disk::simulated::{FsyncMode, SimulatedDisk};
use crate::store::limits::Limits;
use crate::store::read::Read as _;
use crate::store::schema::{Table, meta};

#[test]
fn a_backup_is_complete_or_reports_a_read_error_which_ends_the_process_if_the_database_then_refuses_reads() {
    let disk = SimulatedDisk::new(1, FsyncMode::Honored);
    let setup = make(&disk, 100);
    let clock = Clock::new(setup.now);
    // Without a cache every page is read.
    let limits = Limits { cache_bytes: 0, ..Limits::default() };
    let start = || Process::start_with(&disk, &clock, 2, limits.clone(), OtherWriters::Announced).unwrap();
    let mut process = start();
    let bucket = Timestamp::from_millis((setup.now.as_millis() / 3_600_000 + 2) * 3_600_000);
    let mut answers: Vec<_> = (0..6_u8).map(|number| accept(&process, &setup, bucket, &[number; 200]).1).collect();
    answers.iter_mut().for_each(|answer| assert!(answer.poll().is_none()));
    process.settle();
    process.checkpoint_now();
    let extent = Extent { content: true, master_key: true };
    let back_up = |process: &Process| -> Result<Vec<u8>, BackupError> {
        let mut bytes = Vec::new();
        process.store.back_up(clock.now(), extent, &["postrider.toml"], &mut bytes)?;
        Ok(bytes)
    };
    let mut whole = back_up(&process).unwrap();
    let (mut failed, mut ended) = (0, 0);
    for after in 0..2000 {
        disk.plan_read_error(after);
        let backup = back_up(&process);
        let is_over = disk.planned() > 0;
        disk.forgive_reads();
        match backup {
            Ok(bytes) => assert!(bytes == whole, "read {after}: the backup differs"),
            Err(_) => failed += 1,
        }
        if is_over {
            break;
        }
        // After an error of its file the database refuses everything, so the process must end.
        let is_refused =
            process.store.snapshot().and_then(|found| found.has(Table::Meta, meta::MASTER_KEY_PROOF)).is_err();
        assert!(
            !is_refused || process.has_failed(),
            "read {after}: the database refuses reads, and no error is reported"
        );
        if process.has_failed() {
            ended += 1;
            drop(process);
            disk.restart();
            process = start();
            whole = back_up(&process).unwrap();
        }
    }
    assert!(failed > 10 && ended > 10, "{failed} backups failed, {ended} ended the process");
    drop(answers);
}
