//! Damage between two runs of a process: one of the store's files no longer contains the written data. A bit is
//! flipped, or a write is misdirected or lost.
//!
//! Damage never causes a panic. A start that refuses names the file. A start that succeeds serves every row and body as
//! written, or an error instead. Damage of one file leaves the others' content intact. A check finds everything that a
//! start refuses or can't serve.

mod hit;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use hit::{Hit, Target};

use super::canaries::accept;
use super::history::{Rows, rows};
use super::process::{Clock, DIRECTORY, OtherWriters, Process, Waiting};
use super::run::Run;
use super::variable;
use crate::base::id::{MessageId, Ulid};
use crate::store::Store;
use crate::store::check::check_on;
use crate::store::content::Unreadable;
use crate::store::disk::Disk;
use crate::store::disk::simulated::rng::Rng;
use crate::store::disk::simulated::{FsyncMode, Loss, SimulatedDisk};
use crate::store::limits::Limits;
use crate::store::op::settle_transfer::{SettleTransfer, TransferEnd};
use crate::store::open::{OnJournalDamage, OpenError};
use crate::store::read::{Order, Read, after_prefix};
use crate::store::row::message::MessageRow;
use crate::store::schema::{Table, meta};
use crate::store::snapshot::Snapshot;

/// Runs of the everyday tests; `POSTRIDER_DAMAGED` sets another number.
const RUNS: u64 = 600;

/// Result of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    /// The start refused.
    Refused,
    /// Some rows or bodies can't be read.
    Partly,
    /// The last commit is treated as interrupted by a crash.
    TakenForTorn,
    /// Everything is served.
    Whole,
}

/// A message's row, and its body if it can be read.
type Body = (MessageRow, Option<Vec<u8>>);

/// All data that a store serves.
pub(super) struct Served {
    rows: BTreeMap<(&'static str, Vec<u8>), Vec<u8>>,
    bodies: BTreeMap<MessageId, Body>,
    state: Rows,
}

impl Served {
    /// Returns whether the other serves the same data.
    pub(super) fn is(&self, other: &Self) -> bool {
        let bodies =
            |served: &Self| -> Vec<_> { served.bodies.iter().map(|(id, (_, body))| (*id, body.clone())).collect() };
        self.rows == other.rows && bodies(self) == bodies(other)
    }

    pub(super) fn of(store: &Store) -> Self {
        let snapshot = store.snapshot().unwrap();
        let mut all = BTreeMap::new();
        for table in Table::ALL {
            let mut each = |key: &[u8], value: &[u8]| {
                all.insert((table.name(), key.to_vec()), value.to_vec());
                Ok(ControlFlow::Continue(()))
            };
            snapshot.scan(*table, &[], &after_prefix(&[]), Order::Ascending, &mut each).unwrap();
        }
        // Each start chooses another random epoch.
        all.remove(&(Table::Meta.name(), meta::JOURNAL.to_vec()));
        let bodies = snapshot.rows::<MessageRow>(&[], usize::MAX).unwrap().into_iter().map(|(key, row)| {
            let id = MessageId(Ulid(*key.last_chunk().unwrap()));
            let body = store.content().read(row.place, id).ok();
            (id, (row, body))
        });
        Self { rows: all, bodies: bodies.collect(), state: rows(&snapshot) }
    }
}

/// One run.
struct Damaged {
    seed: u64,
    rng: Rng,
    run: Run,
    /// Rows and bodies served before the damage.
    expected: Served,
}

impl Damaged {
    /// Creates a store that worked for a while, and was then killed, closed, or stopped by a power cut.
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0xda4a);
        // Seeds of this form have no other damage.
        let mut run = Run::new(seed * 8 + 1, FsyncMode::Honored);
        run.start();
        run.history.note_state(None);
        (0..3 + rng.below(8)).for_each(|_| run.turn());
        assert_eq!(run.findings, []);
        match rng.below(4) {
            0 => run.process().checkpoint_now(),
            1 => run.disk.turn_off(Loss::Everything),
            _ => {}
        }
        run.disk.restart();
        run.process = None;
        let expected = Served::of(&start(&run.disk.copy(seed, FsyncMode::Honored), &run.clock, seed).unwrap().store);
        Self { seed, rng, run, expected }
    }

    /// Judges a start after the damage.
    fn judge(&self, hit: &Hit) -> End {
        let (disk, clock) = (&self.run.disk, &self.run.clock);
        let report = check_on(Arc::new(disk.copy(self.seed, FsyncMode::Honored)), Path::new(DIRECTORY), clock.now());
        let is_found = report.as_ref().map_or(true, |report| report.failed > 0);
        let end = match start(disk, clock, self.seed) {
            Ok(mut process) => {
                let end = self.judge_served(hit, &process.store, OnJournalDamage::Refuse);
                self.resume(&mut process);
                end
            }
            Err(error) => {
                self.judge_refused(hit, &error);
                End::Refused
            }
        };
        let needs_check = match end {
            End::Refused | End::Partly => true,
            End::TakenForTorn => false,
            // A damaged key is read from its mirror.
            End::Whole => matches!(hit.target, Target::Keys | Target::Mirror) && !hit.is_like_a_crash,
        };
        assert!(is_found || !needs_check, "{end:?}, and the check reports no failure");
        end
    }

    fn judge_refused(&self, hit: &Hit, error: &OpenError) {
        let name = hit.path.file_name().unwrap().to_str().unwrap();
        let disk = &self.run.disk;
        disk.restart();
        match (hit.target, error) {
            (Target::Database, OpenError::Damaged { .. }) => assert!(error.to_string().contains(name), "{error}"),
            (Target::Journal, OpenError::JournalDamaged(_)) => {
                let damaged = disk.read(&hit.path).unwrap();
                let accepted = start_with(disk, &self.run.clock, self.seed, OnJournalDamage::Accept);
                let process =
                    accepted.unwrap_or_else(|error| panic!("the loss was accepted, but the start failed: {error}"));
                self.judge_served(hit, &process.store, OnJournalDamage::Accept);
                let kept = disk.list(Path::new(DIRECTORY)).unwrap().into_iter().map(|entry| entry.name);
                let kept: Vec<_> = kept.filter(|name| name.starts_with("journal.damaged-")).collect();
                assert_eq!(kept.len(), 1, "the damaged journal is kept");
                assert_eq!(disk.read(&Path::new(DIRECTORY).join(&kept[0])).unwrap(), damaged);
            }
            (Target::Database | Target::Journal | Target::Keys | Target::Mirror | Target::Segment, error) => {
                panic!("it does not start: {error}");
            }
        }
    }

    /// Asserts that all data is served as before, or that reading it fails if that is allowed.
    fn judge_served(&self, hit: &Hit, store: &Store, on_damage: OnJournalDamage) -> End {
        let snapshot = store.snapshot().unwrap();
        match hit.target {
            Target::Database => {
                let failed_rows = self.judge_rows(hit, &snapshot);
                let failed_bodies = self.judge_bodies(store, |_| true);
                if failed_rows + failed_bodies > 0 { End::Partly } else { End::Whole }
            }
            Target::Segment => {
                assert_eq!(self.judge_rows(hit, &snapshot), 0);
                let is_hit = |row: &MessageRow| {
                    let place = row.place;
                    let (begin, end) = (place.offset, place.offset + u64::from(place.length));
                    let file = format!("content/{:013}/{:06}.segment", place.bucket.as_millis(), place.segment);
                    hit.path.ends_with(file) && begin < hit.range.end as u64 && (hit.range.start as u64) < end
                };
                if self.judge_bodies(store, is_hit) > 0 { End::Partly } else { End::Whole }
            }
            Target::Keys | Target::Mirror => {
                assert_eq!((self.judge_rows(hit, &snapshot), self.judge_bodies(store, |_| false)), (0, 0));
                End::Whole
            }
            Target::Journal => self.judge_journal(hit, store, &snapshot, on_damage),
        }
    }

    /// Asserts that all records before the damage apply. Later ones may be dropped, but only damaged ones may be
    /// dropped silently.
    fn judge_journal(&self, hit: &Hit, store: &Store, snapshot: &Snapshot, on_damage: OnJournalDamage) -> End {
        let mut state = rows(snapshot);
        let states = &self.run.history.states;
        // A start with a damaged journal records there that the queue is on hold.
        let without_facts = |state: &Rows| {
            let mut state = state.clone();
            state.remove(Table::Meta.name());
            state
        };
        if on_damage == OnJournalDamage::Refuse && state == self.expected.state {
            assert_eq!(self.judge_bodies(store, |_| false), 0);
            return End::Whole;
        }
        state.remove(Table::Meta.name());
        let found = states.iter().rposition(|(before, _)| without_facts(before) == state);
        let found = found.unwrap_or_else(|| panic!("the rows match no earlier state"));
        for (number, (_, written)) in states.iter().enumerate().skip(found + 1) {
            let record = written.as_ref().map_or(0..0, |written| written.range.clone());
            assert!(hit.range.start < record.end, "state {number} was recorded in {record:?}, before the damage");
            let is_touched = record.start < hit.range.end;
            assert!(
                is_touched || on_damage == OnJournalDamage::Accept,
                "{record:?} is dropped although it is not damaged"
            );
        }
        End::TakenForTorn
    }

    /// Counts the rows that can't be read. Asserts that no other row has changed, and that there is no new row.
    fn judge_rows(&self, hit: &Hit, snapshot: &Snapshot) -> usize {
        let mut failed = 0;
        for ((name, key), value) in &self.expected.rows {
            let table = *Table::ALL.iter().find(|table| table.name() == *name).unwrap();
            match snapshot.get(table, key) {
                Ok(Some(found)) => assert!(found == *value, "a row of {name} has another value"),
                // If a whole sector is damaged, the row's key and checksum may both be gone.
                Ok(None) if hit.target == Target::Database && hit.range.len() > 1 => failed += 1,
                Ok(None) => panic!("a row of {name} counts as absent"),
                Err(error) if error.is_of_row() => failed += 1,
                Err(error) => panic!("a row of {name} is a fatal error: {error}"),
            }
        }
        for table in Table::ALL {
            let mut each = |key: &[u8], _: &[u8]| {
                let is_known = self.expected.rows.contains_key(&(table.name(), key.to_vec()))
                    || (*table, key) == (Table::Meta, meta::JOURNAL);
                assert!(is_known, "a row of {} is listed but was never written", table.name());
                Ok(ControlFlow::Continue(()))
            };
            if let Err(error) = snapshot.scan_sound(*table, &[], &after_prefix(&[]), Order::Ascending, &mut each) {
                assert!(error.is_of_row(), "the list of {} is a fatal error: {error}", table.name());
                failed += 1;
            }
        }
        failed
    }

    /// Counts the bodies that can't be read. Asserts that no other body differs, and that `may_fail` allows the
    /// failures.
    fn judge_bodies(&self, store: &Store, may_fail: impl Fn(&MessageRow) -> bool) -> usize {
        let mut failed = 0;
        for (id, (row, expected)) in &self.expected.bodies {
            match (store.content().read(row.place, *id), expected) {
                (Ok(body), Some(expected)) => assert!(body == *expected, "message {id} has another body"),
                (Ok(_), None) => panic!("message {id} has a body although it was destroyed"),
                (Err(_), None) => {}
                (Err(Unreadable::Gone), Some(_)) => panic!("the body of message {id} counts as destroyed"),
                (Err(Unreadable::Failed(error)), Some(_)) => {
                    assert!(may_fail(row), "message {id} has no body although it is undamaged: {error}");
                    failed += 1;
                }
            }
        }
        failed
    }

    /// Continues to work. Operations that meet the damage may fail, but must not panic.
    fn resume(&self, process: &mut Process) {
        let now = self.run.clock.now();
        let bucket = self.run.setup.now + std::time::Duration::from_secs(7200);
        let mut answers: Vec<Waiting<bool>> =
            (0_u8..3).map(|number| accept(process, &self.run.setup, bucket, &[number; 300]).1).collect();
        for timer in super::work::timers(&process.store).into_iter().take(6) {
            let store = process.store.clone();
            let settle = SettleTransfer {
                account: timer.account,
                message: MessageId(timer.id),
                due: timer.due,
                end: TransferEnd::Delivered,
                facts: Default::default(),
                provider: None,
                random: [0; 4],
                transcript: None,
                others: Vec::new(),
            };
            answers.push(Waiting::new(async move { store.commit(settle).await.is_ok() }));
        }
        for answer in &mut answers {
            answer.poll();
        }
        process.settle();
        process.checkpoint_now();
        drop(
            process
                .store
                .content()
                .buckets_until(now)
                .map(|over| over.into_iter().try_for_each(|bucket| process.store.content().destroy(bucket))),
        );
    }
}

fn start(disk: &SimulatedDisk, clock: &Clock, seed: u64) -> Result<Process, OpenError> {
    start_with(disk, clock, seed, OnJournalDamage::Refuse)
}

fn start_with(
    disk: &SimulatedDisk,
    clock: &Clock,
    seed: u64,
    on_journal_damage: OnJournalDamage,
) -> Result<Process, OpenError> {
    Process::start_damaged(disk, clock, seed, Limits::default(), OtherWriters::None, on_journal_damage)
}

/// Runs one seed; `None` if it finds nothing to damage.
fn run(seed: u64) -> Option<(Target, End)> {
    let mut damaged = Damaged::new(seed);
    let hit = Hit::draw(&damaged.run.disk, &mut damaged.rng)?;
    let judged = catch_unwind(AssertUnwindSafe(|| damaged.judge(&hit)));
    let end = judged.unwrap_or_else(|panic| {
        let said =
            panic.downcast_ref::<String>().cloned().or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).into()));
        panic!("seed {seed}, {hit:?}: {}", said.unwrap_or_default())
    });
    Some((hit.target, end))
}

#[test]
fn damage_between_two_runs_is_reported_and_never_served() {
    let mut ends: BTreeMap<(Target, End), u64> = BTreeMap::new();
    if let Some(seed) = variable("POSTRIDER_DAMAGED_SEED") {
        run(seed);
        return;
    }
    let mut found = BTreeMap::new();
    for seed in 0..variable("POSTRIDER_DAMAGED").unwrap_or(RUNS) {
        match catch_unwind(|| run(seed)) {
            Ok(Some(end)) => *ends.entry(end).or_default() += 1,
            Ok(None) => {}
            Err(panic) => {
                let said = panic.downcast_ref::<String>().cloned().unwrap_or_default();
                found.insert(seed, said);
            }
        }
    }
    assert!(found.is_empty(), "{found:#?}, {} of {ends:?}", found.len());
    for expected in [
        (Target::Journal, End::Refused),
        (Target::Journal, End::TakenForTorn),
        (Target::Keys, End::Whole),
        (Target::Mirror, End::Whole),
        (Target::Database, End::Refused),
        (Target::Database, End::Partly),
        (Target::Segment, End::Partly),
    ] {
        assert!(ends.contains_key(&expected), "{expected:?} never happens: {ends:?}");
    }
}
