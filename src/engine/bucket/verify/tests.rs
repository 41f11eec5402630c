//! Tests that an intact replica has no findings, and that each defect has its own finding.

use super::*;
use crate::base::digest::{Digest, sha256};
use crate::base::entropy::SeededEntropy;
use crate::base::id::Ulid;
use crate::engine::memory_bucket::{BucketFault, MemoryStore};
use crate::engine::ports::BucketOperation;
use crate::store::replica::claim::{Claim, ClaimCause};
use crate::store::replica::content;
use crate::store::replica::manifest::{ContentRange, Manifest, PartInfo};
use crate::store::replica::payload::Packer;
use crate::store::replica::slot::{Link, SlotBody};
use crate::store::replica::{Head, Kind};

const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);
/// End of the content's bucket.
const BUCKET: Timestamp = Timestamp::from_millis(1_700_003_600_000);
const KEY: &str = "keys/1700003600000/000001";
const CONTENT: &str = "content/1700003600000/000001/000000000000000";

fn master() -> Arc<MasterKey> {
    Arc::new(MasterKey::new(&[7; 32]))
}

fn head(number: u64, epoch: u64) -> Head {
    Head { kind: Kind::Store, number, epoch, holder: "one".parse().unwrap(), time: NOW }
}

/// A replica as a machine creates it.
struct Replica {
    store: MemoryStore,
    sealer: Sealer,
    entropy: SeededEntropy,
    slots: u64,
    last: Digest,
    sequence: u64,
}

impl Replica {
    fn new() -> Self {
        let store = MemoryStore::default();
        let identity = Identity { store: Ulid([1; 16]), row_format: 5, head: head(0, 0) };
        store.set_object("store", Some(identity.encode(&master()).into()));
        let sealer = Sealer::new(master(), Ulid([1; 16]), true);
        Self { store, sealer, entropy: SeededEntropy::new(1), slots: 0, last: [0; 32], sequence: 0 }
    }

    fn put(&self, name: &ObjectName, bytes: Vec<u8>) {
        self.store.set_object(&name.to_string(), Some(bytes.into()));
    }

    fn slot(&mut self, epoch: u64, body: &SlotBody) {
        self.slots += 1;
        let link = Link { head: head(self.slots, epoch), row_format: 5, previous: self.last };
        let bytes = link.seal(body, &self.sealer, &self.entropy);
        self.last = slot_digest(&bytes);
        self.put(&ObjectName::Slot(self.slots), bytes);
    }

    fn claim(&mut self, epoch: u64) {
        let (program, cause) = ("1".to_owned(), ClaimCause::Start);
        self.slot(
            epoch,
            &SlotBody::Claim(Claim { program, cause, lease_millis: 0, sequence: self.sequence, place: 0 }),
        );
    }

    fn batch(&mut self, epoch: u64) {
        self.sequence += 1;
        let mut packer = Packer::default();
        packer.batch(self.sequence, NOW, b"rows", 0);
        self.slot(epoch, &SlotBody::Batches(packer.finish()));
    }

    fn base(&mut self) {
        let (slot, name) = (self.slots, ObjectName::Part { slot: self.slots, part: 1 });
        let part = content::seal_part(&name, head(slot, 1), b"rows", &self.sealer, &self.entropy);
        let parts = vec![PartInfo { bytes: part.len() as u64, sha256: sha256(&part) }];
        self.put(&name, part);
        let (bucket, segment) = (BUCKET, 1);
        let piece = ObjectName::Content { bucket, segment, offset: 0 };
        self.put(&piece, content::seal_piece(&piece, head(1, 1), &[3; 99], &self.sealer, &self.entropy));
        let key = ObjectName::Key { bucket, segment };
        self.put(&key, content::seal_key(&key, head(1, 1), &[4; 128], &self.sealer, &self.entropy));
        let content = vec![ContentRange { bucket, segment, offset: 0, length: 99 }];
        let (sequence, taken_at) = (self.sequence, NOW);
        let manifest =
            Manifest { slot, slot_sha256: self.last, sequence, taken_at, row_format: 5, rows: 1, parts, content };
        self.put(&ObjectName::Manifest(slot), manifest.seal(head(slot, 1), &self.sealer, &self.entropy));
    }

    /// Two epochs with a base in the first.
    fn usual() -> Self {
        let mut replica = Self::new();
        replica.claim(1);
        replica.batch(1);
        replica.base();
        replica.batch(1);
        replica.slot(1, &SlotBody::Release);
        replica.claim(2);
        replica.batch(2);
        replica.slot(2, &SlotBody::Beat);
        replica
    }

    async fn found(&self, deep: bool) -> Vec<(String, String)> {
        let depth = Depth { deep, now: NOW, key_grace: Duration::from_secs(3600) };
        let report = verify(&self.store.bucket(), master(), depth).await.unwrap();
        assert_eq!(report.ok, report.findings.is_empty());
        report.findings.into_iter().map(|finding| (finding.object, finding.problem)).collect()
    }

    /// Asserts that there is one finding about `object`, whose problem contains `problem`.
    async fn expect(&self, deep: bool, object: &str, problem: &str) {
        let found = self.found(deep).await;
        let is_it = |(name, text): &(String, String)| name == object && text.contains(problem);
        assert!(found.len() == 1 && found.iter().all(is_it), "{object}: {found:?}");
    }
}

fn slot_digest(bytes: &[u8]) -> Digest {
    crate::store::replica::slot::digest(bytes)
}

#[tokio::test]
async fn an_intact_replica_has_no_findings() {
    let replica = Replica::usual();
    for deep in [false, true] {
        assert_eq!(replica.found(deep).await, []);
    }
    let depth = Depth { deep: true, now: NOW, key_grace: Duration::from_secs(3600) };
    let report = verify(&replica.store.bucket(), master(), depth).await.unwrap();
    assert_eq!((report.slots, report.bases), (7, 1));
    assert_eq!(serde_json::to_string(&report).unwrap(), "{\"ok\":true,\"slots\":7,\"bases\":1,\"findings\":[]}");
    assert_eq!(Replica::new().found(true).await, []);
}

#[tokio::test]
async fn collected_slots_below_the_oldest_base_are_not_reported() {
    let replica = Replica::usual();
    replica.store.set_object("log/000000000001", None);
    assert_eq!(replica.found(true).await, []);
}

#[tokio::test]
async fn a_missing_or_replaced_slot_is_reported() {
    let replica = Replica::usual();
    replica.store.set_object("log/000000000003", None);
    replica.expect(false, "log/000000000003", "is missing, but later slots exist").await;
    let replica = Replica::usual();
    let other = Link {
        head: head(4, 1),
        row_format: 5,
        previous: slot_digest(&replica.store.object("log/000000000003").unwrap()),
    };
    replica.put(&ObjectName::Slot(4), other.seal(&SlotBody::Beat, &replica.sealer, &replica.entropy));
    replica.expect(false, "log/000000000005", "does not name the slot before it").await;
    let replica = Replica::usual();
    let copy = replica.store.object("log/000000000003");
    replica.store.set_object("log/000000000004", copy);
    replica.expect(false, "log/000000000004", "belongs to another object").await;
}

#[tokio::test]
async fn many_missing_slots_are_counted_instead_of_listed() {
    let mut replica = Replica::new();
    replica.slots = 99_999;
    replica.claim(1);
    let found = replica.found(false).await;
    assert_eq!(found.len(), 11);
    assert_eq!(found[10].0, ObjectName::Slot(99_999).to_string());
    assert!(found[10].1.contains("as are 99988 slots before it"), "{found:?}");
}

#[tokio::test]
async fn an_epoch_that_does_not_rise_with_a_claim_is_reported() {
    let mut replica = Replica::usual();
    replica.slot(3, &SlotBody::Beat);
    replica.expect(false, "log/000000000008", "epoch 3, which does not follow epoch 2").await;
    let mut replica = Replica::usual();
    replica.claim(2);
    replica.expect(false, "log/000000000008", "epoch 2, which does not follow epoch 2").await;
}

#[tokio::test]
async fn a_base_with_a_damaged_missing_or_extra_part_is_reported() {
    let part = "base/000000000002/000001";
    let replica = Replica::usual();
    replica.store.set_object(part, None);
    replica.expect(false, part, "is missing, and the base needs it").await;
    let replica = Replica::usual();
    let mut bytes = replica.store.object(part).unwrap().to_vec();
    *bytes.last_mut().unwrap() ^= 1;
    replica.store.set_object(part, Some(bytes.into()));
    replica.expect(false, part, "SHA-256").await;
    let replica = Replica::usual();
    replica.store.set_object(part, Some(Bytes::from_static(b"short")));
    replica.expect(false, part, "has 5 bytes").await;
    let replica = Replica::usual();
    replica.store.set_object("base/000000000002/000002", Some(Bytes::from_static(b"more")));
    replica.expect(false, "base/000000000002/000002", "not named by the manifest").await;
    let replica = Replica::usual();
    replica.store.set_object("base/000000000001/000001", Some(Bytes::from_static(b"left")));
    replica.expect(false, "base/000000000001/manifest", "the base was not finished").await;
    let replica = Replica::usual();
    replica.store.set_object("base/000000000009/000001", Some(Bytes::from_static(b"in the making")));
    assert_eq!(replica.found(false).await, []);
}

#[tokio::test]
async fn missing_content_of_a_base_is_reported_until_its_deadline() {
    let replica = Replica::usual();
    replica.store.set_object(CONTENT, None);
    replica.expect(false, CONTENT, "is missing, and the base of slot 2 needs it").await;
    let replica = Replica::usual();
    replica.store.set_object(KEY, None);
    replica.expect(false, KEY, "is missing, and the base of slot 2 needs it").await;
    let depth = Depth { deep: false, now: BUCKET, key_grace: Duration::ZERO };
    assert!(verify(&replica.store.bucket(), master(), depth).await.unwrap().ok);
}

#[tokio::test]
async fn a_key_that_outlives_its_deadline_is_overdue() {
    let replica = Replica::usual();
    let overdue = async |seconds: u64| {
        let now = BUCKET + Duration::from_secs(seconds);
        let depth = Depth { deep: false, now, key_grace: Duration::from_secs(3600) };
        verify(&replica.store.bucket(), master(), depth).await.unwrap().findings
    };
    assert_eq!(overdue(3600).await, []);
    let found = overdue(3601).await;
    assert!(found.len() == 1 && found[0].object == KEY && found[0].problem.contains("is overdue"), "{found:?}");
    replica.store.set_object(KEY, Some(Bytes::new()));
    assert_eq!(overdue(3601).await, [], "the overdue key was overwritten with an empty object");
}

#[tokio::test]
async fn only_a_deep_verification_finds_objects_that_do_not_open() {
    for name in ["log/000000000007", CONTENT, KEY] {
        let replica = Replica::usual();
        let mut bytes = replica.store.object(name).unwrap().to_vec();
        *bytes.last_mut().unwrap() ^= 1;
        replica.store.set_object(name, Some(bytes.into()));
        assert_eq!(replica.found(false).await, [], "{name}");
        replica.expect(true, name, "it does not open").await;
    }
    let mut replica = Replica::usual();
    replica.sequence -= 1;
    replica.batch(2);
    replica.expect(true, "log/000000000008", "has batch 3 after batch 3").await;
}

#[tokio::test]
async fn unknown_names_and_a_missing_or_foreign_identity_are_reported() {
    let replica = Replica::usual();
    replica.store.set_object("notes.txt", Some(Bytes::new()));
    replica.expect(false, "notes.txt", "not the name of an object").await;
    replica.store.set_object("notes.txt", None);
    let depth = Depth { deep: false, now: NOW, key_grace: Duration::ZERO };
    let other = Arc::new(MasterKey::new(&[8; 32]));
    let found = verify(&replica.store.bucket(), other, depth).await.unwrap().findings;
    assert!(found.len() == 1 && found[0].object == "store" && found[0].problem.contains("master key"), "{found:?}");
    replica.store.set_object("store", None);
    replica.expect(false, "store", "is missing, but other objects exist").await;
}

#[tokio::test]
async fn transient_failures_are_retried_and_others_are_returned() {
    let replica = Replica::usual();
    let depth = Depth { deep: false, now: NOW, key_grace: Duration::ZERO };
    let bucket = replica.store.bucket();
    bucket.inject(BucketOperation::List, BucketFault::Throttled);
    bucket.inject(BucketOperation::Read, BucketFault::Unreachable);
    assert!(verify(&bucket, master(), depth).await.unwrap().ok);
    bucket.inject(BucketOperation::Read, BucketFault::Forbidden);
    assert_eq!(verify(&bucket, master(), depth).await.unwrap_err().kind, BucketErrorKind::Forbidden);
    bucket.set_cut_off(true);
    assert_eq!(verify(&bucket, master(), depth).await.unwrap_err().kind, BucketErrorKind::Unreachable);
}
