//! The world around the service, which outlives a process: the disk, the clocks, the tenants and their submissions, and
//! the record of what peers saw, which the invariants check.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::clock::MachineClocks;
use super::isolation::Transfers;
use super::plan::{FaultClass, Plan};
use super::replica::{Promotion, Takeover};
use super::reports::{self, Report};
use crate::base::id::{AccountId, EndpointId, MessageId};
use crate::engine::memory_bucket::MemoryStore;
use crate::store::master_key::Raw;
use crate::store::single_threaded::{Machine, Rng};

/// A tenant: an account with its key and its webhook endpoint.
#[derive(Debug, Clone)]
pub(super) struct Tenant {
    pub(super) account: AccountId,
    pub(super) key: String,
    pub(super) endpoint: EndpointId,
}

/// The interface of a submission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Interface {
    Http,
    Smtp,
    Resend,
    Postmark,
}

/// State of a submission from its client's view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Progress {
    /// The client sends the submission at this elapsed time.
    Waiting(Duration),
    /// A request is in flight.
    InFlight,
    /// The service accepted the submission.
    Accepted(Vec<MessageId>),
    /// The service accepted it, and its successor may lack it.
    Lost,
    /// The service refused the submission permanently.
    Refused(u16),
    /// The result is unknown, and the client does not try again.
    Unknown,
}

/// A message that a client wants to send.
#[derive(Debug, Clone)]
pub(super) struct Submission {
    pub(super) tenant: usize,
    pub(super) interface: Interface,
    pub(super) idempotency_key: Option<String>,
    pub(super) recipients: Vec<String>,
    pub(super) subject: String,
    pub(super) bytes: usize,
    /// Number of requests started.
    pub(super) tries: usize,
    pub(super) progress: Progress,
    /// Elapsed time at which the client learned that the message was accepted.
    pub(super) accepted_at: Duration,
    /// Times at which a tenant knew that a message was canceled.
    pub(super) canceled: BTreeMap<MessageId, Duration>,
}

/// A message that a mail server accepted.
#[derive(Debug, Clone)]
pub(super) struct Taken {
    pub(super) message_id: String,
    pub(super) subject: String,
    /// Time of its MAIL command.
    pub(super) mail_at: Duration,
    /// Time of its final dot.
    pub(super) at: Duration,
    /// The process that sent the message.
    pub(super) life: u32,
    /// Whether the 250 was sent.
    pub(super) is_answered: bool,
}

/// A bounce that a mail server sends for a message that it accepted before.
#[derive(Debug, Clone)]
pub(super) struct Bounce {
    pub(super) message_id: String,
    pub(super) recipient: String,
    pub(super) return_path: String,
    /// The header section of the message.
    pub(super) headers: String,
    /// Elapsed time of the next try.
    pub(super) at: Duration,
    /// Last answer of the service to the bounce: 250, or a permanent refusal.
    pub(super) answer: Option<u16>,
}

/// A MAIL and RCPT that a mail server received.
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
    /// The process that sent the request.
    pub(super) life: u32,
    pub(super) at: Duration,
    /// Whether a 2xx was sent.
    pub(super) is_acknowledged: bool,
}

/// End of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// A normal stop.
    Stopped,
    /// A kill.
    Killed,
    /// The machine lost power, or killed it during an operation.
    Off,
    /// A failure of the store.
    Failed,
    /// The machine is lost, or stays off.
    Lost,
    /// Another machine claimed the log.
    Deposed,
    /// The run is over.
    Finished,
}

/// A machine that may serve.
pub(super) struct Node {
    machine: Machine,
    /// Number of disks that the machine has lost.
    pub(super) lost_disks: u64,
    /// Elapsed time since which the machine can't reach the bucket.
    pub(super) cut_at: Option<Duration>,
    /// Whether the machine's store served, and another machine claimed the log since.
    pub(super) is_deposed: bool,
}

/// The record of a run.
pub(super) struct State {
    rng: Rng,
    pub(super) log: Vec<String>,
    pub(super) tenants: Vec<Tenant>,
    pub(super) submissions: Vec<Submission>,
    pub(super) taken: Vec<Taken>,
    pub(super) offered: Vec<Offered>,
    pub(super) bounces: Vec<Bounce>,
    pub(super) reports: Vec<Report>,
    pub(super) posted: Vec<Posted>,
    /// Times at which a recipient was known to be suppressed.
    pub(super) suppressed: BTreeMap<String, Duration>,
    /// Ends of the processes, in order.
    pub(super) lives: Vec<End>,
    /// Number of actions done.
    pub(super) actions_done: usize,
    /// The machines; the second one serves only in runs with a standby.
    pub(super) nodes: [Node; 2],
    /// The machine that serves.
    pub(super) main: usize,
    /// The promotion by which the next process begins.
    pub(super) promotion: Option<Promotion>,
    /// Elapsed time at which a standby began to claim the log.
    pub(super) claiming_at: Option<Duration>,
    /// Takeovers, by the process whose log was claimed.
    pub(super) takeovers: BTreeMap<u32, Takeover>,
    /// Master key of the store, in runs with a replica.
    pub(super) master_key: Option<Raw>,
    /// Elapsed time of the last failed call to the bucket.
    pub(super) bucket_failed_at: Option<Duration>,
    /// Elapsed time at which the current process began to serve.
    pub(super) served_at: Duration,
    /// Periods of elapsed time in which a process served.
    pub(super) served: Vec<(Duration, Duration)>,
    /// The work of the sites' servers, in runs with hostile sites.
    pub(super) transfers: Transfers,
    /// Whether faults may occur.
    pub(super) is_hostile: bool,
    pub(super) findings: Vec<String>,
}

impl Node {
    fn new(seed: u64) -> Self {
        Self { machine: Machine::new(seed), lost_disks: 0, cut_at: None, is_deposed: false }
    }

    /// Replaces the machine's disk by an empty one.
    pub(super) fn lose_disk(&mut self, seed: u64) {
        let lost_disks = self.lost_disks + 1;
        *self = Self { lost_disks, ..Self::new(seed ^ (lost_disks << 32)) };
    }
}

/// The world of one run.
pub(super) struct World {
    pub(super) plan: Plan,
    pub(super) clocks: MachineClocks,
    /// The objects of the replica's bucket.
    pub(super) objects: MemoryStore,
    /// Is notified of every new bounce.
    pub(super) has_bounce: Notify,
    /// Is notified when an operator promotes the standby.
    pub(super) promotion: Notify,
    state: Mutex<State>,
}

impl World {
    pub(super) fn new(plan: Plan) -> Self {
        let seed = plan.seed;
        let state = State {
            rng: Rng::new(seed ^ 0x7e57_0f0f),
            log: Vec::new(),
            tenants: Vec::new(),
            submissions: Vec::new(),
            taken: Vec::new(),
            offered: Vec::new(),
            bounces: Vec::new(),
            reports: reports::draw(&plan),
            posted: Vec::new(),
            suppressed: BTreeMap::new(),
            lives: Vec::new(),
            actions_done: 0,
            nodes: [seed, seed ^ 0x57a9_db1e].map(Node::new),
            main: 0,
            promotion: None,
            claiming_at: None,
            takeovers: BTreeMap::new(),
            master_key: None,
            bucket_failed_at: None,
            served_at: Duration::ZERO,
            served: Vec::new(),
            transfers: Transfers::default(),
            is_hostile: false,
            findings: Vec::new(),
        };
        let (clocks, objects) = (MachineClocks::new(), MemoryStore::default());
        let (has_bounce, promotion) = (Notify::new(), Notify::new());
        let world = Self { plan, clocks, objects, has_bounce, promotion, state: Mutex::new(state) };
        world.draw_submissions();
        world
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the disk of a machine.
    pub(super) fn machine(&self, node: usize) -> Machine {
        self.state().nodes[node].machine.clone()
    }

    /// Returns the disk of the machine that serves.
    pub(super) fn main_machine(&self) -> Machine {
        let state = self.state();
        state.nodes[state.main].machine.clone()
    }

    /// Returns the tenants. Never hold two guards of [`World::state`] in one statement.
    pub(super) fn tenants(&self) -> Vec<Tenant> {
        self.state().tenants.clone()
    }

    /// Returns the submissions.
    pub(super) fn submissions(&self) -> Vec<Submission> {
        self.state().submissions.clone()
    }

    /// Returns a random number below `limit`.
    pub(super) fn below(&self, limit: u64) -> u64 {
        self.state().rng.below(limit)
    }

    /// Returns a random time between `from` and `to` milliseconds.
    pub(super) fn millis(&self, from: u64, to: u64) -> Duration {
        Duration::from_millis(from + self.below(to - from + 1))
    }

    /// Returns a random element.
    pub(super) fn pick<T: Copy>(&self, from: &[T]) -> T {
        from[usize::try_from(self.below(from.len() as u64)).unwrap()]
    }

    /// Returns whether a fault occurs, with a probability of `per_mille`.
    pub(super) fn strikes(&self, fault: FaultClass, per_mille: u64) -> bool {
        let is_hostile = self.state().is_hostile;
        is_hostile && self.plan.faults.contains(&fault) && self.below(1000) < per_mille
    }

    /// Returns whether a fault occurs at the site of the host or domain `name`. Prompt sites have none.
    pub(super) fn strikes_at(&self, name: &str, fault: FaultClass, per_mille: u64) -> bool {
        let hostility = self.plan.hostility.as_ref();
        self.strikes(fault, hostility.map_or(per_mille, |hostility| hostility.per_mille(name, fault, per_mille)))
    }

    /// Adds a line to the log, which is part of the run's digest.
    pub(super) fn note(&self, line: impl AsRef<str>) {
        let at = self.clocks.elapsed().as_millis();
        self.state().log.push(format!("{at:>10} {}", line.as_ref()));
    }

    /// Records a violated invariant.
    pub(super) fn find(&self, finding: String) {
        self.note(format!("FOUND {finding}"));
        self.state().findings.push(finding);
    }

    /// Returns the number of the running process.
    pub(super) fn life(&self) -> u32 {
        u32::try_from(self.state().lives.len()).unwrap()
    }

    /// Returns a digest of the whole run: every line of the log, and every operation of the disk.
    pub(super) fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.state().log.hash(&mut hasher);
        for node in [0, 1] {
            self.machine(node).trace().hash(&mut hasher);
        }
        hasher.finish()
    }

    fn draw_submissions(&self) {
        let span = u64::try_from(self.plan.window.as_millis()).unwrap();
        let at = std::iter::repeat_n(None, self.plan.submissions);
        for (number, at) in at.chain(self.plan.traffic.iter().copied().map(Some)).enumerate() {
            let (tenants, sites, times) = match &self.plan.hostility {
                Some(hostility) => hostility.draw_limits(self),
                None => (self.plan.tenants as u64, 0..self.plan.sites as u64, 0..span),
            };
            let tenant = usize::try_from(self.below(tenants)).unwrap();
            let interface =
                self.pick(&[Interface::Smtp, Interface::Http, Interface::Http, Interface::Resend, Interface::Postmark]);
            let count = if interface == Interface::Smtp { 1 + self.below(3) } else { 1 };
            let site = |_| {
                let site = sites.start + self.below(sites.end - sites.start);
                // Few recipients, so that suppressions affect messages.
                let user = self.below(6);
                format!("t{tenant}-u{user}@r{site}.test")
            };
            let mut recipients: Vec<String> = (0..count).map(site).collect();
            recipients.sort();
            recipients.dedup();
            // Postmark has no such keys.
            let is_idempotent = self.below(4) != 0 && interface != Interface::Postmark;
            let submission = Submission {
                tenant,
                interface,
                idempotency_key: is_idempotent.then(|| format!("key-{number}")),
                recipients,
                subject: format!("subject-{number}"),
                bytes: self.pick(&[10, 200, 3_000, 40_000]),
                tries: 0,
                progress: Progress::Waiting(at.unwrap_or_else(|| self.millis(times.start, times.end - 1))),
                accepted_at: Duration::ZERO,
                canceled: BTreeMap::new(),
            };
            self.state().submissions.push(submission);
        }
    }
}
