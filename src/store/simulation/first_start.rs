//! Tests that a first start, interrupted at any disk operation, does not prevent the next one.

use super::process::{Clock, Process};
use crate::store::disk::simulated::{Fault, FsyncMode, Loss, SimulatedDisk};
use crate::store::testing::START;

fn disk(seed: u64) -> SimulatedDisk {
    SimulatedDisk::new(seed, FsyncMode::Honored)
}

#[test]
fn an_interrupted_first_start_does_not_prevent_the_next_one() {
    let clock = Clock::new(START);
    let whole = disk(0);
    drop(Process::start(&whole, &clock, 1).unwrap());
    let faults = [
        Fault::Off(Loss::Everything),
        Fault::Off(Loss::Nothing),
        Fault::Off(Loss::Some),
        Fault::Off(Loss::Some),
        Fault::Error,
        Fault::FullAtSync,
        Fault::Full(3),
    ];
    for at in 0..whole.operations() {
        for (number, fault) in (0..).zip(faults) {
            let disk = disk(at * 10 + number);
            disk.plan(at, fault);
            drop(Process::start(&disk, &clock, 2));
            disk.restart();
            let again = Process::start(&disk, &clock, 3).map(drop);
            assert!(again.is_ok(), "operation {at}, {fault:?}: {:?}", again.err());
        }
    }
}
