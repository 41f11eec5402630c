//! A bucket whose reads are repeated while it does not answer. Used for work that consists of many reads and would have
//! to begin again: a restore, and the build of a standby's store from a base.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, sleep};

use super::backoff::Backoff;
use crate::base::entropy::Entropy;
use crate::base::time::Timestamp;
use crate::engine::ports::{BoxFuture, Bucket, BucketError, BucketResult, Creation, ObjectPage};

/// Called with the error when a read failed and is repeated, and with `None` once it is answered.
pub type OnRetry = Arc<dyn Fn(Option<&BucketError>) + Send + Sync>;

/// A bucket with repeated reads. Changes are passed on once.
pub struct RetriedBucket {
    bucket: Arc<dyn Bucket>,
    entropy: Arc<dyn Entropy>,
    on_retry: OnRetry,
    /// Time after which a read is given up; `None` for never.
    limit: Option<Duration>,
}

impl RetriedBucket {
    /// Repeats the reads of `bucket`, each for at most `limit`.
    pub fn new(bucket: Arc<dyn Bucket>, entropy: Arc<dyn Entropy>, on_retry: OnRetry, limit: Option<Duration>) -> Self {
        Self { bucket, entropy, on_retry, limit }
    }

    async fn repeat<'a, T: Send>(
        &'a self,
        read: impl Fn() -> BoxFuture<'a, BucketResult<T>> + Send,
    ) -> BucketResult<T> {
        let (began, mut backoff, mut has_failed) = (Instant::now(), Backoff::default(), false);
        loop {
            match read().await {
                Err(error) if error.kind.is_transient() && self.limit.is_none_or(|limit| began.elapsed() < limit) => {
                    has_failed = true;
                    (self.on_retry)(Some(&error));
                }
                answer => {
                    if has_failed {
                        (self.on_retry)(None);
                    }
                    return answer;
                }
            }
            sleep(backoff.next(&*self.entropy)).await;
        }
    }
}

impl Bucket for RetriedBucket {
    fn create<'a>(&'a self, name: &'a str, bytes: Bytes) -> BoxFuture<'a, BucketResult<Creation>> {
        self.bucket.create(name, bytes)
    }

    fn read<'a>(&'a self, name: &'a str) -> BoxFuture<'a, BucketResult<Option<Bytes>>> {
        Box::pin(self.repeat(move || self.bucket.read(name)))
    }

    fn read_range<'a>(&'a self, name: &'a str, from: u64, length: u64) -> BoxFuture<'a, BucketResult<Option<Bytes>>> {
        Box::pin(self.repeat(move || self.bucket.read_range(name, from, length)))
    }

    fn list<'a>(&'a self, prefix: &'a str, after: &'a str) -> BoxFuture<'a, BucketResult<ObjectPage>> {
        Box::pin(self.repeat(move || self.bucket.list(prefix, after)))
    }

    fn overwrite<'a>(&'a self, name: &'a str, bytes: Bytes) -> BoxFuture<'a, BucketResult<()>> {
        self.bucket.overwrite(name, bytes)
    }

    fn remove<'a>(&'a self, name: &'a str) -> BoxFuture<'a, BucketResult<()>> {
        self.bucket.remove(name)
    }

    fn date(&self) -> Option<Timestamp> {
        self.bucket.date()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::base::entropy::SeededEntropy;
    use crate::engine::memory_bucket::{BucketFault, MemoryStore};
    use crate::engine::ports::{BucketErrorKind, BucketOperation};

    /// Reads with these faults before the answer. Returns the answer and the number of reported failures.
    async fn read(faults: &[BucketFault], limit: Option<Duration>) -> (BucketResult<Option<Bytes>>, u32) {
        let store = MemoryStore::default();
        store.set_object("store", Some(Bytes::from_static(b"answer")));
        let bucket = store.bucket();
        faults.iter().for_each(|fault| bucket.inject(BucketOperation::Read, *fault));
        let reported = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&reported);
        let on_retry: OnRetry = Arc::new(move |error| {
            counted.fetch_add(u32::from(error.is_some()), Ordering::Relaxed);
        });
        let retried = RetriedBucket::new(Arc::new(bucket), Arc::new(SeededEntropy::new(1)), on_retry, limit);
        (retried.read("store").await, reported.load(Ordering::Relaxed))
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_is_repeated_until_the_bucket_answers() {
        let faults = [BucketFault::Throttled, BucketFault::NotDone, BucketFault::Unreachable].repeat(20);
        assert_eq!(read(&faults, None).await, (Ok(Some(Bytes::from_static(b"answer"))), 60));
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_is_given_up_after_its_limit_and_at_once_if_it_is_refused() {
        let (answer, reported) = read(&[BucketFault::Throttled; 100], Some(Duration::from_secs(60))).await;
        assert_eq!(answer.unwrap_err().kind, BucketErrorKind::Throttled);
        assert!((6..30).contains(&reported), "{reported}");
        let (answer, reported) = read(&[BucketFault::Forbidden], None).await;
        assert_eq!((answer.unwrap_err().kind, reported), (BucketErrorKind::Forbidden, 0));
    }
}
