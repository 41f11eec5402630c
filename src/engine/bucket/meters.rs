//! Metrics of the requests to a bucket, and a bucket that records them.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::base::meter::{Counter, Distribution, Histogram};
use crate::base::time::Timestamp;
use crate::engine::ports::{
    BoxFuture, Bucket, BucketErrorKind, BucketOperation, BucketResult, BucketSettings, Creation, Expiry, ObjectPage,
    Versioning,
};

/// Outcomes of requests in addition to the error kinds.
const DONE: [&str; 2] = ["ok", "exists"];
const OUTCOMES: usize = DONE.len() + BucketErrorKind::ALL.len();

/// The metrics of a bucket's requests.
#[derive(Debug)]
pub struct BucketMeters {
    requests: [[Counter; OUTCOMES]; BucketOperation::ALL.len()],
    durations: [Histogram; BucketOperation::ALL.len()],
    /// Total size of objects sent, in bytes, regardless of the result.
    pub sent_bytes: Counter,
}

impl Default for BucketMeters {
    fn default() -> Self {
        Self {
            requests: std::array::from_fn(|_| std::array::from_fn(|_| Counter::default())),
            durations: std::array::from_fn(|_| Histogram::of_durations()),
            sent_bytes: Counter::default(),
        }
    }
}

impl BucketMeters {
    /// Returns the requests by operation and outcome: `ok`, `exists` for a create whose name was taken, or the error's
    /// kind.
    pub fn requests(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
        let outcomes = || DONE.into_iter().chain(BucketErrorKind::ALL.iter().map(|kind| kind.as_str()));
        BucketOperation::ALL.iter().zip(&self.requests).flat_map(move |(operation, counts)| {
            outcomes().zip(counts).map(|(outcome, count)| (operation.as_str(), outcome, count.read()))
        })
    }

    /// Returns the durations of requests by operation, in microseconds.
    pub fn durations(&self) -> impl Iterator<Item = (&'static str, Distribution)> {
        BucketOperation::ALL.iter().zip(&self.durations).map(|(operation, read)| (operation.as_str(), read.read()))
    }

    fn count<T>(&self, operation: BucketOperation, took: Duration, result: &BucketResult<T>, exists: bool) {
        let outcome = match result {
            Ok(_) => usize::from(exists),
            Err(error) => DONE.len() + error.kind as usize,
        };
        self.requests[operation as usize][outcome].count();
        self.durations[operation as usize].observe_duration(took);
    }
}

/// A bucket that counts requests.
pub struct MeteredBucket<B> {
    bucket: B,
    meters: Arc<BucketMeters>,
    monotonic: Box<dyn Fn() -> Duration + Send + Sync>,
}

impl<B> MeteredBucket<B> {
    /// Counts the requests to `bucket`, and measures them with the clock `monotonic`.
    pub fn new(bucket: B, meters: Arc<BucketMeters>, monotonic: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self { bucket, meters, monotonic: Box::new(monotonic) }
    }

    async fn counted<T>(&self, operation: BucketOperation, call: BoxFuture<'_, BucketResult<T>>) -> BucketResult<T> {
        let began = (self.monotonic)();
        let result = call.await;
        self.meters.count(operation, (self.monotonic)().saturating_sub(began), &result, false);
        result
    }
}

impl<B: Bucket> Bucket for MeteredBucket<B> {
    fn create<'a>(&'a self, name: &'a str, bytes: Bytes) -> BoxFuture<'a, BucketResult<Creation>> {
        Box::pin(async move {
            self.meters.sent_bytes.add(bytes.len() as u64);
            let began = (self.monotonic)();
            let result = self.bucket.create(name, bytes).await;
            let took = (self.monotonic)().saturating_sub(began);
            self.meters.count(BucketOperation::Create, took, &result, result == Ok(Creation::Exists));
            result
        })
    }

    fn read<'a>(&'a self, name: &'a str) -> BoxFuture<'a, BucketResult<Option<Bytes>>> {
        Box::pin(self.counted(BucketOperation::Read, self.bucket.read(name)))
    }

    fn read_range<'a>(&'a self, name: &'a str, from: u64, length: u64) -> BoxFuture<'a, BucketResult<Option<Bytes>>> {
        Box::pin(self.counted(BucketOperation::Read, self.bucket.read_range(name, from, length)))
    }

    fn list<'a>(&'a self, prefix: &'a str, after: &'a str) -> BoxFuture<'a, BucketResult<ObjectPage>> {
        Box::pin(self.counted(BucketOperation::List, self.bucket.list(prefix, after)))
    }

    fn overwrite<'a>(&'a self, name: &'a str, bytes: Bytes) -> BoxFuture<'a, BucketResult<()>> {
        self.meters.sent_bytes.add(bytes.len() as u64);
        Box::pin(self.counted(BucketOperation::Overwrite, self.bucket.overwrite(name, bytes)))
    }

    fn remove<'a>(&'a self, name: &'a str) -> BoxFuture<'a, BucketResult<()>> {
        Box::pin(self.counted(BucketOperation::Remove, self.bucket.remove(name)))
    }

    fn date(&self) -> Option<Timestamp> {
        self.bucket.date()
    }
}

impl<B: BucketSettings> BucketSettings for MeteredBucket<B> {
    fn versioning(&self) -> BoxFuture<'_, BucketResult<Versioning>> {
        Box::pin(self.counted(BucketOperation::Settings, self.bucket.versioning()))
    }

    fn has_object_lock(&self) -> BoxFuture<'_, BucketResult<bool>> {
        Box::pin(self.counted(BucketOperation::Settings, self.bucket.has_object_lock()))
    }

    fn expiries(&self) -> BoxFuture<'_, BucketResult<Vec<Expiry>>> {
        Box::pin(self.counted(BucketOperation::Settings, self.bucket.expiries()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::memory_bucket::{BucketFault, MemoryStore};

    #[tokio::test]
    async fn requests_are_counted_by_operation_and_outcome() {
        let meters = Arc::new(BucketMeters::default());
        let memory = MemoryStore::default().bucket();
        let bucket = MeteredBucket::new(memory.clone(), Arc::clone(&meters), || Duration::ZERO);
        bucket.create("log/1", Bytes::from_static(b"body")).await.unwrap();
        bucket.create("log/1", Bytes::from_static(b"body")).await.unwrap();
        memory.inject(BucketOperation::Read, BucketFault::Forbidden);
        bucket.read("log/1").await.unwrap_err();
        bucket.read_range("log/1", 0, 1).await.unwrap();
        bucket.list("log/", "").await.unwrap();
        bucket.overwrite("log/1", Bytes::new()).await.unwrap();
        bucket.remove("log/1").await.unwrap();
        bucket.versioning().await.unwrap();
        let counted: Vec<_> = meters.requests().filter(|(.., count)| *count > 0).collect();
        let expected = [
            ("create", "ok", 1),
            ("create", "exists", 1),
            ("read", "ok", 1),
            ("read", "forbidden", 1),
            ("list", "ok", 1),
            ("overwrite", "ok", 1),
            ("remove", "ok", 1),
            ("settings", "ok", 1),
        ];
        assert_eq!(counted, expected);
        assert_eq!(meters.sent_bytes.read(), 8);
        assert_eq!(meters.durations().map(|(_, read)| read.count).sum::<u64>(), 8);
    }
}
