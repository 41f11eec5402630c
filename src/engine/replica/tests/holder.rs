//! Tests of the lease of the log's holder: the time for which a successor must wait, and the release that ends it.

use super::*;
use crate::machine::replica_lease::LEASE_MAX;
use crate::store::replica::Kind;

const LONG: Duration = Duration::from_secs(40);

/// Returns a machine that stops without the bucket, and whose lease is `lease`.
fn stopping(bucket: &MemoryStore, name: &str, seed: u64, lease: Duration) -> Machine {
    let mut machine = Machine::new(bucket, name, seed);
    machine.world.lease = LeaseRules { lease, stops: true, is_automatic: true };
    machine
}

#[tokio::test]
async fn a_standby_that_begins_above_the_claim_or_restarts_knows_the_lease_of_the_holder() {
    let bucket = MemoryStore::default();
    let (first, second) = (stopping(&bucket, "first", 1, LONG), stopping(&bucket, "second", 2, LEASE));
    let serving = first.serve().await;
    for _ in 0..5 {
        serving.add_account().await;
        serving.settled().await;
    }
    serving.base().await;
    let begun = standby(&second, &first.key()).await;
    assert!(begun.position().slot > 2, "the base is above the claim");
    assert_eq!(begun.lease(), LONG);
    drop(begun);
    serving.add_account().await;
    serving.settled().await;
    drop(standby(&second, &first.key()).await);
    let restarted = standby(&second, &first.key()).await;
    assert_eq!(restarted.lease(), LONG);
    drop(restarted);
    let joined = second.join(ClaimCause::Failover).await.unwrap();
    assert_eq!(joined.predecessor, Predecessor::Other { lease: LONG });
    assert_eq!(joined.lease.lease, LEASE, "the successor has a lease of its own");
}

#[tokio::test]
async fn the_longest_lease_is_assumed_if_the_claim_is_lost() {
    let bucket = MemoryStore::default();
    let (first, second) = (stopping(&bucket, "first", 1, LEASE), stopping(&bucket, "second", 2, LEASE));
    let serving = first.serve().await;
    serving.add_account().await;
    serving.settled().await;
    serving.base().await;
    bucket.set_object("log/000000000001", None);
    let begun = standby(&second, &first.key()).await;
    assert_eq!(begun.lease(), LEASE_MAX);
}

#[tokio::test]
async fn a_restarted_standby_knows_that_the_log_was_released() {
    let bucket = MemoryStore::default();
    let (first, second) = (Machine::new(&bucket, "first", 1), Machine::new(&bucket, "second", 2));
    let serving = first.serve_with_base().await;
    assert!(serving.stop().await);
    drop(standby(&second, &first.key()).await);
    let restarted = standby(&second, &first.key()).await;
    assert_eq!(restarted.head().map(|head| head.kind), Some(Kind::Release));
    drop(restarted);
    assert_eq!(second.join(ClaimCause::Promotion).await.unwrap().predecessor, Predecessor::Released);
}

#[tokio::test]
async fn an_interrupted_wait_for_a_lease_is_not_forgotten_and_ends() {
    let bucket = MemoryStore::default();
    let (first, second) = (stopping(&bucket, "first", 1, LONG), stopping(&bucket, "second", 2, LEASE));
    let third = stopping(&bucket, "third", 3, LEASE);
    let serving = first.serve_with_base().await;
    drop(standby(&second, &first.key()).await);
    drop(standby(&third, &first.key()).await);
    let promoted = second.resume(second.join(ClaimCause::Promotion).await.unwrap()).await;
    promoted.add_account().await;
    promoted.settled().await;
    assert!(!promoted.stop().await, "a release would let the next machine send at once");
    drop(standby(&third, &first.key()).await);
    assert_eq!(standby(&third, &first.key()).await.lease(), LONG, "the first machine may still send");
    let joined = second.join(ClaimCause::Start).await.unwrap();
    assert_eq!(joined.predecessor, Predecessor::Other { lease: LONG });
    second.clock.advance(LONG * 2);
    assert_eq!(second.join(ClaimCause::Start).await.unwrap().predecessor, Predecessor::Own);
    third.clock.advance(Duration::from_secs(16 * 60));
    assert_eq!(standby(&third, &first.key()).await.lease(), LEASE);
    drop(serving);
}

#[tokio::test]
async fn a_wall_clock_that_is_set_during_the_wait_does_not_end_it() {
    let bucket = MemoryStore::default();
    let (first, second) = (stopping(&bucket, "first", 1, LONG), stopping(&bucket, "second", 2, LEASE));
    let third = stopping(&bucket, "third", 3, LEASE);
    let serving = first.serve_with_base().await;
    for machine in [&second, &third] {
        drop(standby(machine, &first.key()).await);
    }
    let promoted = second.resume(second.join(ClaimCause::Promotion).await.unwrap()).await;
    second.clock.set_ahead(Duration::from_secs(120));
    promoted.add_account().await;
    promoted.settled().await;
    assert!(!promoted.stop().await);
    assert_eq!(standby(&third, &first.key()).await.lease(), LONG, "the first machine may still send");
    for _ in 0..2 {
        let joined = second.join(ClaimCause::Start).await.unwrap();
        assert_eq!(joined.predecessor, Predecessor::Other { lease: LONG });
    }
    // Without the first machine's objects the bucket does not show that it existed.
    for name in bucket.names() {
        bucket.set_object(&name, None);
    }
    let joined = second.join(ClaimCause::Start).await.unwrap();
    assert_eq!(joined.predecessor, Predecessor::Other { lease: LEASE_MAX });
    second.clock.advance(LEASE_MAX * 2);
    assert_eq!(second.join(ClaimCause::Start).await.unwrap().predecessor, Predecessor::Own);
    drop(serving);
}

#[tokio::test]
async fn a_claim_whose_time_would_be_wrong_is_not_made() {
    let bucket = MemoryStore::default();
    bucket.set_date(START);
    let (first, second) = (Machine::new(&bucket, "first", 1), Machine::new(&bucket, "second", 2));
    let serving = first.serve_with_base().await;
    drop(standby(&second, &first.key()).await);
    second.clock.set_ahead(Duration::from_secs(301));
    let refused = second.join(ClaimCause::Promotion).await.err();
    assert!(matches!(refused, Some(ReplicaError::Clock(_))), "{refused:?}");
    assert!(serving.stop().await);
}
