//! The world around the service: what outlives a process. The disk, the clocks, the tenants and their submissions, and
//! the record of all that peers saw, which the invariants are judged by.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::clock::MachineClocks;
use super::plan::{Fault, Plan};
use crate::base::id::{AccountId, EndpointId, MessageId};
use crate::store::turns::{Chance, Machine};

/// A tenant: an account with its key and its webhook endpoint.
#[derive(Debug, Clone)]
pub(super) struct Tenant {
    pub(super) account: AccountId,
    pub(super) key: String,
    pub(super) endpoint: EndpointId,
}

/// The interface that a submission comes in by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Interface {
    Http,
    Smtp,
}

/// State of a submission, as its client knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Progress {
    /// It is sent at this elapsed time.
    Waiting(Duration),
    /// A request is under way.
    InFlight,
    /// The service answered that it has it.
    Accepted(Vec<MessageId>),
    /// The service refused it for good.
    Refused(u16),
    /// The client does not know, and does not ask again.
    Unknown,
}

/// Something that a client wants sent.
#[derive(Debug, Clone)]
pub(super) struct Submission {
    pub(super) tenant: usize,
    pub(super) interface: Interface,
    pub(super) idempotency_key: Option<String>,
    pub(super) recipients: Vec<String>,
    pub(super) subject: String,
    pub(super) bytes: usize,
    /// Requests that were begun.
    pub(super) tries: usize,
    pub(super) progress: Progress,
    /// When a tenant knew its messages to be canceled, by message.
    pub(super) canceled: BTreeMap<MessageId, Duration>,
}

/// A message that a mail server took.
#[derive(Debug, Clone)]
pub(super) struct Taken {
    pub(super) message_id: String,
    pub(super) subject: String,
    /// When its MAIL came.
    pub(super) mail_at: Duration,
    /// The process that sent it.
    pub(super) life: u32,
    /// Whether the 250 was sent.
    pub(super) is_answered: bool,
}

/// A MAIL and RCPT that came to a mail server.
#[derive(Debug, Clone)]
pub(super) struct Offered {
    pub(super) recipient: String,
    pub(super) mail_at: Duration,
}

/// A webhook request that a receiver saw.
#[derive(Debug, Clone)]
pub(super) struct Posted {
    pub(super) tenant: usize,
    pub(super) event: String,
    pub(super) body: Vec<u8>,
    /// Whether a 2xx was sent.
    pub(super) is_acknowledged: bool,
}

/// End of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// It was stopped in order.
    Stopped,
    /// It was killed.
    Killed,
    /// The machine lost power, or killed it in mid-operation.
    Off,
    /// Its store failed, so it ended.
    Failed,
    /// The run is over.
    Finished,
}

/// The record of a run.
pub(super) struct State {
    chance: Chance,
    pub(super) log: Vec<String>,
    pub(super) tenants: Vec<Tenant>,
    pub(super) submissions: Vec<Submission>,
    pub(super) taken: Vec<Taken>,
    pub(super) offered: Vec<Offered>,
    pub(super) posted: Vec<Posted>,
    /// When a recipient was known to be suppressed.
    pub(super) suppressed: BTreeMap<String, Duration>,
    /// Ends of the processes, in order.
    pub(super) lives: Vec<End>,
    /// Actions that were done.
    pub(super) actions_done: usize,
    /// Whether faults may strike.
    pub(super) is_hostile: bool,
    pub(super) findings: Vec<String>,
}

/// The world of one run.
pub(super) struct World {
    pub(super) plan: Plan,
    pub(super) clocks: MachineClocks,
    pub(super) machine: Machine,
    state: Mutex<State>,
}

impl World {
    pub(super) fn new(plan: Plan) -> Self {
        let seed = plan.seed;
        let state = State {
            chance: Chance::new(seed ^ 0x7e57_0f0f),
            log: Vec::new(),
            tenants: Vec::new(),
            submissions: Vec::new(),
            taken: Vec::new(),
            offered: Vec::new(),
            posted: Vec::new(),
            suppressed: BTreeMap::new(),
            lives: Vec::new(),
            actions_done: 0,
            is_hostile: false,
            findings: Vec::new(),
        };
        let world = Self { plan, clocks: MachineClocks::new(), machine: Machine::new(seed), state: Mutex::new(state) };
        world.draw_submissions();
        world
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The tenants. Never hold two guards of [`World::state`] in one statement.
    pub(super) fn tenants(&self) -> Vec<Tenant> {
        self.state().tenants.clone()
    }

    /// The submissions.
    pub(super) fn submissions(&self) -> Vec<Submission> {
        self.state().submissions.clone()
    }

    /// A random number below `limit`.
    pub(super) fn below(&self, limit: u64) -> u64 {
        self.state().chance.below(limit)
    }

    /// A random time from `from` to `to` milliseconds.
    pub(super) fn millis(&self, from: u64, to: u64) -> Duration {
        Duration::from_millis(from + self.below(to - from + 1))
    }

    /// A random element.
    pub(super) fn pick<T: Copy>(&self, from: &[T]) -> T {
        from[usize::try_from(self.below(from.len() as u64)).unwrap()]
    }

    /// Whether a fault strikes, of a thousand chances in so many.
    pub(super) fn strikes(&self, fault: Fault, per_mille: u64) -> bool {
        let is_hostile = self.state().is_hostile;
        is_hostile && self.plan.faults.contains(&fault) && self.below(1000) < per_mille
    }

    /// Adds a line to the log, whose digest is the run's.
    pub(super) fn note(&self, line: impl AsRef<str>) {
        let at = self.clocks.elapsed().as_millis();
        self.state().log.push(format!("{at:>10} {}", line.as_ref()));
    }

    /// Records that an invariant is broken.
    pub(super) fn find(&self, finding: String) {
        self.note(format!("FOUND {finding}"));
        self.state().findings.push(finding);
    }

    /// The number of the process that runs.
    pub(super) fn life(&self) -> u32 {
        u32::try_from(self.state().lives.len()).unwrap()
    }

    /// A digest of the whole run: every line of the log, and every operation of the disk.
    pub(super) fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.state().log.hash(&mut hasher);
        self.machine.trace().hash(&mut hasher);
        hasher.finish()
    }

    fn draw_submissions(&self) {
        let span = u64::try_from(self.plan.window.as_millis()).unwrap();
        for number in 0..self.plan.submissions {
            let tenant = usize::try_from(self.below(self.plan.tenants as u64)).unwrap();
            let interface = if self.below(4) == 0 { Interface::Smtp } else { Interface::Http };
            let count = if interface == Interface::Smtp { 1 + self.below(3) } else { 1 };
            let site = |_| {
                let site = self.below(self.plan.sites as u64);
                // Few recipients, so that suppressions meet messages.
                let user = self.below(6);
                format!("t{tenant}-u{user}@r{site}.test")
            };
            let mut recipients: Vec<String> = (0..count).map(site).collect();
            recipients.sort();
            recipients.dedup();
            let is_idempotent = self.below(4) != 0;
            let submission = Submission {
                tenant,
                interface,
                idempotency_key: is_idempotent.then(|| format!("key-{number}")),
                recipients,
                subject: format!("subject-{number}"),
                bytes: self.pick(&[10, 200, 3_000, 40_000]),
                tries: 0,
                progress: Progress::Waiting(Duration::from_millis(self.below(span))),
                canceled: BTreeMap::new(),
            };
            self.state().submissions.push(submission);
        }
    }
}
