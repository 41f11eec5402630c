//! The faults of a run: their times, drawn from its seed, and their required immediate effects.

use std::path::Path;

use super::invariants::Invariant;
use super::run::Run;
use crate::store::disk::simulated::{Fault, Loss};
use crate::store::failpoint::Point;

/// One of this many runs has a disk that damages bodies. Some accepted bodies may be lost, but no damaged body is
/// served.
const DAMAGED: u64 = 8;

impl Run {
    /// Returns whether the disk of this run damages bodies.
    pub(super) const fn is_damaging(&self) -> bool {
        self.seed.is_multiple_of(DAMAGED)
    }

    /// Flips one bit of a segment, which damages one or more bodies.
    pub(super) fn rot(&mut self) {
        let is_segment = |path: &Path| path.extension().is_some_and(|extension| extension == "segment");
        let path = self.disk.rot(is_segment);
        self.say(|_| format!("a bit is flipped in {path:?}"));
    }

    /// Checks that the process ends after a failed sync, because the state of the disk is then unknown.
    pub(super) fn expect_end_after_failed_sync(&mut self) {
        if self.disk.failed_syncs() > 0 && !self.disk.is_off() && !self.process().has_failed() {
            self.find(Invariant::FailedSync, "a sync failed, but the process continues".to_owned());
        }
    }

    /// Plans the next fault, if one is left: most during the work, some during the start.
    pub(super) fn plan(&mut self, attempt: u64) -> bool {
        if self.faults_left == 0 {
            return false;
        }
        self.faults_left -= 1;
        let reach = if attempt > 0 || self.rng.below(4) == 0 { 12 } else { 90 };
        let after = self.rng.below(reach);
        let fault = match self.rng.below(16) {
            0..4 => Fault::Off(Loss::Everything),
            4..7 => Fault::Off(Loss::Some),
            7 => Fault::Off(Loss::Nothing),
            8..11 => Fault::Error,
            11 => Fault::FullAtSync,
            12 => Fault::Full(self.rng.below(20)),
            13 if self.is_damaging() => Fault::Misdirected,
            13 | 14 => {
                let point = Point::ALL[self.rng.index(Point::ALL.len())];
                self.panic = Some((point, self.rng.below(4)));
                self.say(|run| format!("a panic at {:?}", run.panic));
                return false;
            }
            15 if self.rng.coin() => {
                self.read_error = Some(self.rng.below(300));
                self.say(|run| format!("a read error after {:?} more of the work", run.read_error));
                return false;
            }
            _ => {
                self.disk.plan_read_error(after);
                self.say(|_| format!("after {after} more reads: an error"));
                return true;
            }
        };
        self.disk.plan(after, fault);
        self.say(|_| format!("after {after} more: {fault:?}"));
        true
    }

    /// Returns whether a planned fault occurred.
    pub(super) fn was_disturbed(&self) -> bool {
        self.disk.is_off() || self.disk.planned() == 0
    }
}
