//! Tests of bodies whose content key the bucket does not return: the key was destroyed at its deadline, or an answer
//! was wrong.

use super::*;
use crate::base::id::{DomainId, MessageId, Ulid};
use crate::domain::sending_domain::DomainStatus;
use crate::domain::stream::Stream;
use crate::engine::replica::loss::LossCheck;
use crate::store::check::{KeyPlace, check};
use crate::store::content::Unreadable;
use crate::store::op::accept::Accept;
use crate::store::op::domain::CreateDomain;
use crate::store::replica::ObjectName;
use crate::store::replica::payload::{self, Packer};
use crate::store::replica::slot::{SlotBody, digest};
use crate::store::row::message::MessageRow;
use crate::store::testing::{domain_row, message_row};

const HOUR: Duration = Duration::from_secs(3600);

/// Returns a deadline about two hours after the start.
fn deadline() -> Timestamp {
    Timestamp::from_millis((START.as_millis() / 3_600_000 + 2) * 3_600_000)
}

/// Accepts a message with a body until [`deadline`].
pub(super) async fn accept(serving: &Serving, machine: &Machine) -> (MessageId, MessageRow) {
    let (store, now) = (&serving.store, machine.clock.now());
    let account = Account::new(AccountId::default(), "Example".parse().unwrap(), QuotaLimits::default(), START);
    let account = store.commit(CreateAccount { account, by: None }).await.unwrap_or_else(|_| unreachable!()).id;
    let domain = DomainId(Ulid::new(now, crate::base::entropy::bytes(&*machine.world.entropy)));
    let name = format!("d{}.example.com", now.as_millis());
    let row = domain_row(&name, Stream::Transactional, DomainStatus::Verified);
    assert!(store.commit(CreateDomain { account, id: domain, row }).await.is_ok());
    let id = store.reserve_message_id(now);
    let mut message = message_row(domain, "b@example.net", now);
    message.from = format!("a@{name}").parse().unwrap();
    message.content_expires_at = deadline();
    let sealed = store.content().seal(deadline(), id, b"the body".to_vec());
    let answer = b"{}".to_vec();
    let (sender, place) = std::sync::mpsc::channel();
    let row = message.clone();
    let op = move |place| {
        sender.send(place).unwrap();
        let message = MessageRow { place, ..row };
        Accept { account, key_stream: None, id, message, answer, idempotency: None, stored_bytes_max: 0 }
    };
    assert!(store.commit_with_body(store.announce(), sealed, op).await.is_ok());
    message.place = place.recv().unwrap();
    (id, message)
}

/// Lets every key look absent to `machine`.
fn hide_keys(machine: &Machine, bucket: &MemoryStore) {
    let (with_keys, names) = (bucket.copy(), bucket.names());
    names.iter().filter(|name| name.starts_with("keys/")).for_each(|name| bucket.set_object(name, None));
    bucket.remember();
    with_keys.names().iter().for_each(|name| bucket.set_object(name, with_keys.object(name)));
    machine.bucket.draw(|call| {
        (call.operation == BucketOperation::Read && call.name.starts_with("keys/")).then_some(BucketFault::Stale)
    });
}

/// Restores the store of `first` on the machine `second`, whose bucket and clock it uses.
async fn restored(first: &Machine, second: &Machine) -> Vec<String> {
    let objects = super::missing::objects(first).await;
    let (bucket, clock) = (Arc::clone(&second.world.bucket), Arc::clone(&second.world.clock));
    let objects = ReplicaObjects { bucket, clock, ..objects };
    let lineage = Lineage::Fork { holds_queue: true };
    let plan = RestorePlan { directory: second.path(), key: first.key(), lineage, beside: &[], until: None };
    // Skips the waits before a missing key is read again.
    tokio::time::pause();
    let mut restored = super::restore(&objects, &plan, &|_| {}).await.unwrap();
    let missing = std::mem::take(&mut restored.missing_keys);
    restored.install().unwrap();
    tokio::time::resume();
    missing
}

/// Returns the result of reading the body in the closed store of `machine`, and the failures of a check.
fn read(machine: &Machine, (id, message): &(MessageId, MessageRow)) -> (Result<Vec<u8>, Unreadable>, Vec<String>) {
    let store = machine.open(None);
    let read = store.body(message.place, *id, START);
    store.close();
    drop(store);
    let report = check(machine.path(), START, KeyPlace::WithStore, &mut |_| {}).unwrap();
    (read, report.failures.into_iter().map(|failure| failure.what).collect())
}

#[tokio::test]
async fn a_standby_asks_again_for_a_key_that_was_wrongly_reported_as_missing() {
    let bucket = MemoryStore::default();
    let (first, second) = (Machine::new(&bucket, "first", 1), Machine::new(&bucket, "second", 2));
    let serving = first.serve_with_base().await;
    let before = standby(&second, &first.key()).await;
    drop(before);
    let message = accept(&serving, &first).await;
    serving.settled().await;
    hide_keys(&second, &bucket);
    // The standby follows the log, and reports the key at its next start at the latest.
    drop(standby(&second, &first.key()).await);
    let missing = standby(&second, &first.key()).await;
    assert_eq!(missing.missing_keys().len(), 1);
    drop(missing);
    second.bucket.draw(|_| None);
    let promoted = second.resume(second.join(ClaimCause::Promotion).await.unwrap()).await;
    assert_eq!(promoted.store.body(message.1.place, message.0, START).unwrap(), b"the body");
    hand_over(serving, &second, promoted).await;
}

#[tokio::test]
async fn a_restore_reports_a_key_that_is_missing_before_its_deadline_and_does_not_call_it_expired() {
    let bucket = MemoryStore::default();
    let (first, second) = (Machine::new(&bucket, "first", 1), Machine::new(&bucket, "second", 2));
    let serving = first.serve_with_base().await;
    let message = accept(&serving, &first).await;
    serving.settled().await;
    assert!(serving.stop().await);
    hide_keys(&second, &bucket);
    let missing = restored(&first, &second).await;
    assert!(missing.len() == 1 && missing[0].starts_with("keys/"), "{missing:?}");
    let (body, failures) = read(&second, &message);
    assert!(matches!(body, Err(Unreadable::Failed(_))), "{body:?}");
    assert!(failures.iter().any(|what| what.contains("missing before its deadline")), "{failures:?}");
}

#[tokio::test]
async fn a_restore_shows_content_as_deleted_that_expired_by_the_time_of_the_log() {
    let bucket = MemoryStore::default();
    let (first, second) = (Machine::new(&bucket, "first", 1), Machine::new(&bucket, "second", 2));
    let serving = first.serve_with_base().await;
    let message = accept(&serving, &first).await;
    serving.settled().await;
    first.clock.advance(HOUR * 3);
    serving.add_account().await;
    serving.settled().await;
    let key = bucket.names().into_iter().find(|name| name.starts_with("keys/")).unwrap();
    bucket.set_object(&key, None);
    assert!(serving.stop().await);
    assert_eq!(restored(&first, &second).await, [""; 0]);
    let (body, failures) = read(&second, &message);
    assert!(matches!(body, Err(Unreadable::Gone)), "{body:?}");
    assert_eq!(failures, [""; 0]);
}

#[tokio::test]
async fn messages_of_dropped_batches_are_listed_by_their_time() {
    let bucket = MemoryStore::default();
    let (first, second) = (Machine::new(&bucket, "first", 1), Machine::new(&bucket, "second", 2));
    let serving = first.serve_with_base().await;
    let known = accept(&serving, &first).await.0;
    serving.settled().await;
    // The minute before the end of the log is listed too.
    first.clock.advance(Duration::from_secs(120));
    serving.add_account().await;
    serving.settled().await;
    drop(standby(&second, &first.key()).await);
    first.bucket.set_cut_off(true);
    first.clock.advance(HOUR);
    let lost = accept(&serving, &first).await.0;
    serving.store.outbox().unwrap().begin_gap();
    assert!(!serving.stop_within(Duration::ZERO).await);
    first.bucket.set_cut_off(false);
    let promoted = second.resume(second.join(ClaimCause::Promotion).await.unwrap()).await;
    promoted.add_account().await;
    promoted.settled().await;
    let found = stranded(&first.world, first.path()).await.unwrap();
    assert!(found.dropped.is_some_and(|dropped| dropped.count > 0 && dropped.after.is_some()), "{found:?}");
    let listed: Vec<_> = found.messages.iter().map(|message| message.id).collect();
    assert!(listed.contains(&lost) && !listed.contains(&known), "{listed:?}");
    second.end_wait(&promoted);
    assert!(promoted.stop().await);
}

#[tokio::test]
async fn a_slot_with_the_rest_of_a_batch_is_applied_again_after_its_key_could_not_be_read() {
    let bucket = MemoryStore::default();
    let (first, second) = (Machine::new(&bucket, "first", 1), Machine::new(&bucket, "second", 2));
    let serving = first.serve_with_base().await;
    drop(standby(&second, &first.key()).await);
    accept(&serving, &first).await;
    serving.settled().await;
    let number = serving.active.shared().position().slot;
    first.bucket.set_cut_off(true);
    assert!(!serving.stop_within(Duration::ZERO).await);
    let objects = super::missing::objects(&second).await;
    // The batch with the body is split over two slots.
    let slot = objects.slot(number).await.unwrap().unwrap();
    let SlotBody::Batches(payload) = &slot.body else { panic!("a slot of batches") };
    let pieces: Vec<_> = payload::pieces(payload).map(Result::unwrap).collect();
    let mut packer = Packer::with_limit(payload.len() - 10);
    let taken =
        pieces.iter().map(|piece| packer.batch(piece.sequence, piece.committed_at, piece.bytes, 0)).last().unwrap();
    let last = pieces.last().unwrap();
    assert!(taken > 0 && taken < last.bytes.len());
    let beginning = slot.link.clone().seal(&SlotBody::Batches(packer.finish()), &objects.sealer, &*objects.entropy);
    packer.batch(last.sequence, last.committed_at, last.bytes, taken);
    let mut link = slot.link.clone();
    (link.head.number, link.previous) = (number + 1, digest(&beginning));
    let rest = link.seal(&SlotBody::Batches(packer.finish()), &objects.sealer, &*objects.entropy);
    for (number, bytes) in [(number, beginning), (number + 1, rest)] {
        bucket.set_object(&ObjectName::Slot(number).to_string(), Some(bytes.into()));
    }
    let mut following = Standby::open(&second.world, second.path(), first.key(), &[]).await.unwrap();
    let mut has_failed = false;
    second.bucket.draw(move |call| {
        let fails = call.name.starts_with("keys/") && !std::mem::replace(&mut has_failed, true);
        fails.then_some(BucketFault::Throttled)
    });
    let mut failures = 0;
    loop {
        match following.follow().await {
            Ok(true) => {}
            Ok(false) => break,
            Err(error) => {
                assert!(error.of_bucket().is_some(), "{error}");
                failures += 1;
            }
        }
    }
    assert_eq!(failures, 1);
    assert_eq!(following.position().sequence, last.sequence);
}

#[tokio::test]
async fn a_key_that_the_bucket_lost_before_its_deadline_is_written_again_and_no_later_one() {
    let bucket = MemoryStore::default();
    let (first, second) = (Machine::new(&bucket, "first", 1), Machine::new(&bucket, "second", 2));
    let serving = first.serve_with_base().await;
    let message = accept(&serving, &first).await;
    serving.settled().await;
    let objects = super::missing::objects(&first).await;
    let key = bucket.names().into_iter().find(|name| name.starts_with("keys/")).unwrap();
    let mut check = LossCheck::new(objects.clone(), Arc::clone(&serving.store), Arc::clone(serving.active.shared()));
    for lost in [None, Some(bytes::Bytes::new())] {
        bucket.set_object(&key, lost);
        serving.add_account().await;
        serving.settled().await;
        assert_eq!(check.look(None).await.unwrap(), Vec::<String>::new(), "no base is needed");
        assert!(bucket.object(&key).is_some_and(|bytes| !bytes.is_empty()));
    }
    drop(check);
    // A process that has not written the key finds it by the base.
    serving.base().await;
    assert!(serving.stop().await);
    bucket.set_object(&key, None);
    let serving = first.serve().await;
    serving.add_account().await;
    serving.settled().await;
    let newest = base_before(&objects, None).await.unwrap();
    let mut check = LossCheck::new(objects, Arc::clone(&serving.store), Arc::clone(serving.active.shared()));
    assert_eq!(check.look(Some(&newest)).await.unwrap(), Vec::<String>::new());
    assert_eq!(restored(&first, &second).await, [""; 0]);
    assert_eq!(read(&second, &message).0.unwrap(), b"the body");
    first.clock.advance(HOUR * 3);
    bucket.set_object(&key, None);
    serving.add_account().await;
    serving.settled().await;
    assert_eq!(check.look(Some(&newest)).await.unwrap(), Vec::<String>::new());
    assert_eq!(bucket.object(&key), None);
    assert!(serving.stop().await);
}
