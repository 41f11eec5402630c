//! Tests that the memory bucket behaves according to its faults.

use super::*;

const CREATE: BucketOperation = BucketOperation::Create;

async fn create(bucket: &MemoryBucket, bytes: &'static [u8]) -> Result<Creation, BucketErrorKind> {
    bucket.create("log/1", Bytes::from_static(bytes)).await.map_err(|error| error.kind)
}

#[tokio::test]
async fn a_name_can_be_created_only_once() {
    let store = MemoryStore::default();
    let (one, two) = (store.bucket(), store.bucket());
    assert_eq!(create(&one, b"one").await, Ok(Creation::Created));
    assert_eq!(create(&two, b"two").await, Ok(Creation::Exists));
    assert_eq!(two.read("log/1").await.unwrap().unwrap(), "one");
    assert_eq!(two.read_range("log/1", 1, 9).await.unwrap().unwrap(), "ne");
    assert_eq!(two.read_range("log/1", 9, 9).await.unwrap().unwrap(), "");
    one.remove("log/1").await.unwrap();
    assert_eq!(two.read("log/1").await.unwrap(), None);
    assert_eq!(one.calls(CREATE), 1);
}

#[tokio::test]
async fn faults_apply_in_order_and_only_to_their_process() {
    let store = MemoryStore::default();
    let (one, two) = (store.bucket(), store.bucket());
    let faults = [
        (BucketFault::NotDone, BucketErrorKind::Unknown),
        (BucketFault::Conflict, BucketErrorKind::Conflict),
        (BucketFault::Throttled, BucketErrorKind::Throttled),
        (BucketFault::Forbidden, BucketErrorKind::Forbidden),
    ];
    for (fault, kind) in faults {
        one.inject(CREATE, fault);
        assert_eq!(create(&one, b"one").await, Err(kind));
        assert_eq!(store.object("log/1"), None);
    }
    one.set_cut_off(true);
    assert_eq!(create(&one, b"one").await, Err(BucketErrorKind::Unreachable));
    one.set_cut_off(false);
    one.inject(CREATE, BucketFault::AnswerLost);
    assert_eq!(create(&one, b"one").await, Err(BucketErrorKind::Unknown));
    assert_eq!(create(&two, b"two").await, Ok(Creation::Exists));
    two.inject(CREATE, BucketFault::IgnoredCondition);
    assert_eq!(create(&two, b"two").await, Ok(Creation::Created));
    assert_eq!(store.object("log/1").unwrap(), "two");
}

#[tokio::test]
async fn a_delayed_create_loses_against_an_earlier_one() {
    let store = MemoryStore::default();
    let (one, two) = (store.bucket(), store.bucket());
    one.inject(CREATE, BucketFault::DoneLater);
    assert_eq!(create(&one, b"one").await, Err(BucketErrorKind::Unknown));
    assert_eq!(create(&two, b"two").await, Ok(Creation::Created));
    assert_eq!(store.land(), 1);
    assert_eq!(store.object("log/1").unwrap(), "two");
}

#[tokio::test]
async fn lists_are_paged_by_name_and_may_be_stale() {
    let store = MemoryStore::default();
    let bucket = store.bucket();
    for number in 0..=PAGE {
        store.set_object(&format!("log/{number:012}"), Some(Bytes::from_static(b"x")));
    }
    store.set_object("base/1/manifest", Some(Bytes::new()));
    let first = bucket.list("log/", "").await.unwrap();
    assert_eq!((first.objects.len(), first.is_last), (PAGE, false));
    let rest = bucket.list("log/", &first.objects[PAGE - 1].name).await.unwrap();
    assert_eq!((rest.objects.len(), rest.is_last), (1, true));
    store.remember();
    store.set_object("log/000000000000", None);
    bucket.inject(BucketOperation::List, BucketFault::Stale);
    assert_eq!(bucket.list("log/", "").await.unwrap().objects[0].name, "log/000000000000");
    assert_eq!(bucket.list("log/", "").await.unwrap().objects[0].name, "log/000000000001");
}

#[tokio::test]
async fn faults_are_drawn_for_calls_without_an_injected_fault() {
    let store = MemoryStore::default();
    let bucket = store.bucket();
    bucket.draw(|call| (call.name == "log/1").then_some(BucketFault::Throttled));
    bucket.inject(CREATE, BucketFault::Forbidden);
    assert_eq!(create(&bucket, b"one").await, Err(BucketErrorKind::Forbidden));
    assert_eq!(create(&bucket, b"one").await, Err(BucketErrorKind::Throttled));
    bucket.overwrite("log/2", Bytes::new()).await.unwrap();
    assert_eq!(store.names(), ["log/2"]);
}

#[tokio::test]
async fn a_bucket_returns_its_clock_and_its_settings() {
    let store = MemoryStore::default();
    let bucket = store.bucket();
    assert_eq!(bucket.versioning().await, Ok(Versioning::Off));
    let expiry = Expiry { id: "r".to_owned(), prefix: String::new() };
    store.set_settings(Some(Versioning::Suspended), true, vec![expiry.clone()]);
    assert_eq!(bucket.versioning().await, Ok(Versioning::Suspended));
    assert_eq!(bucket.has_object_lock().await, Ok(true));
    assert_eq!(bucket.expiries().await, Ok(vec![expiry]));
    store.set_date(Timestamp::from_millis(5));
    assert_eq!(bucket.date(), Some(Timestamp::from_millis(5)));
}
