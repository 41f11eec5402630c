//! Initial state of runs: a disk with a store that has an account, its domain and two endpoints. It is created once and
//! copied.

use std::sync::OnceLock;
use std::time::Duration;

use super::process::{Clock, Process, Waiting};
use crate::base::id::{AccountId, DomainId, EndpointId, Ulid};
use crate::base::time::Timestamp;
use crate::domain::account::{Account, QuotaLimits};
use crate::domain::event::EventType;
use crate::domain::sending_domain::DomainStatus;
use crate::domain::stream::Stream;
use crate::store::disk::simulated::{FsyncMode, SimulatedDisk};
use crate::store::op::Op;
use crate::store::op::account::CreateAccount;
use crate::store::op::domain::CreateDomain;
use crate::store::op::endpoint::CreateEndpoint;
use crate::store::testing::{START, domain_row, endpoint_row};

/// Contents of the store at the beginning of a run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Setup {
    pub(super) now: Timestamp,
    pub(super) account: AccountId,
    pub(super) domain: DomainId,
}

/// Hourly quota of the account, which some runs reach.
pub(super) const HOURLY: usize = 24;

/// Returns a disk with the randomness of `seed`, and its content.
pub(super) fn set_up(seed: u64, fsync_mode: FsyncMode) -> (SimulatedDisk, Setup) {
    static BEGUN: OnceLock<(SimulatedDisk, Setup)> = OnceLock::new();
    let (disk, setup) = BEGUN.get_or_init(|| {
        let disk = SimulatedDisk::new(0, FsyncMode::Honored);
        let setup = make(&disk, HOURLY);
        (disk, setup)
    });
    (disk.copy(seed, fsync_mode), *setup)
}

/// Creates a store whose account has this hourly quota.
pub(super) fn make(disk: &SimulatedDisk, hourly: usize) -> Setup {
    let clock = Clock::new(START + Duration::from_secs(600));
    let mut process = Process::start(disk, &clock, 1).unwrap();
    let quota = QuotaLimits { per_hour: hourly as u64, per_day: 1000 };
    let account = Account::new(AccountId::default(), "Example".parse().unwrap(), quota, START);
    let account = done(&mut process, CreateAccount { account, by: None }).id;
    let domain = DomainId(Ulid::new(START, [7; 10]));
    let row = domain_row("example.com", Stream::Transactional, DomainStatus::Verified);
    done(&mut process, CreateDomain { account, id: domain, row });
    for (number, events) in [(1, None), (2, Some([EventType::Delivered, EventType::Bounced].as_slice()))] {
        let id = EndpointId(Ulid::new(START, [number; 10]));
        done(&mut process, CreateEndpoint { account, id, row: endpoint_row(events) });
    }
    drop(process);
    disk.restart();
    Setup { now: clock.now(), account, domain }
}

fn done<O: Op>(process: &mut Process, op: O) -> O::Reply {
    let store = process.store.clone();
    let mut waiting = Waiting::new(async move { store.commit(op).await });
    assert!(waiting.poll().is_none());
    process.settle();
    let answer = waiting.poll().unwrap();
    answer.unwrap_or_else(|_| panic!("an operation of the initial state was refused"))
}
