//! Tests that a backup of a store with failing reads is complete or reports the failure.

use super::canaries::accept;
use super::process::{Clock, OtherWriters, Process};
use super::start::make;
use crate::base::time::Timestamp;
use crate::store::backup::{BackupError, Extent};
use crate::store::disk::simulated::{FsyncMode, SimulatedDisk};
use crate::store::limits::Limits;

#[test]
fn a_backup_reports_a_read_error_or_is_complete() {
    let disk = SimulatedDisk::new(1, FsyncMode::Honored);
    let setup = make(&disk, 100);
    let clock = Clock::new(setup.now);
    // Without a cache every page is read.
    let limits = Limits { cache_bytes: 0, ..Limits::default() };
    let mut process = Process::start_with(&disk, &clock, 2, limits, OtherWriters::Announced).unwrap();
    let bucket = Timestamp::from_millis((setup.now.as_millis() / 3_600_000 + 2) * 3_600_000);
    let mut answers: Vec<_> = (0..6_u8).map(|number| accept(&process, &setup, bucket, &[number; 200]).1).collect();
    answers.iter_mut().for_each(|answer| assert!(answer.poll().is_none()));
    process.settle();
    process.checkpoint_now();
    let back_up = || -> Result<Vec<u8>, BackupError> {
        let mut bytes = Vec::new();
        let extent = Extent { content: true, master_key: true };
        process.store.back_up(clock.now(), extent, &["postrider.toml"], &mut bytes)?;
        Ok(bytes)
    };
    let whole = back_up().unwrap();
    let (mut failed, mut succeeded) = (0, 0);
    for after in 0..2000 {
        disk.plan_read_error(after);
        match back_up() {
            Ok(bytes) => {
                assert!(bytes == whole, "read {after}: the backup differs");
                succeeded += 1;
            }
            Err(_) => failed += 1,
        }
        let is_over = disk.planned() > 0;
        disk.forgive_reads();
        if is_over {
            break;
        }
    }
    assert!(failed > 0, "{failed} failed, {succeeded} succeeded");
    drop(answers);
}
