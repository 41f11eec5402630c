//! Limit on concurrent queries to external servers, such as name servers or policy hosts. Slow queries never block the
//! others, and accounts share the slots.
//!
//! A query starts in a fast slot. A slow query moves to a slow slot, or is aborted if none is free. So fast slots
//! become free at a steady pace, even with many dead name servers. A query without a slot says nothing about its name.

use std::pin::pin;
use std::time::Duration;

use tokio::time::timeout;

use super::fair_semaphore::FairSemaphore;
use super::ports::Requester;
use crate::machine::budget::Claim;

/// Query slots of one client.
pub(crate) struct QueryPlaces {
    prompt: FairSemaphore,
    slow: FairSemaphore,
    /// Maximum time of a query in a fast slot.
    promptness: Duration,
}

/// Error: no slot was available. The query was not sent, or was aborted.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NoQuerySlot;

impl QueryPlaces {
    /// Creates `prompt` fast slots, each for `promptness`, and `slow` slots for queries that take longer.
    pub(crate) fn new(prompt: u32, slow: u32, promptness: Duration) -> Self {
        Self { prompt: FairSemaphore::new(prompt), slow: FairSemaphore::new(slow), promptness }
    }

    /// Awaits `asking` once it has a slot. Waits for a slot for at most `max_wait`.
    ///
    /// # Errors
    /// No slot in time, or no slow slot to continue in.
    pub(crate) async fn ask<T>(
        &self,
        Requester { account, stream }: Requester,
        max_wait: Duration,
        asking: impl Future<Output = T>,
    ) -> Result<T, NoQuerySlot> {
        let claim = Claim::single(account, stream);
        let Ok(Some(prompt)) = timeout(max_wait, self.prompt.take(claim)).await else { return Err(NoQuerySlot) };
        let mut asking = pin!(asking);
        if let Ok(answer) = timeout(self.promptness, &mut asking).await {
            return Ok(answer);
        }
        let Some(_slow) = self.slow.take_now(claim) else { return Err(NoQuerySlot) };
        drop(prompt);
        Ok(asking.await)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::{pending, ready};
    use std::sync::Arc;

    use tokio::task::JoinSet;

    use crate::base::id::{AccountId, Ulid};
    use crate::domain::stream::Stream;

    const PROMPT_MAX: u32 = 4;
    const SLOW_MAX: u32 = 16;
    const LONG: Duration = Duration::from_secs(60);
    const PROMPTNESS: Duration = Duration::from_secs(2);

    fn requester(account: u8) -> Requester {
        Requester { account: AccountId(Ulid([account; 16])), stream: Stream::Transactional }
    }

    /// Sends queries of account 1 that are never answered.
    fn send_dead(places: &Arc<QueryPlaces>, count: u32) -> JoinSet<Result<(), NoQuerySlot>> {
        let mut dead = JoinSet::new();
        for _ in 0..count {
            let places = Arc::clone(places);
            dead.spawn(async move { places.ask(requester(1), LONG, pending::<()>()).await });
        }
        dead
    }

    #[tokio::test(start_paused = true)]
    async fn slow_queries_leave_the_fast_slots_and_end_if_too_many_are_slow() {
        let places = Arc::new(QueryPlaces::new(PROMPT_MAX, SLOW_MAX, PROMPTNESS));
        let mut dead = send_dead(&places, SLOW_MAX + 10);
        for _ in 0..10 {
            assert_eq!(dead.join_next().await.unwrap().unwrap(), Err(NoQuerySlot));
        }
        assert_eq!(places.slow.used(), SLOW_MAX);
        assert_eq!(places.ask(requester(1), LONG, ready(7)).await, Ok(7));
        dead.shutdown().await;
        assert_eq!((places.prompt.used(), places.slow.used()), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_query_that_waits_too_long_for_a_slot_is_never_sent() {
        let places = Arc::new(QueryPlaces::new(PROMPT_MAX, SLOW_MAX, LONG));
        let _dead = send_dead(&places, PROMPT_MAX);
        tokio::task::yield_now().await;
        assert_eq!(places.ask(requester(1), PROMPTNESS, ready(7)).await, Err(NoQuerySlot));
        assert_eq!(places.ask(requester(1), Duration::ZERO, ready(7)).await, Err(NoQuerySlot));
    }

    #[tokio::test(start_paused = true)]
    async fn thousands_of_dead_queries_of_one_account_never_delay_another_account() {
        let places = Arc::new(QueryPlaces::new(256, 1024, PROMPTNESS));
        let _dead = send_dead(&places, 20_000);
        for _ in 0..30 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let other = Box::pin(places.ask(requester(2), Duration::ZERO, tokio::time::sleep(Duration::from_secs(4))));
            let prompt = places.ask(requester(2), Duration::ZERO, ready(7)).await;
            assert_eq!((prompt, other.await), (Ok(7), Ok(())), "its slow queries are answered too");
        }
    }
}
