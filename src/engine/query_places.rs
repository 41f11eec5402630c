//! Limit on concurrent queries to external servers, such as name servers or policy hosts. Slow queries never block the
//! others.
//!
//! A query starts in a fast slot. A slow query moves to a slow slot, or is aborted if none is free. So fast slots
//! become free at a steady pace, even with many dead name servers. A query without a slot says nothing about its name.

use std::pin::pin;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Query slots of one client.
pub(crate) struct QueryPlaces {
    prompt: Semaphore,
    slow: Semaphore,
    /// Maximum time of a query in a fast slot.
    promptness: Duration,
}

/// Error: no slot was available. The query was not sent, or was aborted.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NoPlace;

impl QueryPlaces {
    /// Creates `prompt` fast slots, each for `promptness`, and `slow` slots for queries that take longer.
    pub(crate) const fn new(prompt: usize, slow: usize, promptness: Duration) -> Self {
        Self { prompt: Semaphore::const_new(prompt), slow: Semaphore::const_new(slow), promptness }
    }

    /// Awaits `asking` once it has a slot. Waits for a slot for at most `max_wait`.
    ///
    /// # Errors
    /// No slot in time, or no slow slot to continue in.
    pub(crate) async fn ask<T>(&self, max_wait: Duration, asking: impl Future<Output = T>) -> Result<T, NoPlace> {
        let Ok(Ok(prompt)) = timeout(max_wait, self.prompt.acquire()).await else { return Err(NoPlace) };
        let mut asking = pin!(asking);
        if let Ok(answer) = timeout(self.promptness, &mut asking).await {
            return Ok(answer);
        }
        let Ok(_slow) = self.slow.try_acquire() else { return Err(NoPlace) };
        drop(prompt);
        Ok(asking.await)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::{pending, ready};
    use std::sync::Arc;

    const PROMPT_MAX: usize = 4;
    const SLOW_MAX: usize = 16;
    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn slow_queries_leave_the_fast_slots_and_end_if_too_many_are_slow() {
        let places = Arc::new(QueryPlaces::new(PROMPT_MAX, SLOW_MAX, Duration::from_millis(20)));
        let mut dead = tokio::task::JoinSet::new();
        for _ in 0..SLOW_MAX + 10 {
            let places = Arc::clone(&places);
            dead.spawn(async move { places.ask(LONG, pending::<()>()).await });
        }
        for _ in 0..10 {
            assert_eq!(dead.join_next().await.unwrap().unwrap(), Err(NoPlace));
        }
        assert_eq!(places.slow.available_permits(), 0);
        assert_eq!(places.ask(LONG, ready(7)).await, Ok(7));
        dead.shutdown().await;
        assert_eq!((places.prompt.available_permits(), places.slow.available_permits()), (PROMPT_MAX, SLOW_MAX));
    }

    #[tokio::test]
    async fn a_query_that_waits_too_long_for_a_slot_is_never_sent() {
        let places = QueryPlaces::new(PROMPT_MAX, SLOW_MAX, LONG);
        let _taken = places.prompt.acquire_many(u32::try_from(PROMPT_MAX).unwrap()).await.unwrap();
        assert_eq!(places.ask(Duration::from_millis(5), ready(7)).await, Err(NoPlace));
    }
}
