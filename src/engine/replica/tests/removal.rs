//! Tests of a bucket that refuses to remove objects, for example because the credentials lack the right.

use std::collections::BTreeSet;

use super::*;
use crate::engine::replica::keys;
use crate::store::replica::ObjectName;

/// Lets the bucket of `machine` refuse removals.
fn refuse_removals(machine: &Machine) {
    machine.bucket.draw(|call| (call.operation == BucketOperation::Remove).then_some(BucketFault::Forbidden));
}

fn manifests(bucket: &MemoryStore) -> usize {
    bucket.names().iter().filter(|name| name.ends_with("manifest")).count()
}

#[tokio::test]
async fn a_refused_removal_leaves_the_base_complete_and_is_shown_until_it_succeeds() {
    let bucket = MemoryStore::default();
    let machine = Machine::new(&bucket, "first", 1);
    let serving = machine.serve_with_base().await;
    serving.add_account().await;
    serving.settled().await;
    refuse_removals(&machine);
    tokio::time::timeout(Duration::from_secs(60), serving.base()).await.expect("the base is complete");
    let bases = manifests(&bucket);
    assert!(bases > 1, "the earlier base is still there");
    serving.add_account().await;
    serving.settled().await;
    let status = serving.active.status(START);
    assert_eq!(status.state, State::Forbidden, "although the log goes on");
    assert!(status.error.is_some_and(|error| error.starts_with("remove of ")));
    assert_eq!(manifests(&bucket), bases, "no base was made because of it");
    machine.bucket.draw(|_| None);
    serving.base().await;
    assert_eq!(serving.active.status(START).state, State::Ok);
    assert_eq!(manifests(&bucket), 1);
    assert!(serving.stop().await);
}

#[tokio::test]
async fn every_expired_key_is_overwritten_although_none_can_be_removed() {
    let bucket = MemoryStore::default();
    let machine = Machine::new(&bucket, "first", 1);
    let serving = machine.serve_with_base().await;
    let expired: Vec<_> = (4096..4100).map(|segment| (START, segment)).collect();
    let name =
        |(bucket, segment): &(Timestamp, u32)| ObjectName::Key { bucket: *bucket, segment: *segment }.to_string();
    for segment in &expired {
        bucket.set_object(&name(segment), Some(bytes::Bytes::from_static(b"sealed")));
        serving.active.shared().keys().insert(*segment);
    }
    machine.clock.advance(Duration::from_secs(1));
    let objects = super::missing::objects(&machine).await;
    let (shared, mut emptied) = (serving.active.shared(), BTreeSet::new());
    refuse_removals(&machine);
    assert!(keys::remove_over(&objects, &serving.store, shared, &mut emptied).await.is_err());
    assert!(expired.iter().all(|segment| bucket.object(&name(segment)).is_some_and(|key| key.is_empty())));
    machine.bucket.draw(|_| None);
    keys::remove_over(&objects, &serving.store, shared, &mut emptied).await.unwrap();
    assert!(expired.iter().all(|segment| bucket.object(&name(segment)).is_none()));
    assert!(serving.stop().await);
}

#[tokio::test]
async fn a_failed_collection_is_repeated_once_the_log_has_recovered() {
    let bucket = MemoryStore::default();
    let machine = Machine::new(&bucket, "first", 1);
    let serving = machine.serve_with_base().await;
    refuse_removals(&machine);
    serving.base().await;
    machine.bucket.draw(|_| Some(BucketFault::Forbidden));
    serving.add_account().await;
    let becomes = |condition: fn(&ReplicaStatus) -> bool| {
        let active = &serving.active;
        let met = async move {
            while !condition(&active.status(START)) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(40), met)
    };
    let fails = |status: &ReplicaStatus| status.error.as_ref().is_some_and(|error| !error.starts_with("remove of "));
    becomes(fails).await.expect("the log fails too");
    machine.bucket.draw(|_| None);
    becomes(|status| status.state == State::Ok).await.expect("regular tries are a minute apart");
    assert!(serving.stop().await);
}
