//! Tests of restores and of new standbys beside a bucket that does not answer, an active machine that collects, and
//! answers that are wrong.

use std::sync::Mutex;

use super::missing::objects;
use super::*;
use crate::store::open::OpenError;
use crate::store::restore::is_unfinished;

/// Returns the plan of a restore of the store of `machine` into `directory`.
fn plan<'a>(machine: &Machine, directory: &'a Path) -> RestorePlan<'a> {
    let lineage = Lineage::Fork { holds_queue: true };
    RestorePlan { directory, key: machine.key(), lineage, beside: &[], until: None }
}

/// Returns the objects that a restore on the machine `other` reads, as `serving` writes them.
async fn read_by(other: &Machine, serving: &Machine) -> ReplicaObjects {
    let objects = objects(serving).await;
    let (bucket, clock) = (Arc::clone(&other.world.bucket), Arc::clone(&other.world.clock));
    ReplicaObjects { bucket, clock, ..objects }
}

#[tokio::test]
async fn a_new_standby_waits_for_a_throttled_bucket_without_starting_again() {
    let bucket = MemoryStore::default();
    let (first, mut second) = (Machine::new(&bucket, "first", 1), Machine::new(&bucket, "second", 2));
    let serving = first.serve_with_base().await;
    let reports = Arc::new(Mutex::new(Vec::new()));
    let reported = Arc::clone(&reports);
    second.world.on_retry = Arc::new(move |error| reported.lock().unwrap().push(error.is_some()));
    let mut failures = 2;
    second.bucket.draw(move |call| {
        let fails = call.operation == BucketOperation::Read && call.name.starts_with("base/") && failures > 0;
        failures -= usize::from(fails);
        fails.then_some(BucketFault::Throttled)
    });
    drop(standby(&second, &first.key()).await);
    assert_eq!(accounts_in(&second), 1);
    assert_eq!(*reports.lock().unwrap(), [true, true, false], "and reports it");
    assert!(serving.stop().await);
}

#[tokio::test]
async fn a_restore_takes_the_newer_base_if_collection_removes_what_it_reads() {
    for vanishes in ["base/", "log/"] {
        let bucket = MemoryStore::default();
        let (first, second) = (Machine::new(&bucket, "first", 1), Machine::new(&bucket, "second", 2));
        let serving = first.serve_with_base().await;
        for _ in 0..3 {
            serving.add_account().await;
            serving.settled().await;
        }
        let old = bucket.copy();
        serving.base().await;
        serving.settled().await;
        assert!(serving.stop().await);
        // The restore finds the bucket as it was before the newer base, until it reads an object that the newer base
        // replaced.
        let newer = bucket.copy();
        for name in bucket.names() {
            bucket.set_object(&name, None);
        }
        for name in old.names() {
            bucket.set_object(&name, old.object(&name));
        }
        let objects = read_by(&second, &first).await;
        let (changed, mut is_read) = (bucket.clone(), false);
        second.bucket.draw(move |call| {
            let is_slot_of_base = |name: &str| newer.object(name).is_none();
            let is_replaced = call.name.starts_with(vanishes) && !call.name.ends_with("manifest");
            if call.operation == BucketOperation::Read && is_replaced && is_slot_of_base(call.name) && !is_read {
                is_read = true;
                for name in changed.names() {
                    changed.set_object(&name, newer.object(&name));
                }
                for name in newer.names() {
                    changed.set_object(&name, newer.object(&name));
                }
            }
            None
        });
        let lines = Mutex::new(Vec::new());
        let report = |line| lines.lock().unwrap().push(line);
        let restored = super::restore(&objects, &plan(&first, second.path()), &report).await.unwrap();
        assert!(restored.gap.is_none());
        restored.install().unwrap();
        assert_eq!(accounts_in(&second), 4, "{vanishes}");
        let lines = lines.into_inner().unwrap();
        assert!(lines.iter().any(|line| line.contains("newer base")), "{vanishes}: {lines:?}");
    }
}

#[tokio::test]
async fn an_unfinished_restore_is_not_taken_for_a_store_and_a_dropped_one_leaves_nothing() {
    let bucket = MemoryStore::default();
    let (first, second) = (Machine::new(&bucket, "first", 1), Machine::new(&bucket, "second", 2));
    let serving = first.serve_with_base().await;
    let objects = read_by(&second, &first).await;
    let restored = super::restore(&objects, &plan(&first, second.path()), &|_| {}).await.unwrap();
    // A killed process leaves this unfinished restore.
    assert!(is_unfinished(&second.world.disk, second.path()));
    assert!(!Store::exists(second.path()));
    let opened = Standby::open(&second.world, second.path(), first.key(), &[]).await.err();
    assert!(matches!(opened, Some(ReplicaError::Open(OpenError::HalfRestored))), "{opened:?}");
    drop(restored);
    assert_eq!(std::fs::read_dir(second.path()).unwrap().count(), 0);
    let restored = super::restore(&objects, &plan(&first, second.path()), &|_| {}).await.unwrap();
    restored.install().unwrap();
    assert!(!is_unfinished(&second.world.disk, second.path()));
    assert_eq!(accounts_in(&second), 1);
    assert!(serving.stop().await);
}
