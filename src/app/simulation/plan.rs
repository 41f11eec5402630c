//! The plan of a run, drawn from its seed: sizes, enabled classes of faults, and the times of actions.

use std::collections::BTreeSet;
use std::time::Duration;

use super::isolation::Hostility;
use super::replica::{Failover, ReplicaPlan};
use crate::store::single_threaded::{DiskFault, Rng};

/// A class of faults. Each seed enables some of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FaultClass {
    /// Lookups fail, time out or deny that a domain exists.
    Names,
    /// Mail servers refuse connections.
    Connect,
    /// Mail servers answer 4xx and 421.
    Transient,
    /// Mail servers answer 5xx.
    Permanent,
    /// Mail servers stop answering.
    Silence,
    /// Mail servers close the connection, before or after they accepted a message.
    Close,
    /// Webhook receivers refuse, time out and close.
    Webhooks,
    /// Clients stop waiting for an answer.
    Clients,
    /// Tenants cancel messages and suppress addresses.
    Tenants,
    /// The wall clock is set.
    Clock,
    /// The service is stopped and started.
    Stop,
    /// The process is killed.
    Kill,
    /// The machine loses power.
    Power,
    /// Operations of the disk fail.
    Disk,
    /// The disk is full for a while.
    Full,
    /// Mail servers send bounces for messages that they accepted, and receivers send DMARC reports.
    Bounces,
    /// Calls to the bucket fail, with and without effect.
    Bucket,
    /// Lists of the bucket's objects are outdated.
    StaleLists,
    /// The bucket can't be reached for a while.
    Outage,
    /// The machine is lost, stays off or is cut off from the bucket, and a standby takes over.
    Failover,
}

impl FaultClass {
    /// Further classes of runs with a replica.
    pub(super) const OF_REPLICA: [Self; 3] = [Self::Bucket, Self::StaleLists, Self::Outage];

    /// Further classes of runs with a standby.
    pub(super) const OF_STANDBY: [Self; 1] = [Self::Failover];

    pub(super) const ALL: [Self; 16] = [
        Self::Names,
        Self::Connect,
        Self::Transient,
        Self::Permanent,
        Self::Silence,
        Self::Close,
        Self::Webhooks,
        Self::Clients,
        Self::Tenants,
        Self::Clock,
        Self::Stop,
        Self::Kill,
        Self::Power,
        Self::Disk,
        Self::Full,
        Self::Bounces,
    ];
}

/// An action on the service at a moment of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    /// A tenant suppresses a recipient of this submission.
    Suppress(usize),
    /// A tenant cancels the messages of this submission.
    Cancel(usize),
    /// The wall clock is changed by this number of milliseconds.
    SetClock(i64),
    /// The disk has this fault after this number of operations.
    Disk(DiskFault, u64),
    /// The service is stopped normally.
    Stop,
    /// The process is killed.
    Kill,
    /// Another machine takes over.
    Failover(Failover),
    /// Faults end; disabled endpoints are enabled again.
    EndFaults,
}

/// The plan of a run.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) seed: u64,
    pub(super) faults: BTreeSet<FaultClass>,
    pub(super) tenants: usize,
    pub(super) sites: usize,
    pub(super) submissions: usize,
    /// Maximum number of connections to mail servers.
    pub(super) connections: usize,
    pub(super) queue_lifetime: Duration,
    /// Elapsed time within which submissions begin.
    pub(super) window: Duration,
    /// Elapsed times of further submissions, around takeovers.
    pub(super) traffic: Vec<Duration>,
    /// Elapsed time at which faults end.
    pub(super) faults_end: Duration,
    /// Settings of the replica, in runs with one.
    pub(super) replica: Option<ReplicaPlan>,
    /// Attacks of hostile sites. The other sites of such a run have no faults.
    pub(super) hostility: Option<Hostility>,
    /// Actions by elapsed time.
    pub(super) actions: Vec<(Duration, Action)>,
}

impl Plan {
    /// Draws the plan of `seed`, with the classes of faults in `without` disabled.
    pub(super) fn new(seed: u64, without: &BTreeSet<FaultClass>) -> Self {
        let mut rng = Rng::new(seed ^ 0x51b0_7a11);
        let drawn: Vec<FaultClass> = FaultClass::ALL.into_iter().filter(|_| rng.coin()).collect();
        let faults: BTreeSet<FaultClass> = drawn.into_iter().filter(|fault| !without.contains(fault)).collect();
        // Most runs are short, and a few are long.
        let submissions = [2, 3, 5, 8, 12, 30][rng.index(6)];
        let window = Duration::from_secs([1, 30, 600, 7200][rng.index(4)]);
        let mut plan = Self {
            seed,
            tenants: 1 + rng.index(3),
            sites: 1 + rng.index(5),
            submissions,
            connections: [8, 16, 64][rng.index(3)],
            queue_lifetime: Duration::from_secs([2, 12, 48][rng.index(3)] * 3600),
            window,
            faults_end: window + Duration::from_secs([60, 1800, 3 * 3600][rng.index(3)]),
            traffic: Vec::new(),
            replica: None,
            hostility: None,
            actions: Vec::new(),
            faults,
        };
        plan.draw_actions(&mut rng);
        plan
    }

    /// Draws the plan of `seed` for a run with a replica.
    pub(super) fn with_replica(seed: u64, without: &BTreeSet<FaultClass>) -> Self {
        let mut plan = Self::new(seed, without);
        let mut rng = Rng::new(seed ^ 0x0b_5e55);
        let drawn: Vec<FaultClass> = FaultClass::OF_REPLICA.into_iter().filter(|_| rng.coin()).collect();
        plan.faults.extend(drawn.into_iter().filter(|fault| !without.contains(fault)));
        plan.replica = Some(ReplicaPlan::new(seed, plan.faults_end));
        plan
    }

    /// Draws the plan of `seed` for a run with a replica and a standby.
    pub(super) fn with_standby(seed: u64, without: &BTreeSet<FaultClass>) -> Self {
        let mut plan = Self::with_replica(seed, without);
        let mut rng = Rng::new(seed ^ 0x57a9_db1e);
        let replica = plan.replica.as_mut().expect("the run has a replica");
        replica.shreds = false;
        replica.lease.is_automatic = replica.lease.stops && rng.coin();
        if replica.lease.is_automatic {
            // An idle holder writes three slots in each lease.
            replica.lease.lease = replica.lease.lease.max(Duration::from_secs(20));
        }
        let (lease, is_lossy) = (replica.lease, !replica.loses_nothing());
        if is_lossy {
            // A takeover may lose changes whose answers tenants and other servers already have.
            plan.faults.retain(|fault| !matches!(fault, FaultClass::Tenants | FaultClass::Bounces));
            plan.actions.retain(|(_, action)| !matches!(action, Action::Suppress(_) | Action::Cancel(_)));
        }
        // These actions are drawn separately, so that stored seeds keep their takeovers.
        let mut rng_of_traffic = Rng::new(seed ^ 0x007a_ff1c);
        let end = u64::try_from(plan.faults_end.as_millis()).unwrap();
        for _ in 0..1 + rng.index(3) {
            let at = Duration::from_millis(rng.below(end));
            let failover = Failover::draw(&mut rng, &lease);
            if !without.contains(&FaultClass::Failover) {
                plan.actions.push((at, Action::Failover(failover)));
                plan.traffic.extend(failover.traffic(&mut rng_of_traffic, at, &lease));
            }
        }
        plan.faults.extend(FaultClass::OF_STANDBY.into_iter().filter(|fault| !without.contains(fault)));
        plan.actions.sort_by_key(|(at, _)| *at);
        plan
    }

    fn draw_actions(&mut self, rng: &mut Rng) {
        let mut actions = Vec::new();
        for fault in FaultClass::ALL {
            let count = [1, 2, 4][rng.index(3)];
            for _ in 0..count {
                let span = u64::try_from(self.faults_end.as_millis()).unwrap();
                // Half of the faults happen while clients submit.
                let span = if rng.coin() { span } else { span.min(self.window.as_secs() * 1000 + 2000) };
                let at = Duration::from_millis(rng.below(span));
                let action = self.draw_action(fault, rng);
                if let (true, Some(action)) = (self.faults.contains(&fault), action) {
                    actions.push((at, action));
                }
            }
        }
        actions.push((self.faults_end, Action::EndFaults));
        // A stable sort: equal times keep the order of drawing.
        actions.sort_by_key(|(at, _)| *at);
        self.actions = actions;
    }

    fn draw_action(&self, fault: FaultClass, rng: &mut Rng) -> Option<Action> {
        let operations = [5, 40, 400][rng.index(3)];
        let after = rng.below(operations);
        let which = rng.index(self.submissions);
        let pick = rng.index(6);
        match fault {
            FaultClass::Tenants if pick < 3 => Some(Action::Suppress(which)),
            FaultClass::Tenants => Some(Action::Cancel(which)),
            FaultClass::Clock => Some(Action::SetClock([-4_000_000, -60_000, -5, 900, 1_800_000, 90_000_000][pick])),
            FaultClass::Stop => Some(Action::Stop),
            FaultClass::Kill if pick < 3 => Some(Action::Kill),
            FaultClass::Kill => Some(Action::Disk(DiskFault::Kill, after)),
            FaultClass::Power if pick < 3 => Some(Action::Disk(DiskFault::PowerCut, after)),
            FaultClass::Power => Some(Action::Disk(DiskFault::PowerCutOfAll, after)),
            FaultClass::Disk => Some(Action::Disk(DiskFault::Error, after)),
            FaultClass::Full => Some(Action::Disk(DiskFault::Full(1 + rng.below(60)), after)),
            FaultClass::Names
            | FaultClass::Connect
            | FaultClass::Transient
            | FaultClass::Permanent
            | FaultClass::Silence
            | FaultClass::Close
            | FaultClass::Webhooks
            | FaultClass::Clients
            | FaultClass::Bounces
            | FaultClass::Bucket
            | FaultClass::StaleLists
            | FaultClass::Outage
            | FaultClass::Failover => None,
        }
    }
}
