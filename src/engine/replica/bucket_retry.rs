//! Waiting for a bucket that does not answer.

use tokio::time::sleep;

use super::backoff::Backoff;
use super::error::ReplicaError;
use crate::base::entropy::Entropy;
use crate::engine::ports::BucketError;

/// Called when a call to the bucket failed. Returns whether to wait and try again.
pub type OnWait<'a> = dyn FnMut(&BucketError) -> bool + Send + 'a;

/// Waits while the bucket does not answer.
pub struct BucketRetry<'a> {
    on_wait: &'a mut OnWait<'a>,
    backoff: Backoff,
}

impl<'a> BucketRetry<'a> {
    /// Reports each failure to `on_wait`.
    pub fn new(on_wait: &'a mut OnWait<'a>) -> Self {
        Self { on_wait, backoff: Backoff::default() }
    }

    /// Returns the result, or waits after a failure.
    ///
    /// # Errors
    /// A failure that a wait can't resolve.
    pub async fn take<T>(
        &mut self,
        asked: Result<T, ReplicaError>,
        entropy: &dyn Entropy,
    ) -> Result<Option<T>, ReplicaError> {
        match asked {
            Ok(answer) => {
                self.backoff = Backoff::default();
                Ok(Some(answer))
            }
            Err(ReplicaError::Bucket(error)) if (self.on_wait)(&error) => {
                sleep(self.backoff.next(entropy)).await;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}
