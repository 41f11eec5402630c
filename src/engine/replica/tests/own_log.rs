//! Tests of the start on a log that this directory wrote itself: after slots were lost or the bucket was emptied, and
//! beside a copy of the directory.

use super::sync::copy;
use super::*;
use crate::base::secret::MasterKey;
use crate::store::replica::ObjectName;

const LONG: Duration = Duration::from_secs(40);

fn clear(bucket: &MemoryStore) {
    for name in bucket.names() {
        bucket.set_object(&name, None);
    }
}

/// Writes beats, whose slots no batch records.
async fn beats(serving: &Serving, count: usize) {
    let mut slots = serving.active.shared().slots();
    for _ in 0..count {
        slots.mark_unchanged();
        serving.active.shared().ask_for_beat();
        slots.changed().await.unwrap();
    }
}

/// Starts the machine, whose log has a gap, and checks that a new standby has everything after the next base.
async fn continues_with_a_new_base(bucket: &MemoryStore, machine: &Machine, accounts: usize) {
    let serving = machine.serve().await;
    serving.add_account().await;
    // The base is made without a request.
    let mut slots = serving.active.shared().slots();
    while serving.store.outbox().unwrap().owes_base() || serving.active.shared().log_since_base().0.is_none() {
        tokio::select! {
            _ = slots.changed() => {}
            () = tokio::task::yield_now() => {}
        }
    }
    serving.settled().await;
    let other = Machine::new(bucket, "other", 9);
    drop(standby(&other, &machine.key()).await);
    assert_eq!(accounts_in(&other), accounts);
    assert!(serving.stop().await);
}

#[tokio::test]
async fn a_machine_that_wrote_into_an_emptied_bucket_starts_and_makes_a_new_base() {
    for is_released in [false, true] {
        let bucket = MemoryStore::default();
        let machine = Machine::new(&bucket, "first", 1);
        let serving = machine.serve_with_base().await;
        serving.settled().await;
        beats(&serving, 2).await;
        clear(&bucket);
        if is_released {
            assert!(serving.stop().await);
        } else {
            serving.add_account().await;
            serving.settled().await;
            machine.bucket.set_cut_off(true);
            assert!(!serving.stop_within(Duration::ZERO).await);
            machine.bucket.set_cut_off(false);
        }
        assert!(bucket.names().iter().any(|name| name.starts_with("log/")));
        continues_with_a_new_base(&bucket, &machine, if is_released { 2 } else { 3 }).await;
    }
}

#[tokio::test]
async fn a_start_continues_after_a_lost_slot_of_its_own_epoch_but_not_of_another() {
    for is_own in [true, false] {
        let bucket = MemoryStore::default();
        let machine = Machine::new(&bucket, "first", 1);
        let serving = machine.serve_with_base().await;
        serving.settled().await;
        beats(&serving, 1).await;
        let lost = ObjectName::Slot(serving.active.shared().position().slot).to_string();
        let machine = match is_own {
            true => machine,
            false => {
                // An older copy of the disk, whose original started again and lost its last batches.
                let directory = tempfile::tempdir().unwrap();
                copy(machine.path(), directory.path());
                machine.bucket.set_cut_off(true);
                assert!(!serving.stop_within(Duration::ZERO).await);
                machine.bucket.set_cut_off(false);
                let serving = machine.serve().await;
                serving.add_account().await;
                assert!(serving.stop().await);
                bucket.set_object(&lost, None);
                let older = Machine { directory, ..Machine::new(&bucket, "first", 7) };
                assert!(older.join(ClaimCause::Start).await.is_err_and(|error| error.needs_base()));
                continue;
            }
        };
        assert!(serving.stop().await);
        bucket.set_object(&lost, None);
        continues_with_a_new_base(&bucket, &machine, 2).await;
    }
}

#[tokio::test]
async fn a_promoted_standby_that_starts_again_reports_that_its_bucket_was_emptied() {
    let bucket = MemoryStore::default();
    let (first, second) = (Machine::new(&bucket, "first", 1), Machine::new(&bucket, "second", 2));
    let serving = first.serve_with_base().await;
    drop(standby(&second, &first.key()).await);
    let promoted = second.resume(second.join(ClaimCause::Promotion).await.unwrap()).await;
    promoted.add_account().await;
    promoted.settled().await;
    assert!(!promoted.stop_within(Duration::ZERO).await);
    assert!(standby(&second, &first.key()).await.owns_log());
    clear(&bucket);
    let emptied = Standby::open(&second.world, second.path(), first.key(), &[]).await.err();
    assert!(matches!(emptied, Some(ReplicaError::Emptied)), "{emptied:?}");
    assert!(matches!(
        Standby::open(&first.world, tempfile::tempdir().unwrap().path(), first.key(), &[]).await.err(),
        Some(ReplicaError::NoBase)
    ));
    drop(serving);
}

/// Returns a machine with a lease that ends.
fn stopping(bucket: &MemoryStore, name: &str, seed: u64, place: u64) -> Machine {
    let mut machine = Machine::new(bucket, name, seed);
    machine.world.lease = LeaseRules { lease: LONG, stops: true, is_automatic: false };
    machine.world.place = place;
    machine
}

#[tokio::test]
async fn a_copy_of_a_directory_waits_for_the_lease_of_the_original_and_the_original_for_its() {
    let bucket = MemoryStore::default();
    let original = stopping(&bucket, "first", 1, 1);
    let serving = original.serve().await;
    serving.add_account().await;
    serving.settled().await;
    original.bucket.set_cut_off(true);
    assert!(!serving.stop_within(Duration::ZERO).await);
    original.bucket.set_cut_off(false);
    let directory = tempfile::tempdir().unwrap();
    copy(original.path(), directory.path());
    let clone = Machine { directory, ..stopping(&bucket, "first", 2, 2) };
    assert_eq!(original.join(ClaimCause::Start).await.unwrap().predecessor, Predecessor::Own);
    let waits = Predecessor::Other { lease: LONG };
    // The original is active and idle.
    assert_eq!(clone.join(ClaimCause::Start).await.unwrap().predecessor, waits);
    assert_eq!(clone.join(ClaimCause::Start).await.unwrap().predecessor, waits, "its wait is not over");
    assert_eq!(original.join(ClaimCause::Start).await.unwrap().predecessor, waits);
}

#[tokio::test]
async fn a_copy_of_a_standby_does_not_take_the_promoted_ones_claim_for_its_own() {
    let bucket = MemoryStore::default();
    let first = stopping(&bucket, "first", 1, 1);
    let second = stopping(&bucket, "second", 2, 2);
    let serving = first.serve_with_base().await;
    drop(standby(&second, &first.key()).await);
    let directory = tempfile::tempdir().unwrap();
    copy(second.path(), directory.path());
    let clone = Machine { directory, ..stopping(&bucket, "second", 3, 3) };
    drop(second.join(ClaimCause::Promotion).await.unwrap());
    assert!(!standby(&clone, &first.key()).await.owns_log());
    assert!(standby(&second, &first.key()).await.owns_log());
    let rebooted = Machine { directory: second.directory, ..stopping(&bucket, "second", 4, 4) };
    assert!(standby(&rebooted, &first.key()).await.owns_log());
    drop(serving);
}

#[tokio::test]
async fn after_the_bucket_was_emptied_only_the_directory_of_the_active_machine_sends_at_once() {
    let bucket = MemoryStore::default();
    let (first, second) = (stopping(&bucket, "first", 1, 1), stopping(&bucket, "second", 2, 2));
    let serving = first.serve_with_base().await;
    drop(standby(&second, &first.key()).await);
    clear(&bucket);
    let joined = second.join(ClaimCause::Start).await.unwrap();
    assert_eq!(joined.predecessor, Predecessor::Other { lease: crate::machine::replica_lease::LEASE_MAX });
    first.bucket.set_cut_off(true);
    assert!(!serving.stop_within(Duration::ZERO).await);
    first.bucket.set_cut_off(false);
    clear(&bucket);
    assert_eq!(first.join(ClaimCause::Start).await.unwrap().predecessor, Predecessor::Own);
}

#[tokio::test]
async fn a_claim_removes_a_base_that_was_to_replace_the_store() {
    let bucket = MemoryStore::default();
    let machine = Machine::new(&bucket, "first", 1);
    let serving = machine.serve().await;
    serving.add_account().await;
    assert!(serving.stop().await);
    for name in ["resync", "resync.whole"] {
        std::fs::create_dir_all(machine.path().join(name).join("content")).unwrap();
    }
    drop(machine.join(ClaimCause::Start).await.unwrap());
    assert!(!machine.path().join("resync").exists() && !machine.path().join("resync.whole").exists());
}

#[tokio::test]
async fn slots_are_read_ahead_only_up_to_a_size_and_all_are_applied() {
    let bucket = MemoryStore::default();
    let machine = Machine::new(&bucket, "first", 1);
    let serving = machine.serve().await;
    serving.base().await;
    let master = Arc::new(MasterKey::new(&machine.key()));
    let identity = machine.world.identity(&master).await.unwrap().unwrap();
    let objects = machine.world.objects(master, identity.store);
    let behind = serving.active.shared().position().slot;
    for _ in 0..12 {
        serving.add_account().await;
        serving.settled().await;
    }
    let large = ObjectName::Slot(behind + 8).to_string();
    let bytes = bucket.object(&large).unwrap();
    let size = usize::try_from(super::super::read_ahead::AHEAD_BYTES_MAX + 1).unwrap();
    bucket.set_object(&large, Some(vec![0; size].into()));
    let mut slots = super::super::read_ahead::ReadAhead::default();
    for number in behind + 1..behind + 8 {
        assert_eq!(slots.next(&objects, number).await.unwrap().unwrap().link.head.number, number);
    }
    assert!(slots.bytes_ahead() < size, "the large slot is not kept in memory");
    assert!(slots.next(&objects, behind + 8).await.is_err(), "it is read when it is the next one");
    bucket.set_object(&large, Some(bytes));
    for number in behind + 8..=behind + 12 {
        assert_eq!(slots.next(&objects, number).await.unwrap().unwrap().link.head.number, number);
    }
    assert!(serving.stop().await);
}
