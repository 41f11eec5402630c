//! Tests of synchronous replication, and of machines that return with an older state.

use super::*;
use crate::store::error::{OpError, StoreError};

/// Creates a machine whose answers wait for the bucket.
fn synchronous(bucket: &MemoryStore, name: &str, seed: u64, stops: bool) -> Machine {
    let rule = SyncRule { timeout: Duration::from_millis(250), stops };
    Machine { sync: Some(rule), ..Machine::new(bucket, name, seed) }
}

async fn commit(store: &Store) -> Result<(), StoreError> {
    let account = Account::new(AccountId::default(), "Example".parse().unwrap(), QuotaLimits::default(), START);
    match store.commit(CreateAccount { account, by: None }).await {
        Ok(_) => Ok(()),
        Err(OpError::Failed(error)) => Err(error),
        Err(OpError::Refused(_)) => panic!("the account was refused"),
    }
}

#[tokio::test]
async fn an_answer_waits_for_the_bucket_and_batches_in_doubt_stay_invisible() {
    let bucket = MemoryStore::default();
    let machine = synchronous(&bucket, "first", 1, true);
    let serving = machine.serve().await;
    serving.base().await;
    commit(&serving.store).await.unwrap();
    let outbox = Arc::clone(serving.store.outbox().unwrap());
    assert!(!outbox.has_unconfirmed(), "the bucket has all answered batches");
    machine.bucket.set_cut_off(true);
    assert!(matches!(commit(&serving.store).await, Err(StoreError::InDoubt)));
    assert!(outbox.is_in_doubt());
    assert_eq!(accounts(&serving.store.snapshot().unwrap()), 1);
    machine.bucket.set_cut_off(false);
    serving.settled().await;
    commit(&serving.store).await.unwrap();
    assert_eq!(accounts(&serving.store.snapshot().unwrap()), 3, "a batch in doubt is visible once the bucket has it");
    assert!(!outbox.is_in_doubt());
    assert!(serving.stop().await);
}

#[tokio::test]
async fn with_serve_an_answer_waits_once_and_then_the_store_continues_without_the_bucket() {
    let bucket = MemoryStore::default();
    let machine = synchronous(&bucket, "first", 1, false);
    let serving = machine.serve().await;
    serving.base().await;
    commit(&serving.store).await.unwrap();
    machine.bucket.set_cut_off(true);
    for _ in 0..3 {
        commit(&serving.store).await.unwrap();
    }
    assert_eq!(serving.active.status(START).state, State::Degraded);
    machine.bucket.set_cut_off(false);
    serving.settled().await;
    assert_eq!(serving.active.status(START).state, State::Ok);
    assert!(serving.stop().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn after_an_outage_under_load_answers_wait_for_the_bucket_again_although_it_never_has_everything() {
    let bucket = MemoryStore::default();
    let rule = SyncRule { timeout: Duration::from_secs(1), stops: false };
    let machine = Machine { sync: Some(rule), ..Machine::new(&bucket, "first", 1) };
    let serving = machine.serve().await;
    serving.base().await;
    machine.bucket.set_cut_off(true);
    commit(&serving.store).await.unwrap();
    let outbox = Arc::clone(serving.store.outbox().unwrap());
    assert!(outbox.is_degraded());
    // Each confirmation of a slot finds a batch that was committed after the slot was built.
    let (store, committed) = (Arc::clone(&serving.store), Arc::clone(&outbox));
    machine.bucket.draw(move |call| {
        if call.operation == BucketOperation::Create && call.name.starts_with("log/") && committed.is_degraded() {
            let last = committed.last();
            let account = Account::new(AccountId::default(), "Example".parse().unwrap(), QuotaLimits::default(), START);
            store.post(CreateAccount { account, by: None }, drop);
            while committed.last() == last {
                std::thread::yield_now();
            }
        }
        None
    });
    machine.bucket.set_cut_off(false);
    let recovered = async {
        while outbox.is_degraded() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), recovered).await.expect("the store waits for the bucket again");
    machine.bucket.draw(|_| None);
    serving.settled().await;
    assert_eq!(serving.active.status(START).state, State::Ok);
    assert!(serving.stop().await);
}

#[tokio::test]
async fn a_failover_loses_no_answered_batch_and_the_old_machine_stops_answering() {
    let bucket = MemoryStore::default();
    let (first, second) = (synchronous(&bucket, "first", 1, true), synchronous(&bucket, "second", 2, true));
    let serving = first.serve().await;
    serving.base().await;
    for _ in 0..4 {
        commit(&serving.store).await.unwrap();
    }
    drop(standby(&second, &first.key()).await);
    first.bucket.set_cut_off(true);
    assert!(matches!(commit(&serving.store).await, Err(StoreError::InDoubt)));
    let promoted = second.resume(second.join(ClaimCause::Promotion).await.unwrap()).await;
    assert_eq!(accounts(&promoted.store.snapshot().unwrap()), 4);
    first.bucket.set_cut_off(false);
    serving.active.shared().deposed().await;
    let late = commit(&serving.store).await;
    assert!(matches!(late, Err(StoreError::InDoubt | StoreError::Unconfirmed)), "{late:?}");
    assert!(!serving.stop().await);
    commit(&promoted.store).await.unwrap();
    second.end_wait(&promoted);
    assert!(promoted.stop().await);
}

#[tokio::test]
async fn a_store_can_close_while_a_batch_waits_and_the_next_start_sends_the_batch() {
    let bucket = MemoryStore::default();
    let machine = synchronous(&bucket, "first", 1, true);
    let serving = machine.serve().await;
    machine.bucket.set_cut_off(true);
    assert!(matches!(commit(&serving.store).await, Err(StoreError::InDoubt)));
    serving.store.outbox().unwrap().end_waits();
    assert!(!serving.stop_within(Duration::ZERO).await);
    machine.bucket.set_cut_off(false);
    let serving = machine.serve().await;
    serving.settled().await;
    assert_eq!(accounts(&serving.store.snapshot().unwrap()), 1);
    assert!(serving.stop().await);
}

#[tokio::test]
async fn after_a_gap_answers_wait_for_the_base_that_makes_them_restorable() {
    for stops in [true, false] {
        let bucket = MemoryStore::default();
        let machine = synchronous(&bucket, "first", 1, stops);
        let serving = machine.serve().await;
        serving.base().await;
        commit(&serving.store).await.unwrap();
        let outbox = Arc::clone(serving.store.outbox().unwrap());
        machine.bucket.draw(|call| call.name.starts_with("base/").then_some(BucketFault::Unreachable));
        outbox.begin_gap();
        let base = serving.active.shared().base_requests.ask();
        while outbox.has_gap() || outbox.resumed().is_some() {
            tokio::task::yield_now().await;
        }
        let answer = commit(&serving.store).await;
        if stops {
            assert!(matches!(answer, Err(StoreError::InDoubt)), "{answer:?}");
            assert_eq!(accounts(&serving.store.snapshot().unwrap()), 1);
        } else {
            answer.unwrap();
            assert!(outbox.is_degraded(), "the bucket has the batch, but not its base");
        }
        machine.bucket.draw(|_| None);
        base.await.unwrap();
        serving.settled().await;
        commit(&serving.store).await.unwrap();
        assert_eq!(accounts(&serving.store.snapshot().unwrap()), 3);
        assert!(!outbox.is_degraded() && !outbox.is_in_doubt());
        assert!(serving.stop().await);
    }
}

#[tokio::test]
async fn a_machine_with_an_older_disk_state_applies_the_missing_batches_from_the_log() {
    let bucket = MemoryStore::default();
    let machine = Machine::new(&bucket, "first", 1);
    let serving = machine.serve().await;
    serving.add_account().await;
    assert!(serving.stop().await);
    let older = tempfile::tempdir().unwrap();
    copy(machine.path(), older.path());
    let serving = machine.serve().await;
    for _ in 0..3 {
        serving.add_account().await;
    }
    assert!(serving.stop().await);
    let older = Machine { directory: older, ..Machine::new(&bucket, "first", 7) };
    let serving = older.serve().await;
    assert_eq!(accounts(&serving.store.snapshot().unwrap()), 4);
    serving.add_account().await;
    assert!(serving.stop().await);
}

/// Copies a directory with its content.
pub(super) fn copy(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            std::fs::create_dir(&target).unwrap();
            copy(&entry.path(), &target);
        } else if entry.file_type().unwrap().is_file() {
            std::fs::copy(entry.path(), &target).unwrap();
        }
    }
}

#[tokio::test]
async fn automatic_failover_claims_a_log_only_if_it_did_not_grow() {
    let bucket = MemoryStore::default();
    let (first, second) = (Machine::new(&bucket, "first", 1), Machine::new(&bucket, "second", 2));
    let serving = first.serve().await;
    serving.base().await;
    drop(standby(&second, &first.key()).await);
    serving.add_account().await;
    serving.settled().await;
    assert!(matches!(second.join(ClaimCause::Failover).await, Err(ReplicaError::Moved)));
    drop(standby(&second, &first.key()).await);
    let promoted = second.resume(second.join(ClaimCause::Failover).await.unwrap()).await;
    hand_over(serving, &second, promoted).await;
}

#[tokio::test]
async fn a_killed_machine_continues_its_log_although_a_base_replaced_the_slots_after_its_last_batch() {
    let bucket = MemoryStore::default();
    let machine = Machine::new(&bucket, "first", 1);
    let serving = machine.serve().await;
    serving.add_account().await;
    serving.settled().await;
    // No batch records that the bucket has these slots.
    let mut slots = serving.active.shared().slots();
    for _ in 0..3 {
        slots.mark_unchanged();
        serving.active.shared().ask_for_beat();
        slots.changed().await.unwrap();
    }
    serving.base().await;
    assert_eq!(bucket.object("log/000000000002"), None, "the base replaced it");
    machine.bucket.set_cut_off(true);
    assert!(!serving.stop_within(Duration::ZERO).await);
    machine.bucket.set_cut_off(false);
    let serving = machine.serve().await;
    assert!(serving.stop().await);
}
