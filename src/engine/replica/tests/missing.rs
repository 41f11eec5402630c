//! Tests of logs that lack slots, and of other programs' objects between the slots.

use super::*;
use crate::base::secret::MasterKey;
use crate::engine::replica::collection::Collector;
use crate::engine::replica::loss::LossCheck;
use crate::store::replica::ObjectName;
use crate::store::replica::payload::{self, Packer};
use crate::store::replica::slot::SlotBody;

/// Returns the objects of the store that `machine` serves.
pub(super) async fn objects(machine: &Machine) -> ReplicaObjects {
    let master = Arc::new(MasterKey::new(&machine.key()));
    let identity = machine.world.identity(&master).await.unwrap().unwrap();
    machine.world.objects(master, identity.store)
}

/// Starts a machine whose log has a base and `slots` slots after it.
async fn serving_with_slots(machine: &Machine, slots: usize) -> Serving {
    let serving = machine.serve_with_base().await;
    for _ in 0..slots {
        serving.add_account().await;
        serving.settled().await;
    }
    serving
}

fn last_slot(bucket: &MemoryStore) -> String {
    bucket.names().into_iter().rfind(|name| name.starts_with("log/0")).unwrap()
}

#[tokio::test]
async fn a_slot_that_is_lost_after_a_check_is_noticed_by_the_next() {
    let bucket = MemoryStore::default();
    let machine = Machine::new(&bucket, "first", 1);
    let serving = serving_with_slots(&machine, 6).await;
    let objects = objects(&machine).await;
    let newest = base_before(&objects, None).await.unwrap();
    let mut check = LossCheck::new(objects, Arc::clone(&serving.store), Arc::clone(serving.active.shared()));
    assert_eq!(check.look(Some(&newest)).await.unwrap(), Vec::<String>::new());
    let lost = ObjectName::Slot(newest.slot + 2).to_string();
    let bytes = bucket.object(&lost);
    bucket.set_object(&lost, None);
    serving.add_account().await;
    serving.settled().await;
    assert_eq!(check.look(Some(&newest)).await.unwrap(), [lost.as_str()]);
    bucket.set_object(&lost, bytes);
    // The bucket returns to an earlier state.
    let rolled_back = last_slot(&bucket);
    bucket.set_object(&rolled_back, None);
    for _ in 0..2 {
        serving.add_account().await;
        serving.settled().await;
    }
    assert_eq!(check.look(Some(&newest)).await.unwrap(), [rolled_back]);
    serving.stop_within(Duration::ZERO).await;
}

#[tokio::test]
async fn objects_of_other_programs_do_not_stop_a_standby_a_start_or_a_check() {
    let bucket = MemoryStore::default();
    let (first, second) = (Machine::new(&bucket, "first", 1), Machine::new(&bucket, "second", 2));
    let serving = serving_with_slots(&first, 3).await;
    let objects = objects(&first).await;
    let newest = base_before(&objects, None).await.unwrap();
    let between = format!("{}.bak", ObjectName::Slot(newest.slot + 1));
    for name in ["log/README", "log/x", "base/zzz", "log/000000000000-", &between] {
        bucket.set_object(name, Some(bytes::Bytes::from_static(b"note")));
    }
    let mut check = LossCheck::new(objects, Arc::clone(&serving.store), Arc::clone(serving.active.shared()));
    serving.add_account().await;
    serving.settled().await;
    assert_eq!(check.look(Some(&newest)).await.unwrap(), Vec::<String>::new());
    drop((check, standby(&second, &first.key()).await));
    assert!(serving.stop().await);
    let serving = first.serve().await;
    serving.add_account().await;
    serving.settled().await;
    drop(standby(&second, &first.key()).await);
    let promoted = second.resume(second.join(ClaimCause::Promotion).await.unwrap()).await;
    hand_over(serving, &second, promoted).await;
}

#[tokio::test]
async fn a_standby_that_was_cut_off_checks_at_once_whether_its_next_slot_was_collected() {
    let bucket = MemoryStore::default();
    let (first, second) = (Machine::new(&bucket, "first", 1), Machine::new(&bucket, "second", 2));
    let serving = serving_with_slots(&first, 1).await;
    let mut following = standby(&second, &first.key()).await;
    second.bucket.set_cut_off(true);
    for _ in 0..3 {
        serving.add_account().await;
        serving.settled().await;
    }
    serving.base().await;
    assert!(following.follow().await.is_err());
    second.bucket.set_cut_off(false);
    let behind = following.follow().await;
    assert!(matches!(&behind, Err(error) if error.needs_base()), "{behind:?}");
    drop(following);
    let refused = second.join(ClaimCause::Failover).await.err();
    assert!(refused.is_some_and(|error| error.needs_base()));
    assert!(serving.stop().await);
}

#[tokio::test]
async fn a_standby_that_is_behind_reads_several_slots_at_once_and_applies_each_once() {
    let bucket = MemoryStore::default();
    let (first, second) = (Machine::new(&bucket, "first", 1), Machine::new(&bucket, "second", 2));
    let serving = serving_with_slots(&first, 0).await;
    drop(standby(&second, &first.key()).await);
    for _ in 0..60 {
        serving.add_account().await;
        serving.settled().await;
    }
    let mut following = Standby::open(&second.world, second.path(), first.key(), &[]).await.unwrap();
    second.bucket.inject(BucketOperation::Read, BucketFault::Unreachable);
    let mut failures = 0;
    loop {
        match following.follow().await {
            Ok(true) => {}
            Ok(false) => break,
            Err(_) => failures += 1,
        }
    }
    following.checkpoint().unwrap();
    drop(following);
    assert!(failures <= 1);
    assert_eq!(accounts_in(&second), 61);
    assert!(serving.stop().await);
}

#[tokio::test]
async fn a_standby_with_a_wrong_clock_does_not_start_and_a_clock_set_later_destroys_nothing() {
    let bucket = MemoryStore::default();
    bucket.set_date(START);
    let (first, second) = (Machine::new(&bucket, "first", 1), Machine::new(&bucket, "second", 2));
    let serving = serving_with_slots(&first, 1).await;
    let following = standby(&second, &first.key()).await;
    let objects = objects(&second).await;
    second.clock.advance(Duration::from_secs(200));
    assert_eq!(objects.expiry_time(), START + Duration::from_secs(200));
    second.clock.advance(Duration::from_secs(20 * 24 * 3600));
    assert_eq!(objects.expiry_time(), START);
    drop(following);
    let refused = Standby::open(&second.world, second.path(), first.key(), &[]).await.err();
    assert!(matches!(refused, Some(ReplicaError::Clock(_))), "{refused:?}");
    assert!(serving.stop().await);
}

/// Returns the only batch of a slot, with its sequence and time.
fn batch_of(slot: &Slot) -> (u64, Timestamp, Vec<u8>) {
    let SlotBody::Batches(payload) = &slot.body else { panic!("a slot of batches") };
    let piece = payload::pieces(payload).next().unwrap().unwrap();
    assert!(piece.is_last());
    (piece.sequence, piece.committed_at, piece.bytes.to_vec())
}

#[tokio::test]
async fn a_promotion_keeps_the_complete_batches_of_a_slot_that_ends_within_a_batch() {
    let bucket = MemoryStore::default();
    let (first, second) = (Machine::new(&bucket, "first", 1), Machine::new(&bucket, "second", 2));
    let serving = serving_with_slots(&first, 0).await;
    drop(standby(&second, &first.key()).await);
    let objects = objects(&second).await;
    let behind = serving.active.shared().position().slot;
    for _ in 0..2 {
        serving.add_account().await;
        serving.settled().await;
    }
    first.bucket.set_cut_off(true);
    assert!(!serving.stop_within(Duration::ZERO).await);
    // The machine is lost while it sends a backlog that is larger than a slot.
    let one = objects.slot(behind + 1).await.unwrap().unwrap();
    let two = objects.slot(behind + 2).await.unwrap().unwrap();
    let ((sequence, at, batch), (next, next_at, broken_off)) = (batch_of(&one), batch_of(&two));
    let mut packer = Packer::default();
    packer.batch(sequence, at, &batch, 0);
    let mut packer = Packer::with_limit(packer.len() * 3 / 2);
    assert_eq!(packer.batch(sequence, at, &batch, 0), batch.len());
    let taken = packer.batch(next, next_at, &broken_off, 0);
    assert!(taken > 0 && taken < broken_off.len());
    let body = SlotBody::Batches(packer.finish());
    let bytes = one.link.clone().seal(&body, &objects.sealer, &*objects.entropy);
    bucket.set_object(&ObjectName::Slot(behind + 1).to_string(), Some(bytes.into()));
    bucket.set_object(&ObjectName::Slot(behind + 2).to_string(), None);
    let promoted = second.resume(second.join(ClaimCause::PromotionWithHold).await.unwrap()).await;
    assert_eq!(accounts(&promoted.store.snapshot().unwrap()), 2);
    assert!(!promoted.store.outbox().unwrap().has_gap());
    promoted.add_account().await;
    promoted.settled().await;
    let third = Machine::new(&bucket, "third", 3);
    drop(standby(&third, &first.key()).await);
    assert_eq!(accounts_in(&third), 3);
    second.end_wait(&promoted);
    assert!(promoted.stop().await);
}

#[tokio::test]
async fn a_wiped_bucket_gets_a_new_base_at_the_next_start() {
    let bucket = MemoryStore::default();
    let machine = Machine::new(&bucket, "first", 1);
    let serving = machine.serve_with_base().await;
    assert!(serving.stop().await);
    for name in bucket.names() {
        bucket.set_object(&name, None);
    }
    let serving = machine.serve_with_base().await;
    serving.settled().await;
    assert!(serving.stop().await);
    let copy = Machine::new(&bucket, "copy", 3);
    drop(standby(&copy, &machine.key()).await);
    assert_eq!(accounts_in(&copy), 2);
}

#[tokio::test]
async fn a_gap_that_the_writer_begins_is_closed_before_the_next_regular_check() {
    let bucket = MemoryStore::default();
    let machine = Machine::new(&bucket, "first", 1);
    let serving = machine.serve_with_base().await;
    // The disk refused the backlog.
    serving.store.outbox().unwrap().begin_gap();
    let is_closed = || serving.active.shared().resyncs() > 0 && serving.active.status(START).state == State::Ok;
    let closed = async {
        while !is_closed() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(40), closed).await.expect("regular checks are a minute apart");
    serving.settled().await;
    assert!(serving.stop().await);
}

#[tokio::test]
async fn collection_removes_the_key_of_expired_content_before_the_content() {
    let bucket = MemoryStore::default();
    let machine = Machine::new(&bucket, "first", 1);
    let serving = serving_with_slots(&machine, 0).await;
    // Content of an earlier process, which the store does not have any more.
    let (of, segment) = (START, 4096);
    let content = ObjectName::Content { bucket: of, segment, offset: 0 }.to_string();
    let key = ObjectName::Key { bucket: of, segment }.to_string();
    for name in [&content, &key] {
        bucket.set_object(name, Some(bytes::Bytes::from_static(b"sealed")));
    }
    machine.clock.advance(Duration::from_secs(1));
    let objects = objects(&machine).await;
    let shared = Arc::clone(serving.active.shared());
    let mut collector = Collector::new(objects, Arc::clone(&serving.store), shared, Duration::ZERO);
    // The collector is interrupted when it removes the content.
    let cut_off = content.clone();
    machine.bucket.draw(move |call| {
        let is_removal = call.operation == BucketOperation::Remove && call.name == cut_off;
        is_removal.then_some(BucketFault::Unreachable)
    });
    collector.collect().await;
    assert_eq!(bucket.object(&key), None);
    assert!(bucket.object(&content).is_some());
    machine.bucket.draw(|_| None);
    collector.collect().await;
    assert_eq!(bucket.object(&content), None);
    assert!(serving.stop().await);
}

#[tokio::test]
async fn a_standby_can_try_again_after_a_part_of_the_base_was_not_read() {
    let bucket = MemoryStore::default();
    let (first, second) = (Machine::new(&bucket, "first", 1), Machine::new(&bucket, "second", 2));
    let serving = first.serve_with_base().await;
    let is_part = |name: &str| name.starts_with("base/") && !name.ends_with("manifest");
    second.bucket.draw(move |call| {
        (call.operation == BucketOperation::Read && is_part(call.name)).then_some(BucketFault::Forbidden)
    });
    let opened = Standby::open(&second.world, second.path(), first.key(), &[]).await;
    assert!(opened.is_err_and(|error| error.of_bucket().is_some()), "the standby would end");
    second.bucket.draw(|_| None);
    drop(standby(&second, &first.key()).await);
    assert!(serving.stop().await);
}
