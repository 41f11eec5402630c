//! Tests of claims and slots whose creation the bucket does not answer, refuses, or reports in contradictory ways.

use super::*;
use crate::engine::ports::BucketErrorKind;
use crate::store::replica::ObjectName;

/// Returns a machine that has stopped, and the number of its last slot.
async fn stopped(bucket: &MemoryStore) -> (Machine, u64) {
    let machine = Machine::new(bucket, "first", 1);
    assert!(machine.serve_with_base().await.stop().await);
    let last = bucket.names().iter().rev().find_map(|name| name.strip_prefix("log/")?.parse().ok());
    (machine, last.unwrap())
}

#[tokio::test(start_paused = true)]
async fn each_failed_try_to_claim_is_reported_and_the_next_one_is_the_same_claim() {
    let bucket = MemoryStore::default();
    let (machine, last) = stopped(&bucket).await;
    let faults = [
        BucketFault::NotDone,
        BucketFault::Forbidden,
        BucketFault::AnswerLost,
        BucketFault::Unreachable,
        BucketFault::Throttled,
    ];
    for fault in faults {
        machine.bucket.inject(BucketOperation::Create, fault);
    }
    let mut reported = Vec::new();
    let mut on_wait = |error: &crate::engine::ports::BucketError| {
        reported.push(error.kind);
        true
    };
    let joined = join(&machine.world, machine.path(), ClaimCause::Start, &mut on_wait).await.unwrap();
    assert_eq!(joined.claim.slot, last + 1);
    let (unknown, unreachable) = (BucketErrorKind::Unknown, BucketErrorKind::Unreachable);
    let kinds = [unknown, BucketErrorKind::Forbidden, unknown, unreachable, BucketErrorKind::Throttled];
    assert_eq!(reported, kinds);
    assert!(bucket.object(&ObjectName::Slot(last + 2).to_string()).is_none());
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_is_not_answered_for_long_is_made_again_with_the_current_time() {
    let bucket = MemoryStore::default();
    let (machine, last) = stopped(&bucket).await;
    machine.bucket.draw(|call| (call.operation == BucketOperation::Create).then_some(BucketFault::NotDone));
    let (clock, recovered, mut tries) = (Arc::clone(&machine.clock), machine.bucket.clone(), 0);
    let mut on_wait = |_: &crate::engine::ports::BucketError| {
        clock.advance(Duration::from_secs(50));
        tries += 1;
        if tries == 4 {
            recovered.draw(|_| None);
        }
        true
    };
    let joined = join(&machine.world, machine.path(), ClaimCause::Start, &mut on_wait).await.unwrap();
    assert_eq!(joined.claim.slot, last + 1);
    let claim = joined.objects.slot(last + 1).await.unwrap().unwrap();
    assert!(machine.clock.now().since(claim.link.head.time) <= Duration::from_secs(60));
}

#[tokio::test]
async fn a_slot_that_exists_but_is_not_found_once_does_not_depose_its_writer() {
    let bucket = MemoryStore::default();
    let machine = Machine::new(&bucket, "first", 1);
    let serving = machine.serve_with_base().await;
    serving.settled().await;
    let next = ObjectName::Slot(serving.active.shared().position().slot + 1).to_string();
    let mut left =
        vec![(BucketOperation::Read, BucketFault::Stale), (BucketOperation::Create, BucketFault::AnswerLost)];
    bucket.remember();
    machine.bucket.draw(move |call| {
        let is_next = left.last().is_some_and(|(operation, _)| *operation == call.operation) && call.name == next;
        if is_next { left.pop().map(|(_, fault)| fault) } else { None }
    });
    serving.add_account().await;
    serving.settled().await;
    assert_eq!(serving.active.status(START).role, Role::Active);
    assert!(serving.stop().await);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_finds_no_object_at_all_does_not_confirm_the_lease() {
    let bucket = MemoryStore::default();
    let mut machine = Machine::new(&bucket, "first", 1);
    machine.world.lease = LeaseRules { lease: LEASE, stops: true, is_automatic: false };
    let serving = machine.serve_with_base().await;
    serving.settled().await;
    let lease = &serving.active.shared().lease;
    let passes = async || loop {
        tokio::time::sleep(Duration::from_millis(500)).await;
        machine.clock.advance(Duration::from_millis(500));
    };
    let may_send = async || {
        tokio::select! {
            permitted = lease.may_send() => permitted,
            () = passes() => unreachable!("time does not end"),
        }
    };
    assert!(may_send().await);
    // A proxy without a bucket: reads find nothing, and writes fail.
    machine.bucket.draw(|call| match call.operation {
        BucketOperation::Create => Some(BucketFault::NotDone),
        _ => Some(BucketFault::Stale),
    });
    machine.clock.advance(LEASE * 2);
    assert!(!may_send().await);
    machine.bucket.draw(|_| None);
    let confirmed = async || {
        while !may_send().await {
            tokio::time::sleep(Duration::from_millis(500)).await;
            machine.clock.advance(Duration::from_millis(500));
        }
    };
    confirmed().await;
    // The bucket lost the last slot: another one confirms the lease.
    bucket.set_object(&ObjectName::Slot(serving.active.shared().position().slot).to_string(), None);
    machine.clock.advance(LEASE * 2);
    confirmed().await;
    assert!(serving.stop().await);
}
