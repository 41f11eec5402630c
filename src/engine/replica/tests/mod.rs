//! Tests of replication over a bucket in memory. Every wait is for a condition; durations are never asserted.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use self::clock::TestClock;
use super::follow::FollowStep;
use super::rebuild::{Rebuild, base_before, build};
use super::*;
use crate::base::entropy::SeededEntropy;
use crate::base::id::AccountId;
use crate::base::time::Timestamp;
use crate::domain::account::{Account, QuotaLimits};
use crate::engine::executor::Executor;
use crate::engine::memory_bucket::{BucketFault, MemoryBucket, MemoryStore};
use crate::engine::ports::{BucketOperation, Clock};
use crate::machine::replica_lease::{LeaseRules, Predecessor};
use crate::store::Store;
use crate::store::master_key::{self, Raw};
use crate::store::op::account::CreateAccount;
use crate::store::open::{ReplicaStart, StartOptions, StoreEnvironment, SyncRule};
use crate::store::read::{Order, Read as _, after_prefix};
use crate::store::replica::claim::ClaimCause;
use crate::store::replica::{Follower, ReplicaDisk};
use crate::store::restore::Lineage;
use crate::store::schema::Table;
use crate::store::snapshot::Snapshot;
use crate::store::testing::START;

const LEASE: Duration = Duration::from_secs(5);

mod claim;
mod clock;
mod content;
mod divergence;
mod holder;
mod lease;
mod missing;
mod own_log;
mod removal;
mod restore;
mod sync;

/// A machine: its directory, its bucket client, its clock.
struct Machine {
    directory: tempfile::TempDir,
    bucket: MemoryBucket,
    world: ReplicaWorld,
    clock: Arc<TestClock>,
    sync: Option<SyncRule>,
}

/// A serving machine.
struct Serving {
    store: Arc<Store>,
    active: Active,
}

impl Machine {
    fn new(bucket: &MemoryStore, name: &str, seed: u64) -> Self {
        let bucket = bucket.bucket();
        let clock = Arc::<TestClock>::default();
        let world = ReplicaWorld {
            bucket: Arc::new(bucket.clone()),
            disk: ReplicaDisk::default(),
            executor: Executor::Threads,
            holder: name.parse().unwrap(),
            place: 1,
            clock: Arc::clone(&clock) as Arc<dyn Clock>,
            real: Arc::clone(&clock) as Arc<dyn Clock>,
            entropy: Arc::new(SeededEntropy::new(seed)),
            encrypts: true,
            lease: LeaseRules { lease: LEASE, stops: false, is_automatic: false },
            on_retry: Arc::new(|_| {}),
        };
        Self { directory: tempfile::tempdir().unwrap(), bucket, world, clock, sync: None }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn open(&self, replica: Option<ReplicaStart>) -> Arc<Store> {
        let clock = Arc::clone(&self.clock);
        let surroundings =
            StoreEnvironment { now: Arc::new(move || clock.now().into()), entropy: Arc::clone(&self.world.entropy) };
        let options = StartOptions { replica, ..StartOptions::default() };
        Arc::new(Store::open_with(self.path(), surroundings, options).unwrap())
    }

    async fn join(&self, cause: ClaimCause) -> Result<ClaimedLog, ReplicaError> {
        join(&self.world, self.path(), cause, &mut |error| error.kind.is_transient()).await
    }

    /// Starts to serve, and creates the store if there is none.
    async fn serve(&self) -> Serving {
        if !Store::exists(self.path()) {
            self.open(None).close();
        }
        self.resume(self.join(ClaimCause::Start).await.unwrap()).await
    }

    /// Starts to serve with an account, and waits for a base that has it.
    async fn serve_with_base(&self) -> Serving {
        let serving = self.serve().await;
        serving.add_account().await;
        serving.base().await;
        serving
    }

    /// Lets the lease of the previous holder end.
    fn end_wait(&self, serving: &Serving) {
        while serving.active.shared().waits_for_predecessor() {
            self.clock.advance(Duration::from_secs(1));
            serving.active.status(self.clock.now());
        }
    }

    async fn resume(&self, joined: ClaimedLog) -> Serving {
        let replica = ReplicaStart { confirmed: joined.claim, backlog_bytes_max: 1 << 30, sync: self.sync };
        let store = self.open(Some(replica));
        let policy =
            BasePolicy { age: Duration::from_secs(86_400), log_bytes: 1 << 30, retention: Duration::ZERO, beside: &[] };
        let words = ModeWords { mode: "async", failover: "manual" };
        let pace = Pace { interval: Duration::from_millis(1), words };
        let active = Active::start(joined, &store, pace, policy).await.unwrap();
        Serving { store, active }
    }

    fn key(&self) -> Raw {
        master_key::read_raw(&self.path().join("master.key")).unwrap()
    }
}

impl Serving {
    async fn add_account(&self) {
        let account = Account::new(AccountId::default(), "Example".parse().unwrap(), QuotaLimits::default(), START);
        assert!(self.store.commit(CreateAccount { account, by: None }).await.is_ok());
    }

    /// Waits until the bucket has all committed batches.
    async fn settled(&self) {
        let outbox = self.store.outbox().unwrap();
        let mut slots = self.active.shared().slots();
        loop {
            slots.mark_unchanged();
            let position = self.active.shared().position();
            if !outbox.has_gap() && outbox.resumed().is_none() && position.sequence == outbox.last() {
                return;
            }
            slots.changed().await.unwrap();
        }
    }

    /// Requests a base, and waits for it.
    async fn base(&self) {
        self.active.shared().base_requests.ask().await.unwrap();
    }

    async fn stop(self) -> bool {
        self.stop_within(Duration::from_secs(600)).await
    }

    async fn stop_within(self, grace: Duration) -> bool {
        let store = self.store;
        let closing = Arc::clone(&store);
        tokio::task::spawn_blocking(move || closing.close()).await.unwrap();
        self.active.stop(grace).await
    }
}

fn accounts(snapshot: &Snapshot) -> usize {
    snapshot.keys(Table::Accounts, &[], &after_prefix(&[]), Order::Ascending, usize::MAX).unwrap().len()
}

/// Follows the log to its end.
async fn follow(standby: &mut Standby) {
    while standby.follow().await.unwrap() {}
    standby.checkpoint().unwrap();
}

async fn standby(machine: &Machine, key: &Raw) -> Standby {
    let mut standby = Standby::open(&machine.world, machine.path(), key.clone(), &[]).await.unwrap();
    follow(&mut standby).await;
    standby
}

/// Deposes the serving machine by its next write, and stops it and its successor.
async fn hand_over(serving: Serving, successor: &Machine, promoted: Serving) {
    serving.add_account().await;
    serving.active.shared().deposed().await;
    assert!(!serving.stop().await);
    successor.end_wait(&promoted);
    assert!(promoted.stop().await);
}

fn accounts_in(machine: &Machine) -> usize {
    let follower =
        Follower::open(&machine.world.disk, machine.path(), START, Arc::clone(&machine.world.entropy)).unwrap();
    accounts(&follower.snapshot().unwrap())
}

#[tokio::test]
async fn a_standby_has_all_committed_batches_and_can_be_promoted() {
    let bucket = MemoryStore::default();
    let (first, second) = (Machine::new(&bucket, "first", 1), Machine::new(&bucket, "second", 2));
    let serving = first.serve_with_base().await;
    let mut following = standby(&second, &first.key()).await;
    for _ in 0..5 {
        serving.add_account().await;
    }
    serving.settled().await;
    follow(&mut following).await;
    drop(following);
    assert_eq!(accounts_in(&second), 6);
    let joined = second.join(ClaimCause::Promotion).await.unwrap();
    assert_eq!(joined.predecessor, Predecessor::Other { lease: LEASE }, "the first machine did not release the log");
    let promoted = second.resume(joined).await;
    serving.add_account().await;
    serving.active.shared().deposed().await;
    assert_eq!(serving.active.shared().deposed_by().as_deref(), Some("second"));
    assert_eq!(serving.active.status(START).role, Role::Deposed);
    assert!(!serving.stop().await);
    promoted.add_account().await;
    promoted.settled().await;
    second.end_wait(&promoted);
    assert!(matches!(
        first.join(ClaimCause::Start).await,
        Err(ReplicaError::Claimed { holder, .. }) if holder == "second"
    ));
    assert!(promoted.stop().await);
}

#[tokio::test]
async fn a_released_log_is_claimed_at_once_and_a_restart_continues_it() {
    let bucket = MemoryStore::default();
    let machine = Machine::new(&bucket, "first", 1);
    let serving = machine.serve_with_base().await;
    assert!(serving.stop().await);
    let joined = machine.join(ClaimCause::Start).await.unwrap();
    assert_eq!(joined.predecessor, Predecessor::Released);
    let serving = machine.resume(joined).await;
    assert!(!serving.store.outbox().unwrap().has_gap());
    serving.add_account().await;
    assert!(serving.stop().await);
    let copy = Machine::new(&bucket, "copy", 3);
    drop(standby(&copy, &machine.key()).await);
    assert_eq!(accounts_in(&copy), 2);
}

#[tokio::test]
async fn a_log_written_with_faults_contains_every_batch_once() {
    for seed in 0..6 {
        let bucket = MemoryStore::default();
        let machine = Machine::new(&bucket, "first", seed);
        let serving = machine.serve().await;
        serving.base().await;
        let random = SeededEntropy::new(seed);
        let late = bucket.clone();
        machine.bucket.draw(move |call| {
            let [drawn] = crate::base::entropy::bytes::<1>(&random);
            late.land();
            let faults = [
                BucketFault::AnswerLost,
                BucketFault::NotDone,
                BucketFault::DoneLater,
                BucketFault::Conflict,
                BucketFault::Throttled,
                BucketFault::Unreachable,
            ];
            (call.operation == BucketOperation::Create).then(|| faults.get(usize::from(drawn) % 12).copied()).flatten()
        });
        for _ in 0..8 {
            serving.add_account().await;
        }
        serving.settled().await;
        machine.bucket.draw(|_| None);
        assert!(serving.stop().await);
        let copy = Machine::new(&bucket, "copy", seed + 100);
        drop(standby(&copy, &machine.key()).await);
        assert_eq!(accounts_in(&copy), 8, "seed {seed}");
    }
}

#[tokio::test]
async fn the_next_start_after_a_crash_sends_the_missing_batches() {
    let bucket = MemoryStore::default();
    let machine = Machine::new(&bucket, "first", 1);
    let serving = machine.serve().await;
    serving.base().await;
    serving.settled().await;
    machine.bucket.set_cut_off(true);
    for _ in 0..3 {
        serving.add_account().await;
    }
    assert!(!serving.stop_within(Duration::ZERO).await);
    machine.bucket.set_cut_off(false);
    let serving = machine.serve().await;
    assert!(!serving.store.outbox().unwrap().has_gap());
    serving.settled().await;
    assert!(serving.stop().await);
    let copy = Machine::new(&bucket, "copy", 3);
    drop(standby(&copy, &machine.key()).await);
    assert_eq!(accounts_in(&copy), 3);
}

#[tokio::test]
async fn a_new_base_closes_a_gap_and_a_standby_before_the_gap_resyncs() {
    let bucket = MemoryStore::default();
    let (machine, other) = (Machine::new(&bucket, "first", 1), Machine::new(&bucket, "second", 2));
    let serving = machine.serve().await;
    serving.base().await;
    let following = standby(&other, &machine.key()).await;
    drop(following);
    serving.stop().await;
    // Without replication the store continues alone.
    let alone = machine.open(None);
    let account = Account::new(AccountId::default(), "Alone".parse().unwrap(), QuotaLimits::default(), START);
    assert!(alone.commit(CreateAccount { account, by: None }).await.is_ok());
    alone.close();
    drop(alone);
    let serving = machine.serve().await;
    serving.settled().await;
    serving.base().await;
    serving.add_account().await;
    serving.settled().await;
    let mut behind = Standby::open(&other.world, other.path(), machine.key(), &[]).await.unwrap();
    let broken = loop {
        match behind.follow().await {
            Ok(true) => {}
            Ok(false) => panic!("the standby passed the gap and reached the end"),
            Err(error) => break error,
        }
    };
    assert!(broken.needs_base(), "{broken}");
    behind.prepare_resync().await.unwrap();
    drop(behind);
    drop(standby(&other, &machine.key()).await);
    assert_eq!(accounts_in(&other), 2);
    assert!(serving.stop().await);
}

#[tokio::test]
async fn a_restored_directory_does_not_continue_the_log() {
    let bucket = MemoryStore::default();
    let machine = Machine::new(&bucket, "first", 1);
    let serving = machine.serve_with_base().await;
    let fork = Machine::new(&bucket, "fork", 2);
    let identity = fork.world.identity(&crate::base::secret::MasterKey::new(&machine.key())).await.unwrap().unwrap();
    let objects = fork.world.objects(Arc::new(crate::base::secret::MasterKey::new(&machine.key())), identity.store);
    let manifest = base_before(&objects, None).await.unwrap();
    let lineage = Lineage::Fork { holds_queue: true };
    let plan = Rebuild { directory: fork.path(), key: machine.key(), lineage, beside: &[] };
    drop(build(&objects, &manifest, plan, |_, _| {}).await.unwrap());
    serving.add_account().await;
    serving.settled().await;
    assert!(matches!(fork.join(ClaimCause::Start).await, Err(ReplicaError::Fork)));
    assert!(serving.stop().await);
}

#[tokio::test]
async fn collection_keeps_all_claims_and_the_slot_of_the_base() {
    let bucket = MemoryStore::default();
    let machine = Machine::new(&bucket, "first", 1);
    for _ in 0..3 {
        let serving = machine.serve().await;
        serving.add_account().await;
        serving.settled().await;
        serving.base().await;
        assert!(serving.stop().await);
    }
    let bases: Vec<_> = bucket.names().into_iter().filter(|name| name.ends_with("manifest")).collect();
    assert_eq!(bases.len(), 1, "{bases:?}");
    let claims = bucket.names().into_iter().filter(|name| {
        let bytes = bucket.object(name).unwrap();
        name.starts_with("log/") && bytes.starts_with(b"postrider replica 1 claim ")
    });
    assert_eq!(claims.count(), 3);
    let slot = PathBuf::from(&bases[0]).parent().unwrap().file_name().unwrap().to_owned();
    assert!(bucket.object(&format!("log/{}", slot.to_str().unwrap())).is_some());
}
