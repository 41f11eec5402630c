//! Tests of directories whose batches differ from the log's, although the log seems to be their own. Also tests of the
//! hold that a promotion writes to the log.

use serde::{Deserialize, Serialize};

use super::sync::copy;
use super::*;
use crate::base::secret::MasterKey;
use crate::store::error::OpError;
use crate::store::op::release_queue::ReleaseQueue;
use crate::store::op::{Infallible, Op};
use crate::store::replica::ObjectName;
use crate::store::row::restored::RestoreOrigin;
use crate::store::schema::meta;
use crate::store::tables::Tables;

#[tokio::test]
async fn a_directory_does_not_continue_a_log_that_an_older_copy_of_it_continued() {
    for is_longer in [false, true] {
        let bucket = MemoryStore::default();
        let newer = Machine::new(&bucket, "first", 1);
        let serving = newer.serve_with_base().await;
        serving.settled().await;
        newer.bucket.set_cut_off(true);
        assert!(!serving.stop_within(Duration::ZERO).await);
        let directory = tempfile::tempdir().unwrap();
        copy(newer.path(), directory.path());
        newer.bucket.set_cut_off(false);
        let serving = newer.serve().await;
        serving.settled().await;
        newer.bucket.set_cut_off(true);
        for _ in 0..if is_longer { 3 } else { 1 } {
            serving.add_account().await;
        }
        assert!(!serving.stop_within(Duration::ZERO).await);
        newer.bucket.set_cut_off(false);
        let older = Machine { directory, ..Machine::new(&bucket, "first", 7) };
        older.clock.advance(Duration::from_secs(1));
        let serving = older.serve().await;
        serving.add_account().await;
        assert!(serving.stop().await);
        let refused = newer.join(ClaimCause::Start).await.err();
        assert!(matches!(refused, Some(ReplicaError::Stranded { .. })), "{refused:?}");
        let stranded = stranded(&newer.world, newer.path()).await.unwrap();
        assert_eq!(stranded.dropped, None);
    }
}

#[tokio::test]
async fn a_directory_that_continued_without_the_bucket_does_not_skip_batches_of_the_active_machine() {
    let bucket = MemoryStore::default();
    let (first, second) = (Machine::new(&bucket, "first", 1), Machine::new(&bucket, "second", 2));
    let serving = first.serve_with_base().await;
    drop(standby(&second, &first.key()).await);
    let alone = second.open(None);
    for name in ["One", "Two"] {
        let account = Account::new(AccountId::default(), name.parse().unwrap(), QuotaLimits::default(), START);
        assert!(alone.commit(CreateAccount { account, by: None }).await.is_ok());
    }
    alone.close();
    drop(alone);
    serving.add_account().await;
    serving.settled().await;
    let mut following = Standby::open(&second.world, second.path(), first.key(), &[]).await.unwrap();
    let refused = loop {
        match following.follow().await {
            Ok(true) => {}
            followed => break followed,
        }
    };
    assert!(matches!(refused, Err(ReplicaError::Stranded { .. })), "{refused:?}");
    drop(following);
    assert!(matches!(second.join(ClaimCause::Start).await.err(), Some(ReplicaError::Stranded { .. })));
    assert!(serving.stop().await);
}

fn is_on_hold(snapshot: &Snapshot) -> bool {
    snapshot.row::<RestoreOrigin>(meta::RESTORED).unwrap().is_some_and(|row| row.is_on_hold)
}

fn is_on_hold_in(machine: &Machine) -> bool {
    let follower =
        Follower::open(&machine.world.disk, machine.path(), START, Arc::clone(&machine.world.entropy)).unwrap();
    is_on_hold(&follower.snapshot().unwrap())
}

#[tokio::test]
async fn the_hold_of_a_promotion_is_in_the_log_and_a_failed_promotion_leaves_none() {
    let bucket = MemoryStore::default();
    let (first, second) = (Machine::new(&bucket, "first", 1), Machine::new(&bucket, "second", 2));
    let third = Machine::new(&bucket, "third", 3);
    let serving = first.serve_with_base().await;
    for machine in [&second, &third] {
        drop(standby(machine, &first.key()).await);
    }
    second.bucket.inject(BucketOperation::Create, BucketFault::Forbidden);
    assert!(second.join(ClaimCause::PromotionWithHold).await.is_err());
    assert!(!is_on_hold_in(&second), "the log was not claimed");
    // A crash right after the claim.
    drop(second.join(ClaimCause::PromotionWithHold).await.unwrap());
    let promoted = second.resume(second.join(ClaimCause::Start).await.unwrap()).await;
    assert!(is_on_hold(&promoted.store.snapshot().unwrap()));
    promoted.add_account().await;
    promoted.settled().await;
    drop(standby(&third, &first.key()).await);
    assert!(is_on_hold_in(&third));
    let took_over = third.resume(third.join(ClaimCause::Promotion).await.unwrap()).await;
    assert!(is_on_hold(&took_over.store.snapshot().unwrap()));
    second.end_wait(&promoted);
    third.end_wait(&took_over);
    assert!(took_over.stop().await);
    drop((serving, promoted));
}

#[tokio::test]
async fn a_released_hold_does_not_return_when_the_machine_starts_again() {
    let bucket = MemoryStore::default();
    let (first, second) = (Machine::new(&bucket, "first", 1), Machine::new(&bucket, "second", 2));
    let serving = first.serve_with_base().await;
    drop(standby(&second, &first.key()).await);
    let promoted = second.resume(second.join(ClaimCause::PromotionWithHold).await.unwrap()).await;
    let released = promoted.store.commit(ReleaseQueue).await;
    assert!(released.is_ok());
    assert!(!promoted.stop_within(Duration::ZERO).await);
    drop(second.join(ClaimCause::Start).await.unwrap());
    assert!(!is_on_hold_in(&second));
    drop(serving);
}

/// Writes a row that can't be read in place of the hold.
#[derive(Debug, Serialize, Deserialize)]
struct DamageHold;

impl Op for DamageHold {
    type Reply = ();
    type Refusal = Infallible;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<(), OpError<Infallible>> {
        tables.put_bytes(Table::Meta, meta::RESTORED, vec![3, 0]);
        Ok(())
    }
}

#[tokio::test]
async fn a_standby_is_not_past_a_claim_whose_hold_it_could_not_write() {
    let bucket = MemoryStore::default();
    let (first, second) = (Machine::new(&bucket, "first", 1), Machine::new(&bucket, "second", 2));
    let third = Machine::new(&bucket, "third", 3);
    let serving = first.serve_with_base().await;
    assert!(serving.store.commit(DamageHold).await.is_ok());
    serving.settled().await;
    for machine in [&second, &third] {
        drop(standby(machine, &first.key()).await);
    }
    assert!(second.join(ClaimCause::PromotionWithHold).await.is_err());
    let mut following = Standby::open(&third.world, third.path(), first.key(), &[]).await.unwrap();
    let before = following.position();
    assert!(following.follow().await.is_err());
    following.checkpoint().unwrap();
    drop(following);
    let follower = Follower::open(&third.world.disk, third.path(), START, Arc::clone(&third.world.entropy)).unwrap();
    assert_eq!(follower.position().unwrap().slot, before.slot);
    drop(serving);
}

#[tokio::test]
async fn a_restore_that_releases_the_queue_also_releases_a_hold_of_the_log() {
    let bucket = MemoryStore::default();
    let (first, second) = (Machine::new(&bucket, "first", 1), Machine::new(&bucket, "second", 2));
    let serving = first.serve_with_base().await;
    drop(standby(&second, &first.key()).await);
    drop(second.join(ClaimCause::PromotionWithHold).await.unwrap());
    let fork = Machine::new(&bucket, "fork", 4);
    let master = Arc::new(MasterKey::new(&first.key()));
    let identity = fork.world.identity(&master).await.unwrap().unwrap();
    let objects = fork.world.objects(master, identity.store);
    let manifest = base_before(&objects, None).await.unwrap();
    let lineage = Lineage::Fork { holds_queue: false };
    let plan = Rebuild { directory: fork.path(), key: first.key(), lineage, beside: &[] };
    let mut log = build(&objects, &manifest, plan, |_, _| {}).await.unwrap();
    while log.step(&objects, |_| Ok(())).await.unwrap() != FollowStep::End {}
    log.end(&objects).unwrap();
    assert!(is_on_hold(&log.follower.snapshot().unwrap()));
    log.follower.release_queue().unwrap();
    log.follower.checkpoint().unwrap();
    drop(log);
    assert!(!is_on_hold_in(&fork));
    drop(serving);
}

/// Lets the machine continue its store without the bucket, and then in the empty bucket `next`.
async fn continue_in(next: &MemoryStore, machine: Machine) -> (Machine, Serving) {
    let alone = machine.open(None);
    let account = Account::new(AccountId::default(), "Alone".parse().unwrap(), QuotaLimits::default(), START);
    assert!(alone.commit(CreateAccount { account, by: None }).await.is_ok());
    alone.close();
    drop(alone);
    let machine = moved(next, machine, 12);
    let serving = machine.serve().await;
    serving.settled().await;
    (machine, serving)
}

/// Returns the machine with another bucket.
fn moved(next: &MemoryStore, machine: Machine, seed: u64) -> Machine {
    Machine { directory: machine.directory, ..Machine::new(next, machine.world.holder.as_str(), seed) }
}

#[tokio::test]
async fn a_machine_whose_bucket_was_lost_names_the_batches_that_its_successor_lacks() {
    for (restarts, batches_of_successor) in [(0, 0), (0, 9), (2, 0), (1, 9)] {
        let (bucket, next) = (MemoryStore::default(), MemoryStore::default());
        let (first, second) = (Machine::new(&bucket, "first", 1), Machine::new(&bucket, "second", 2));
        let mut serving = first.serve_with_base().await;
        serving.settled().await;
        let following = standby(&second, &first.key()).await;
        let common = following.position().sequence;
        drop(following);
        for _ in 0..3 {
            serving.add_account().await;
            serving.settled().await;
        }
        for _ in 0..restarts {
            first.bucket.set_cut_off(true);
            assert!(!serving.stop_within(Duration::ZERO).await);
            first.bucket.set_cut_off(false);
            serving = first.serve().await;
            serving.add_account().await;
            serving.settled().await;
        }
        let last = serving.store.outbox().unwrap().last();
        first.bucket.set_cut_off(true);
        assert!(!serving.stop_within(Duration::ZERO).await);
        let (second, successor) = continue_in(&next, second).await;
        for _ in 0..batches_of_successor {
            successor.add_account().await;
            successor.settled().await;
        }
        let key = first.key();
        let first = moved(&next, first, 11);
        let found = stranded(&first.world, first.path()).await.unwrap();
        assert!(found.dropped.is_none_or(|dropped| dropped.count <= last - common && dropped.after.is_none()));
        let refused = first.join(ClaimCause::Start).await.err();
        let is_of_directory = |error: &ReplicaError| {
            error.needs_base() || matches!(error, ReplicaError::Stranded { .. } | ReplicaError::Claimed { .. })
        };
        assert!(refused.as_ref().is_some_and(is_of_directory), "{refused:?}");
        let mut following = Standby::open(&first.world, first.path(), key, &[]).await.unwrap();
        let refused = loop {
            match following.follow().await {
                Ok(true) => {}
                followed => break followed.err(),
            }
        };
        let named = match &refused {
            Some(ReplicaError::Stranded { from, to }) => Some((*from, *to)),
            _ => None,
        };
        assert_eq!(named, Some((common + 1, last)), "{refused:?}");
        second.end_wait(&successor);
        assert!(successor.stop().await);
    }
}

#[tokio::test]
async fn a_bisection_finds_the_last_slot_before_a_number() {
    let bucket = MemoryStore::default();
    let machine = Machine::new(&bucket, "first", 1);
    assert!(machine.serve().await.stop().await);
    let master = Arc::new(MasterKey::new(&machine.key()));
    let identity = machine.world.identity(&master).await.unwrap().unwrap();
    let objects = machine.world.objects(master, identity.store);
    let slots = [3, 4, 9, 17, 18];
    for name in bucket.names() {
        bucket.set_object(&name, None);
    }
    for slot in slots {
        bucket.set_object(&ObjectName::Slot(slot).to_string(), Some(bytes::Bytes::from_static(b"slot")));
    }
    for number in 0..25 {
        let last = slots.into_iter().filter(|slot| *slot < number).max();
        assert_eq!(objects.slot_before(number).await.unwrap(), last, "before {number}");
    }
}
