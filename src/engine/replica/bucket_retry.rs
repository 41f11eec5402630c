//! Waiting for a bucket that does not answer.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::backoff::Backoff;
use super::error::ReplicaError;
use crate::base::entropy::Entropy;
use crate::engine::ports::{BucketError, BucketErrorKind};

/// Called when the bucket did not answer, with the time since the first failure.
pub type OnWait<'a> = dyn FnMut(&BucketError, Duration) + Send + 'a;

/// Waits while the bucket does not answer. Refused credentials end the wait.
pub struct BucketRetry<'a> {
    on_wait: &'a mut OnWait<'a>,
    since: Option<Instant>,
    backoff: Backoff,
}

impl<'a> BucketRetry<'a> {
    /// Reports each failure to `on_wait`.
    pub fn new(on_wait: &'a mut OnWait<'a>) -> Self {
        Self { on_wait, since: None, backoff: Backoff::default() }
    }

    /// Returns the result, or waits after a transient failure.
    ///
    /// # Errors
    /// Any other failure.
    pub async fn take<T>(
        &mut self,
        asked: Result<T, ReplicaError>,
        entropy: &dyn Entropy,
    ) -> Result<Option<T>, ReplicaError> {
        match asked {
            Ok(answer) => {
                (self.since, self.backoff) = (None, Backoff::default());
                Ok(Some(answer))
            }
            Err(ReplicaError::Bucket(error))
                if !matches!(error.kind, BucketErrorKind::Forbidden | BucketErrorKind::Refused) =>
            {
                let since = *self.since.get_or_insert_with(Instant::now);
                (self.on_wait)(&error, since.elapsed());
                sleep(self.backoff.next(entropy)).await;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}
