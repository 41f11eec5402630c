//! How many questions are asked at once: a bounded number, of which slow ones never hold up the others.
//!
//! A question begins in a prompt place. One that takes long leaves it to the next and goes on in a slow place; where
//! there is none, it is given up. So prompt places come free at a sure pace, however many name servers are dead, and
//! whoever is refused a place has learnt nothing about the name that it asked for.

use std::pin::pin;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Questions that are on their way for a short time.
const PROMPT_MAX: usize = 256;
/// Questions that have been on their way for long.
const SLOW_MAX: usize = 1024;
/// All questions on the wire at once.
pub(super) const PARALLEL_MAX: usize = PROMPT_MAX + SLOW_MAX;

/// The places of one asker.
pub(super) struct Places {
    prompt: Semaphore,
    slow: Semaphore,
    /// How long a question may stay in a prompt place.
    promptness: Duration,
}

/// There was no place: nothing was asked, or not to the end.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NoPlace;

impl Places {
    pub(super) const fn new(promptness: Duration) -> Self {
        Self { prompt: Semaphore::const_new(PROMPT_MAX), slow: Semaphore::const_new(SLOW_MAX), promptness }
    }

    /// What `asking` answers, once it has a place; waiting for one ends after `patience`.
    pub(super) async fn ask<T>(&self, patience: Duration, asking: impl Future<Output = T>) -> Result<T, NoPlace> {
        let Ok(Ok(prompt)) = timeout(patience, self.prompt.acquire()).await else { return Err(NoPlace) };
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

    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn slow_questions_leave_their_places_to_others_and_end_where_too_many_are_slow() {
        let places = Arc::new(Places::new(Duration::from_millis(20)));
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
    async fn whoever_waits_too_long_for_a_place_has_asked_nothing() {
        let places = Places::new(LONG);
        let _taken = places.prompt.acquire_many(u32::try_from(PROMPT_MAX).unwrap()).await.unwrap();
        assert_eq!(places.ask(Duration::from_millis(5), ready(7)).await, Err(NoPlace));
    }
}
