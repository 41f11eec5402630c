//! Erasure in the journal: after the end of its bucket, a body inlined in the journal is nowhere on the disk. This also
//! holds if power is cut or a sync fails during the erasure.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::canaries::{Pieces, accept, accept_row, content_of, sweep_in};
use super::process::{Clock, DIRECTORY, OtherWriters, Process, Waiting};
use super::start::{Setup, make};
use super::variable;
use crate::base::entropy::{Entropy, SeededEntropy};
use crate::base::time::Timestamp;
use crate::store::content::compression;
use crate::store::disk::Disk;
use crate::store::disk::simulated::rng::Rng;
use crate::store::disk::simulated::{Fault, FsyncMode, Loss, SimulatedDisk};
use crate::store::limits::Limits;
use crate::store::open::OpenError;
use crate::store::testing::message_row;

/// Number of bodies in each bucket; together they fit into one record.
const BODIES: usize = 4;
/// Size of a key slot, and the offset of the sealed key in it.
const SLOT: usize = 128;
const SEALED_KEY: std::ops::Range<usize> = 20..80;
const HOUR: Duration = Duration::from_secs(3600);

/// Starts a process that inlines bodies in its journal, and makes them wait for the appender's turn.
fn start(disk: &SimulatedDisk, clock: &Clock, seed: u64) -> Result<Process, OpenError> {
    Process::start_with(disk, clock, seed, Limits::default(), OtherWriters::Announced)
}

/// A running process whose journal contains the bodies of two buckets.
struct Carrying {
    disk: SimulatedDisk,
    clock: Clock,
    process: Process,
    /// Eight-byte patterns of the first bucket's bodies, sealed and open, and of their key.
    pieces: Pieces,
    journal: PathBuf,
}

impl Carrying {
    fn new(seed: u64) -> Self {
        let disk = SimulatedDisk::new(seed, FsyncMode::Honored);
        let setup = make(&disk, 4 * BODIES);
        let clock = Clock::new(setup.now);
        let mut process = start(&disk, &clock, 2).unwrap();
        let rng = SeededEntropy::new(7);
        let first = Timestamp::from_millis((setup.now.as_millis() / 3_600_000 + 1) * 3_600_000);
        let mut pieces = Pieces::default();
        let mut accepting = Vec::new();
        for bucket in [first, first + HOUR] {
            for _ in 0..BODIES {
                let mut noise = [0; 200];
                rng.fill(&mut noise);
                if bucket == first {
                    pieces.add(&noise);
                }
                accepting.push(accept(&process, &setup, bucket, &noise).1);
            }
        }
        accepting.iter_mut().for_each(|waiting| assert!(waiting.poll().is_none()));
        process.settle();
        accepting.iter_mut().for_each(|waiting| assert_eq!(waiting.poll(), Some(true)));
        let of_first = |path: &Path| path.starts_with(format!("content/{:013}", first.as_millis()));
        content_of(&disk).iter().filter(|(path, _)| of_first(path)).for_each(|(_, bytes)| pieces.add(bytes));
        let keys = disk.read(&Path::new(DIRECTORY).join("content/keys")).unwrap();
        let is_of_first = |slot: &&[u8]| slot[8..16] == first.as_millis().to_be_bytes();
        keys.chunks_exact(SLOT).filter(is_of_first).for_each(|slot| pieces.add(&slot[SEALED_KEY]));
        clock.set(first);
        let journal = Path::new(DIRECTORY).join("journal");
        assert!(pieces.found_on(&disk).contains(&journal), "the journal contains the bodies");
        Self { disk, clock, process, pieces, journal }
    }

    fn is_erased(&self, when: &str) {
        let found = self.pieces.found_on(&self.disk);
        assert!(!found.contains(&self.journal), "{when}: the journal still has a body");
        assert_eq!(found, Vec::<PathBuf>::new(), "{when}");
    }
}

#[test]
fn a_running_process_erases_inlined_bodies_at_their_deadline() {
    let mut carrying = Carrying::new(1);
    assert!(sweep_in(&mut carrying.process, &carrying.clock));
    carrying.is_erased("after an undisturbed sweep");
    carrying.disk.turn_off(Loss::Everything);
    carrying.is_erased("after a power cut");
}

#[test]
fn disturbed_erasure_leaves_no_inlined_body_in_any_file() {
    let mut whole = Carrying::new(1);
    let before = whole.disk.operations();
    assert!(sweep_in(&mut whole.process, &whole.clock));
    let operations = whole.disk.operations() - before;
    let faults = [
        Fault::Off(Loss::Some),
        Fault::Off(Loss::Everything),
        Fault::Off(Loss::Nothing),
        Fault::Error,
        Fault::FullAtSync,
    ];
    for at in 0..operations {
        for fault in faults {
            let mut carrying = Carrying::new(1 + at);
            carrying.disk.plan(at, fault);
            sweep_in(&mut carrying.process, &carrying.clock);
            let when = format!("{fault:?} at operation {at}");
            if !carrying.process.has_failed() && !carrying.disk.is_off() {
                assert_eq!(carrying.disk.failed_syncs(), 0, "{when}: a failed sync ends the process");
            }
            carrying.disk.restart();
            assert!(
                start(&carrying.disk, &carrying.clock, 3).is_ok_and(|mut next| sweep_in(&mut next, &carrying.clock)),
                "{when}"
            );
            carrying.is_erased(&when);
            carrying.disk.turn_off(Loss::Everything);
            carrying.is_erased(&format!("{when}, and a power cut"));
        }
    }
}

#[test]
fn the_next_start_erases_an_expired_body_in_a_dead_process_journal() {
    let mut carrying = Carrying::new(1);
    carrying.disk.restart();
    carrying.process = start(&carrying.disk, &carrying.clock, 3).unwrap();
    let found = carrying.pieces.found_on(&carrying.disk);
    assert!(!found.contains(&carrying.journal), "the journal still has a body");
}

/// A message whose recipient, subject and body are recognisable anywhere.
struct Canary {
    bucket: Timestamp,
    pieces: Pieces,
}

/// Random work in a store that inlines bodies in its journal. After every step, the journal is searched for expired
/// messages, while it holds records of others.
struct DirtyJournal {
    disk: SimulatedDisk,
    clock: Clock,
    setup: Setup,
    rng: Rng,
    process: Process,
    /// Outstanding answers.
    answers: Vec<Waiting<bool>>,
    canaries: Vec<Canary>,
    journal: PathBuf,
    /// Number of searches during which the journal had records.
    looks: u64,
}

impl DirtyJournal {
    fn new(seed: u64) -> Self {
        let disk = SimulatedDisk::new(seed, FsyncMode::Honored);
        let setup = make(&disk, 1000);
        let clock = Clock::new(setup.now);
        let process = Process::start(&disk, &clock, seed).unwrap();
        let journal = Path::new(DIRECTORY).join("journal");
        let (rng, answers, canaries) = (Rng::new(seed), Vec::new(), Vec::new());
        Self { disk, clock, setup, rng, process, answers, canaries, journal, looks: 0 }
    }

    fn accept(&mut self) {
        let word = |rng: &mut Rng| format!("{:016x}{:016x}", rng.next(), rng.next());
        let now = self.clock.now();
        let hours = self.rng.below(2) + 1;
        let bucket = Timestamp::from_millis((now.as_millis() / 3_600_000 + hours) * 3_600_000);
        let (name, subject) = (word(&mut self.rng), word(&mut self.rng));
        let body = format!("{}\r\n", word(&mut self.rng)).repeat(1 + self.rng.index(4)).into_bytes();
        let mut pieces = Pieces::default();
        [name.as_bytes(), subject.as_bytes(), &body].into_iter().for_each(|bytes| pieces.add(bytes));
        pieces.add(&compression::compress(&body)[12..]);
        let mut message = message_row(self.setup.domain, &format!("{name}@example.net"), now);
        (message.subject, message.content_expires_at) = (Some(subject), bucket);
        let mut answer = accept_row(&self.process, self.setup.account, bucket, &body, message).1;
        answer.poll();
        self.answers.push(answer);
        self.canaries.push(Canary { bucket, pieces });
    }

    /// Ends the process, with or without a power cut, and starts another.
    fn restart(&mut self) {
        match self.rng.below(3) {
            0 => self.disk.turn_off(Loss::Some),
            1 => self.disk.turn_off(Loss::Everything),
            _ => {}
        }
        self.disk.restart();
        self.answers.clear();
        self.process = Process::start(&self.disk, &self.clock, self.rng.next()).unwrap();
    }

    fn step(&mut self) {
        match self.rng.below(8) {
            0..3 => (0..1 + self.rng.below(3)).for_each(|_| self.accept()),
            3 => self.process.append(),
            4 => self.process.write(1 + self.rng.index(3)),
            5 => self.process.settle(),
            6 => self.restart(),
            _ => {
                self.clock.set(self.clock.now() + HOUR / 2);
                self.process.settle();
                assert!(sweep_in(&mut self.process, &self.clock));
            }
        }
    }

    /// Asserts that the journal contains no messages that had expired by `swept`.
    fn look(&mut self, swept: Timestamp, when: &str) {
        let over = self.canaries.iter().filter(|canary| canary.bucket <= swept);
        for canary in over {
            self.looks += u64::from(self.process.journal_is_dirty());
            let found = canary.pieces.found_on(&self.disk);
            assert!(!found.contains(&self.journal), "{when}: the journal contains a message whose content has expired");
        }
    }
}

#[test]
fn the_journal_never_contains_expired_messages() {
    let mut looks = 0;
    for seed in 0..variable("POSTRIDER_JOURNALS").unwrap_or(60) {
        let mut run = DirtyJournal::new(seed);
        let mut swept = Timestamp::ZERO;
        for step in 0..24 {
            let before = run.clock.now();
            run.step();
            // Only a sweep advances the clock.
            if run.clock.now() > before {
                swept = run.clock.now();
            }
            run.look(swept, &format!("seed {seed}, step {step}"));
        }
        looks += run.looks;
    }
    assert!(looks > 40, "few searches found records in the journal: {looks}");
}
