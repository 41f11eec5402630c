//! Conversion of a panic in one piece of work to an error, so that its owner can settle the work.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

/// Error: the work panicked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the work panicked")]
pub struct CaughtPanic;

/// Runs `work` to its end. A panic leaves no shared state inconsistent, because shared state is in the store.
///
/// # Errors
/// [`CaughtPanic`] if it panicked.
pub async fn caught<T>(work: impl Future<Output = T>) -> Result<T, CaughtPanic> {
    let mut work = pin!(work);
    std::future::poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx))) {
        Ok(Poll::Ready(value)) => Poll::Ready(Ok(value)),
        Ok(Poll::Pending) => Poll::Pending,
        Err(_) => Poll::Ready(Err(CaughtPanic)),
    })
    .await
}
