//! The checks of the bucket: it is restored onto a new disk, and compared with what the service acknowledged.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::Builder;

use super::fence::bounded_from;
use super::{ReplicaPlan, ports};
use crate::app::simulation::invariants;
use crate::app::simulation::service::{self, Service, Workers};
use crate::app::simulation::world::{Progress, World};
use crate::base::secret::MasterKey;
use crate::engine::Engine;
use crate::engine::bucket::verify::{Depth, verify};
use crate::engine::memory_bucket::{BucketFault, MemoryBucket, MemoryStore};
use crate::engine::ports::BucketOperation;
use crate::engine::replica::{self, ReplicaError, RestorePlan, RetriedBucket};
use crate::store::read::{Order, Read as _, after_prefix};
use crate::store::replica::name;
use crate::store::restore::Lineage;
use crate::store::schema::Table;
use crate::store::single_threaded::{DIRECTORY, Machine, Rng};
use crate::store::snapshot::Snapshot;

/// Time within which the bucket must have everything once faults have ended.
const CATCH_UP: Duration = Duration::from_secs(600);

/// A store that was restored from the bucket.
struct Restored {
    engine: Engine,
    /// Workers that never run.
    _workers: Workers,
}

/// Returns a bucket that often does not answer, and reports each content key as missing when it is first asked for it.
fn faulty(world: &World, objects: &MemoryStore) -> MemoryBucket {
    let (bucket, mut rng, mut asked) = (objects.bucket(), Rng::new(world.plan.seed ^ 0xfa07), BTreeSet::new());
    bucket.draw(move |call| {
        let is_key = call.operation == BucketOperation::Read && call.name.starts_with(name::KEYS);
        match rng.index(12) {
            // Each key is reported as missing at its first read.
            _ if is_key && asked.insert(call.name.to_owned()) => Some(BucketFault::Stale),
            0 => Some(BucketFault::Throttled),
            1 => Some(BucketFault::NotDone),
            _ => None,
        }
    });
    bucket
}

/// Restores the newest state of `objects` onto a new disk.
async fn restore(world: &Arc<World>, objects: &MemoryStore) -> Result<Restored, ReplicaError> {
    let machine = Machine::new(world.plan.seed);
    let mut ports = ports(world, &machine, None, 0x7e57);
    let (bucket, entropy) = (faulty(world, objects), Arc::clone(&ports.entropy));
    ports.bucket = Arc::new(RetriedBucket::new(Arc::new(bucket), entropy, Arc::clone(&ports.on_retry), None));
    let key = world.state().master_key.clone().expect("the store has a master key");
    let master = Arc::new(MasterKey::new(&key));
    let identity = ports.identity(&master).await?.ok_or(ReplicaError::NoBase)?;
    let opened = ports.objects(master, identity.store);
    let lineage = Lineage::Fork { holds_queue: false };
    machine.create_directory().map_err(|error| ReplicaError::Io { what: "restoring".to_owned(), error })?;
    let plan = RestorePlan { directory: Path::new(DIRECTORY), key, lineage, beside: &[], until: None };
    let restored = replica::restore(&opened, &plan, &|line| world.note(line)).await?;
    if let Some(gap) = &restored.gap {
        world.note(format!("the restore ends at a gap: {gap}"));
    }
    if !restored.missing_keys.is_empty() {
        world.find(format!("replica: keys are missing before their deadline: {:?}", restored.missing_keys));
    }
    restored.install()?;
    let workers: Workers = Arc::new(Mutex::new(None));
    let (store, clock) = service::open_on(world, &machine, &workers, None)?;
    let engine = service::engine(world, Arc::new(store), clock);
    Ok(Restored { engine, _workers: workers })
}

/// Judges the bucket after the end of a process, as if its machine were lost.
pub(in crate::app::simulation) fn after_end(world: &Arc<World>) {
    let Some(plan) = world.plan.replica.as_ref().filter(|_| !world.state().tenants.is_empty()) else { return };
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime");
    runtime.block_on(async {
        world.clocks.start();
        // The waits of the restore for its bucket use the run's time.
        let now = world.clocks.elapsed();
        match restore(world, &world.objects.copy()).await {
            Ok(restored) if plan.loses_nothing() => invariants::nothing_lost(world, &restored.engine),
            Ok(restored) => bounded_loss(world, plan, now, &restored.engine),
            Err(error) => world.find(format!("replica: the bucket can't be restored: {error}")),
        }
        world.clocks.stop();
    });
}

/// Checks that the bucket has every acknowledged message except the newest ones at the elapsed time `now`.
fn bounded_loss(world: &World, plan: &ReplicaPlan, now: Duration, engine: &Engine) {
    let (tenants, submissions, bounded_from) = (world.tenants(), world.submissions(), bounded_from(world, plan));
    for submission in &submissions {
        let Progress::Accepted(ids) = &submission.progress else { continue };
        let may_be_lost = now <= submission.accepted_at.max(bounded_from) + plan.bound();
        for id in ids {
            match engine.message(tenants[submission.tenant].account, *id) {
                Ok(Some(_)) => {}
                Ok(None) if may_be_lost => world.note(format!("{id} of {} is not in the bucket", submission.subject)),
                Ok(None) => world.find(format!("replica: {id} of {} is lost", submission.subject)),
                Err(error) => world.find(format!("replica: {id} can't be read: {error}")),
            }
        }
    }
}

/// Waits until the first base is in the bucket: earlier states can't be restored.
pub(in crate::app::simulation) async fn wait_for_base(service: &Service) {
    let Some(replication) = service.engine.replication.get() else { return };
    while replication.status(service.engine.clock.now()).base.is_none() {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Judges the bucket of a run at rest: it has everything, and nothing else.
pub(in crate::app::simulation) async fn at_the_end(world: &Arc<World>, service: &Service) {
    let Some(replication) = service.engine.replication.get() else { return };
    let deadline = world.clocks.elapsed() + CATCH_UP;
    loop {
        let status = replication.status(service.engine.clock.now());
        let has_all = status.sequence == status.confirmed_sequence && replication.unconfirmed().records == 0;
        if has_all && status.state == crate::engine::replica::State::Ok {
            break;
        }
        if world.clocks.elapsed() >= deadline {
            return world.find(format!("liveness: the bucket does not catch up: {status:?}"));
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    // Removes the remains of bases that faults interrupted.
    replication.make_base().await;
    let rows = match service.engine.store.snapshot() {
        Ok(snapshot) => rows(&snapshot),
        Err(error) => return world.find(format!("replica: the store can't be read: {error}")),
    };
    let objects = world.objects.copy();
    match restore(world, &objects).await {
        Ok(restored) => {
            let snapshot = restored.engine.store.snapshot().expect("a restored store can be read");
            same_rows(world, &rows, &self::rows(&snapshot));
            same_bodies(world, service, &restored.engine).await;
        }
        Err(error) => world.find(format!("replica: the bucket can't be restored: {error}")),
    }
    verified(world, service, &objects).await;
}

type Rows = BTreeMap<(&'static str, Vec<u8>), Vec<u8>>;

/// Returns all rows except those about the store itself, which every start changes.
fn rows(snapshot: &Snapshot) -> Rows {
    let mut rows = Rows::new();
    for table in Table::ALL.iter().filter(|table| **table != Table::Meta) {
        let mut add = |key: &[u8], value: &[u8]| {
            rows.insert((table.name(), key.to_vec()), value.to_vec());
            Ok(ControlFlow::Continue(()))
        };
        snapshot.scan(*table, &[], &after_prefix(&[]), Order::Ascending, &mut add).expect("rows can be read");
    }
    rows
}

fn same_rows(world: &World, active: &Rows, restored: &Rows) {
    if active == restored {
        return;
    }
    let missing = active.iter().find(|(key, value)| restored.get(*key) != Some(*value)).map(|(key, _)| key);
    let extra = restored.keys().find(|key| !active.contains_key(*key));
    world.find(format!("replica: the restored rows differ: missing {missing:?}, extra {extra:?}"));
}

/// Every body that the service can read is in the bucket.
async fn same_bodies(world: &World, service: &Service, restored: &Engine) {
    let tenants = world.tenants();
    for submission in world.submissions() {
        let (account, Progress::Accepted(ids)) = (tenants[submission.tenant].account, &submission.progress) else {
            continue;
        };
        for id in ids {
            let Ok(Some(record)) = service.engine.message(account, *id) else { continue };
            let body = service.engine.content(account, &record, |body| body).await;
            let other = restored.content(account, &record, |body| body).await;
            match (body, other) {
                (Ok(body), Ok(other)) if body == other => {}
                (body, other) => {
                    let (body, other) = (body.map(|body| body.is_some()), other.map(|body| body.is_some()));
                    world.find(format!("replica: the body of {id} is {body:?}, and restored {other:?}"));
                }
            }
        }
    }
}

/// Verification finds no problem in a bucket at rest.
pub(super) async fn verified(world: &World, service: &Service, objects: &MemoryStore) {
    let key = world.state().master_key.clone().expect("the store has a master key");
    let depth = Depth { deep: true, now: service.engine.clock.now(), key_grace: Duration::from_secs(3600) };
    match verify(&objects.bucket(), Arc::new(MasterKey::new(&key)), depth).await {
        Ok(report) if report.ok => {}
        Ok(report) => world.find(format!("replica: verification finds {:?}", report.findings)),
        Err(error) => world.find(format!("replica: verification failed: {error}")),
    }
}
