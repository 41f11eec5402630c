//! One run: mail through a store whose disk fails, drawn from a seed. After each end of the process the store is opened
//! again, which may fail too, and judged. At the end faults stop, and all work must complete.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::history::{History, Known};
use super::invariants::{Finding, Invariant, judge};
use super::process::{AnswerWaker, Clock, DIRECTORY, Process, Waiting};
use super::start::{Setup, set_up};
use super::work::{Intent, Outcome};
use crate::base::id::MessageId;
use crate::base::time::Timestamp;
use crate::machine::transfer::Status;
use crate::store::disk::simulated::rng::Rng;
use crate::store::disk::simulated::{FsyncMode, Loss, SimulatedDisk};
use crate::store::failpoint::Point;
use crate::store::op::sweep::ContentDestroyed;
use crate::store::read::Read;
use crate::store::row::message::TransferRow;
use crate::store::schema;
use crate::store::timer::TimerKind;

/// Maximum number of starts with planned faults before one is undisturbed.
const STARTS_MAX: u64 = 4;
/// Rounds of work after which all work must be complete.
const ROUNDS_MAX: usize = 12;

/// An operation without an answer yet.
pub(super) struct Ticket {
    pub(super) intent: Intent,
    pub(super) waiting: Waiting<Outcome>,
    pub(super) ear: Arc<AnswerWaker>,
}

/// A run in progress.
pub(super) struct Run {
    pub(super) rng: Rng,
    pub(super) disk: SimulatedDisk,
    pub(super) clock: Clock,
    pub(super) setup: Setup,
    pub(super) history: History,
    // The answers are dropped before the process: an outstanding answer holds its store.
    pub(super) tickets: Vec<Ticket>,
    pub(super) process: Option<Process>,
    /// Whether some messages are accepted together with others.
    pub(super) has_groups: bool,
    /// Whether the current answers include the removal of a suppression.
    pub(super) is_lifting: bool,
    pub(super) findings: Vec<Finding>,
    /// Log for people who examine a finding.
    log: Vec<String>,
    pub(super) seed: u64,
    starts: u64,
    pub(super) faults_left: u64,
    /// Point at which the next process panics.
    pub(super) panic: Option<(Point, u64)>,
    /// Number of reads after which one fails in the next process.
    pub(super) read_error: Option<u64>,
}

/// Result of a run.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RunResult {
    pub(super) findings: Vec<Finding>,
    pub(super) log: Vec<String>,
    /// Number of disk operations, and their digest.
    pub(super) operations: u64,
    pub(super) trace: u64,
    /// Number of times that the process ended early.
    pub(super) crashes: u64,
    /// Number of acknowledged messages.
    pub(super) accepted: u64,
}

/// Runs `seed` on a simulated disk with this mode.
pub(super) fn run_seed(seed: u64, fsync_mode: FsyncMode) -> RunResult {
    let mut run = Run::new(seed, fsync_mode);
    run.faults_left = 1 + run.rng.below(3);
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run.run())) {
        let what =
            panic.downcast_ref::<String>().cloned().or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).into()));
        run.find(Invariant::Opens, format!("a panic: {}", what.unwrap_or_default()));
    }
    let accepted = run.history.messages.values().filter(|submitted| submitted.accepted == Known::Yes).count() as u64;
    let result = RunResult {
        findings: std::mem::take(&mut run.findings),
        log: std::mem::take(&mut run.log),
        operations: run.disk.operations(),
        trace: run.disk.trace(),
        crashes: run.starts.saturating_sub(2),
        accepted,
    };
    // Drops the rest of the process.
    drop(catch_unwind(AssertUnwindSafe(|| drop(run))));
    result
}

impl Run {
    /// Creates the run of `seed`, without planned faults.
    pub(super) fn new(seed: u64, fsync_mode: FsyncMode) -> Self {
        let (disk, setup) = set_up(seed, fsync_mode);
        Self {
            rng: Rng::new(seed ^ 0x5eed),
            clock: Clock::new(setup.now),
            disk,
            setup,
            history: History { account: setup.account, ..History::default() },
            tickets: Vec::new(),
            process: None,
            has_groups: seed >= super::groups::FIRST_SEED,
            is_lifting: false,
            findings: Vec::new(),
            log: Vec::new(),
            seed,
            starts: 0,
            faults_left: 0,
            panic: None,
            read_error: None,
        }
    }

    pub(super) fn find(&mut self, invariant: Invariant, what: String) {
        self.say(|_| "new findings".to_owned());
        self.findings.push(Finding { invariant, what });
    }

    pub(super) fn say(&mut self, what: impl FnOnce(&Self) -> String) {
        let line = format!("{:>4}: {}", self.disk.operations(), what(self));
        self.log.push(line);
    }

    fn run(&mut self) {
        self.start();
        for _ in 0..4 + self.rng.below(8) {
            if !self.findings.is_empty() {
                return;
            }
            self.turn();
        }
        self.finish();
    }

    pub(super) fn turn(&mut self) {
        for _ in 0..1 + self.rng.below(4) {
            self.submit();
        }
        for _ in 0..1 + self.rng.below(3) {
            if self.rng.coin() { self.append() } else { self.write() }
        }
        match self.rng.below(16) {
            0 => self.end(None),
            1..4 => self.sweep(),
            4..8 if self.tickets.is_empty() => self.pass(),
            8..11 => {
                self.say(|_| "the writer makes a checkpoint".to_owned());
                self.process().checkpoint_now();
            }
            11 if self.is_damaging() => self.rot(),
            _ => {}
        }
        self.expect_end_after_failed_sync();
        self.recover_if_over();
    }

    pub(super) fn process(&mut self) -> &mut Process {
        self.process.as_mut().expect("a process runs")
    }

    /// Runs the appender. A body that it could not write is never named.
    fn append(&mut self) {
        self.say(|_| "the appender's turn".to_owned());
        self.process().append();
        self.collect(Known::No);
    }

    /// Runs the writer. Operations that fail now belong to the failed commit.
    fn write(&mut self) {
        let most = if self.rng.coin() { usize::MAX } else { self.rng.index(3) + 1 };
        let had_failed = self.process().has_failed();
        self.say(|_| format!("the writer's turn, {most} at most"));
        self.process().write(most);
        self.collect(if had_failed { Known::No } else { Known::InDoubt });
    }

    fn collect(&mut self, failed_means: Known) {
        self.is_lifting = self.tickets.iter().any(|ticket| matches!(ticket.intent, Intent::Unsuppress(_)));
        let mut answers = Vec::new();
        for mut ticket in std::mem::take(&mut self.tickets) {
            match ticket.waiting.poll_by(&ticket.ear.clone().into()) {
                None => self.tickets.push(ticket),
                Some(outcome) => {
                    if outcome == Outcome::Done && ticket.ear.answered_after_end() {
                        self.find(Invariant::DurableAccept, format!("{:?} was answered without power", ticket.intent));
                    }
                    answers.push((ticket.intent, outcome));
                }
            }
        }
        self.learn(answers, failed_means);
    }

    /// Processes answers that arrived together.
    pub(super) fn learn(&mut self, mut answers: Vec<(Intent, Outcome)>, failed_means: Known) {
        let mut is_answered = false;
        // A message may overtake an earlier one, whose answer then depends on it.
        answers.sort_by_key(|(_, outcome)| *outcome != Outcome::Done);
        for (intent, outcome) in answers {
            if outcome == Outcome::Failed {
                self.say(|_| format!("{intent:?} failed: {failed_means:?}"));
                self.history.is_in_doubt |= failed_means == Known::InDoubt;
                self.failed(&intent, failed_means);
            } else {
                self.say(|_| format!("{intent:?}: {outcome:?}"));
                is_answered |= self.answered(&intent, outcome);
            }
        }
        if is_answered && self.process().has_failed() {
            // The changes are durable, but not visible before the next start.
            self.history.is_in_doubt = true;
            self.history.is_promised = true;
            let (disk, store) = (self.disk.clone(), self.process().store.clone());
            let is_shown = || store.snapshot().map_or(true, |snapshot| self.history.is_shown(&snapshot));
            if !disk.undisturbed(is_shown) {
                self.find(Invariant::DurableAccept, "an answered operation is not visible".to_owned());
            }
        } else if is_answered && !self.disk.is_off() {
            let (disk, store) = (self.disk.clone(), self.process().store.clone());
            disk.undisturbed(|| {
                if let Ok(snapshot) = store.snapshot() {
                    self.history.look(&snapshot);
                }
            });
            self.history.note_state(disk.last_write(&Path::new(DIRECTORY).join("journal")));
        }
    }

    /// Advances time, mostly by little; rarely sets it back.
    fn pass(&mut self) {
        let minutes = [0, 1, 20, 60, 150, 24 * 60][self.rng.index(6)];
        let time = Duration::from_secs(60 * minutes + self.rng.below(5));
        if self.rng.below(24) == 0 {
            self.history.clock_went_back = true;
            self.clock.set(self.clock.now() - Duration::from_secs(600));
        } else {
            self.clock.set(self.clock.now() + time);
            self.say(|_| format!("{time:?} elapse"));
        }
    }

    /// Does the engine's work at a bucket's deadline: destroys the bytes first, then the timer.
    pub(super) fn sweep(&mut self) {
        let (now, store) = (self.clock.now(), self.process().store.clone());
        let Ok(over) = store.content().buckets_until(now) else { return };
        for bucket in over {
            self.say(|_| format!("destroying {bucket:?}"));
            self.history.destroyed.entry(bucket).or_insert(Known::InDoubt);
            if store.content().destroy(bucket).is_err() {
                return;
            }
            self.history.destroyed.insert(bucket, Known::Yes);
        }
        let timers = super::work::timers(&store);
        for timer in timers.into_iter().filter(|timer| timer.kind == TimerKind::Content && timer.due <= now) {
            self.ask(Intent::Housekeeping, ContentDestroyed { bucket: timer.due });
        }
    }

    fn recover_if_over(&mut self) {
        if self.disk.is_off() {
            self.end(None);
        } else if self.process().has_failed() {
            // The operator starts the process again, on the same machine or after a power cut.
            let loss = self.rng.coin().then_some(Loss::Some);
            self.end(loss);
        }
    }

    /// Ends the process in its current state, with a power cut if `loss` is given, and starts it again.
    fn end(&mut self, loss: Option<Loss>) {
        if let Some(loss) = loss {
            self.disk.turn_off(loss);
        }
        self.say(|run| format!("the process ends, the machine is off: {}, {loss:?}", run.disk.is_off()));
        let is_orderly = loss.is_none() && !self.disk.is_off() && self.rng.coin();
        for ticket in std::mem::take(&mut self.tickets) {
            // The operation never reached a commit: a failed commit would have been answered.
            self.failed(&ticket.intent, Known::No);
        }
        if is_orderly {
            self.say(|_| "it closes its store".to_owned());
            self.process().checkpoint_now();
            self.process = None;
        }
        self.disk.restart();
        self.process = None;
        self.start();
    }

    /// Starts the process, repeatedly if faults are planned, and judges its state.
    pub(super) fn start(&mut self) {
        for attempt in 0..=STARTS_MAX {
            self.disk.restart();
            let is_planned = attempt < STARTS_MAX && self.plan(attempt);
            self.starts += 1;
            match Process::start(&self.disk, &self.clock, Rng::new(self.seed ^ self.starts << 32).next()) {
                Ok(process) => {
                    self.disk.forgive_reads();
                    if let Some((point, passes)) = self.panic.take() {
                        process.store.health().tripwire.set(point, passes);
                    }
                    if let Some(after) = self.read_error.take() {
                        self.disk.plan_read_error(after);
                    }
                    self.process = Some(process);
                    self.say(|_| "started".to_owned());
                    self.expect_end_after_failed_sync();
                }
                Err(error) if is_planned && self.was_disturbed() => {
                    self.say(|_| format!("did not start: {error}"));
                    continue;
                }
                Err(error) => return self.find(Invariant::Opens, error.to_string()),
            }
            let Some(process) = &self.process else { return };
            let (disk, store, now) = (self.disk.clone(), process.store.clone(), self.clock.now());
            self.history.is_damaged = disk.is_damaged();
            let mut found = disk.undisturbed(|| {
                if self.history.rows.is_empty() {
                    self.history.look(&store.snapshot().unwrap());
                }
                let found = judge(&self.history, &store, now);
                self.history.resolve(&store.snapshot().unwrap());
                found
            });
            self.findings.append(&mut found);
            return;
        }
    }

    /// Ends all faults: all work must complete, and survive one more power cut.
    fn finish(&mut self) {
        self.disk.forgive();
        self.faults_left = 0;
        self.process().store.health().tripwire.clear();
        self.recover_if_over();
        for _ in 0..ROUNDS_MAX {
            if !self.findings.is_empty() || !self.settle_all() {
                break;
            }
        }
        self.sweep();
        self.answer_all();
        let snapshot = self.process().store.snapshot().unwrap();
        let waiting: Vec<(MessageId, Status)> = (self.history.messages.iter())
            .filter_map(|(id, submitted)| {
                let row: TransferRow = snapshot.row(&schema::message(submitted.account, *id)).unwrap()?;
                row.due.is_some().then(|| (*id, row.state.status()))
            })
            .collect();
        drop(snapshot);
        if !waiting.is_empty() && self.findings.is_empty() {
            self.find(Invariant::Liveness, format!("{waiting:?} still wait"));
        }
        self.end(Some(Loss::Everything));
    }

    /// Serves every waiting timer. Returns whether there was one.
    fn settle_all(&mut self) -> bool {
        self.answer_all();
        let leased = BTreeSet::new();
        let store = self.process().store.clone();
        let timers = super::work::waiting(&store, &leased);
        for timer in &timers {
            self.serve(timer);
        }
        self.answer_all();
        !timers.is_empty()
    }

    fn answer_all(&mut self) {
        for _ in 0..3 {
            self.process().settle();
            self.collect(Known::InDoubt);
            if self.tickets.is_empty() {
                break;
            }
        }
        if !self.tickets.is_empty() {
            self.find(Invariant::Liveness, format!("{} operations are never answered", self.tickets.len()));
        }
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }
}
