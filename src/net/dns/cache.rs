//! DNS cache. Concurrent requests for one answer share one query.
//!
//! Lifetimes follow the program's monotonic clock. The lock is never held over an await: the first caller sends the
//! query and the others wait for it. If the first caller is dropped before the answer, the next one sends it.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use crate::engine::ports::Clock;

use super::answer::{LookupResult, TimedResult};
use super::query::Question;

/// Maximum memory for answers: 24 MiB of the 32 MiB that all caches of names share. Beyond it, the least recently used
/// answer is dropped.
pub(super) const BYTES_MAX: usize = 24 * 1024 * 1024;

/// Memory use of an answer besides its name and records: the entries of two tables and their unused capacity.
const ENTRY_BYTES: usize = 256;

/// The cache.
pub(super) struct Cache {
    clock: Arc<dyn Clock>,
    bytes_max: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    entries: HashMap<Question, Entry>,
    /// The questions, ordered by last use.
    by_use: BTreeMap<u64, Question>,
    last_use: u64,
    bytes: usize,
    flights: HashMap<Question, watch::Receiver<Option<LookupResult>>>,
}

struct Entry {
    result: LookupResult,
    end: Duration,
    /// Key of this entry in [`State::by_use`].
    used: u64,
    bytes: usize,
}

/// Next step of a caller.
enum CacheStep<'a> {
    Known(LookupResult),
    Wait(watch::Receiver<Option<LookupResult>>),
    Ask(Flight<'a>),
}

impl Cache {
    pub(super) fn new(clock: Arc<dyn Clock>, bytes_max: usize) -> Self {
        Self { clock, bytes_max, state: Mutex::default() }
    }

    /// Returns the answer to `question`: from the cache, from a query in flight, or from `ask`.
    pub(super) async fn get<F>(&self, question: &Question, ask: impl Fn() -> F) -> LookupResult
    where
        F: Future<Output = TimedResult>,
    {
        loop {
            match self.turn(question) {
                CacheStep::Known(result) => return result,
                CacheStep::Ask(flight) => return flight.land(ask().await),
                CacheStep::Wait(mut landing) => {
                    let landed = landing.wait_for(Option::is_some).await.ok().and_then(|result| result.clone());
                    if let Some(result) = landed {
                        return result;
                    }
                }
            }
        }
    }

    fn turn(&self, question: &Question) -> CacheStep<'_> {
        let now = self.clock.monotonic();
        let mut state = self.state();
        if let Some(result) = state.known(question, now) {
            return CacheStep::Known(result);
        }
        if let Some(landing) = state.flights.get(question) {
            return CacheStep::Wait(landing.clone());
        }
        let (announce, landing) = watch::channel(None);
        state.flights.insert(question.clone(), landing);
        CacheStep::Ask(Flight { cache: self, question: question.clone(), announce })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change is complete before anything can panic, so the state under a poisoned lock is valid.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Returns the unexpired answer at `now`, and marks it as most recently used.
    fn known(&mut self, question: &Question, now: Duration) -> Option<LookupResult> {
        let entry = self.entries.get_mut(question).filter(|entry| now < entry.end)?;
        self.last_use += 1;
        if let Some(question) = self.by_use.remove(&entry.used) {
            self.by_use.insert(self.last_use, question);
        }
        entry.used = self.last_use;
        Some(entry.result.clone())
    }

    fn keep(&mut self, question: Question, result: LookupResult, end: Duration, bytes_max: usize) {
        self.remove(&question);
        self.last_use += 1;
        let bytes = question.bytes() + result.bytes() + ENTRY_BYTES;
        self.bytes += bytes;
        self.by_use.insert(self.last_use, question.clone());
        self.entries.insert(question, Entry { result, end, used: self.last_use, bytes });
        while self.bytes > bytes_max {
            let Some((_, oldest)) = self.by_use.first_key_value() else { break };
            let oldest = oldest.clone();
            self.remove(&oldest);
        }
    }

    fn remove(&mut self, question: &Question) {
        if let Some(entry) = self.entries.remove(question) {
            self.by_use.remove(&entry.used);
            self.bytes -= entry.bytes;
        }
    }
}

/// A query in flight. If it is dropped without an answer, the next caller sends the query.
struct Flight<'a> {
    cache: &'a Cache,
    question: Question,
    announce: watch::Sender<Option<LookupResult>>,
}

impl Flight<'_> {
    fn land(self, answered: TimedResult) -> LookupResult {
        let end = self.cache.clock.monotonic() + answered.ttl;
        if !answered.ttl.is_zero() {
            self.cache.state().keep(self.question.clone(), answered.result.clone(), end, self.cache.bytes_max);
        }
        self.announce.send_replace(Some(answered.result.clone()));
        answered.result
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        self.cache.state().flights.remove(&self.question);
    }
}

#[cfg(test)]
mod tests {
    use super::super::answer::Answer;
    use super::super::fact::RecordData;
    use super::super::query::Kind;
    use super::super::zone::HandClock;
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn answered(text: &str, secs: u64) -> TimedResult {
        TimedResult { result: answer(text), ttl: Duration::from_secs(secs) }
    }

    fn answer(text: &str) -> LookupResult {
        LookupResult::insecure(Answer::Found([RecordData::Text(text.to_owned())].into()))
    }

    #[tokio::test]
    async fn an_answer_is_cached_until_its_ttl_ends_on_the_program_s_clock() {
        let clock = Arc::new(HandClock::default());
        let cache = Cache::new(clock.clone(), 8000);
        let question = Question::new("a.example", Kind::Txt);
        assert_eq!(cache.get(&question, async || answered("first", 60)).await, answer("first"));
        clock.advance(Duration::from_secs(59));
        assert_eq!(cache.get(&question, async || answered("second", 60)).await, answer("first"));
        clock.advance(Duration::from_secs(1));
        assert_eq!(cache.get(&question, async || answered("third", 60)).await, answer("third"));
        assert_eq!(cache.state().by_use.len(), 1);
    }

    #[tokio::test]
    async fn the_cache_is_bounded_in_bytes_and_drops_the_least_recently_used_answer() {
        let cache = Cache::new(Arc::new(HandClock::default()), 3000);
        let question = |name| Question::new(name, Kind::Txt);
        for name in ["a", "b", "c"] {
            cache.get(&question(name), async || answered(&name.repeat(500), 60)).await;
        }
        cache.get(&question("a"), async || unreachable!("it is cached")).await;
        cache.get(&question("d"), async || answered(&"d".repeat(500), 60)).await;
        let kept = |name| cache.state().entries.contains_key(&question(name));
        assert_eq!(["a", "b", "c", "d"].map(kept), [true, false, true, true]);
        cache.get(&question("large"), async || answered(&"large".repeat(2000), 60)).await;
        let state = cache.state();
        assert_eq!(
            (state.entries.len(), state.by_use.len(), state.bytes),
            (0, 0, 0),
            "it is larger than the whole cache"
        );
    }

    #[tokio::test]
    async fn concurrent_lookups_share_one_query() {
        let cache = Cache::new(Arc::new(HandClock::default()), 8000);
        let question = Question::new("a.example", Kind::Txt);
        let asked = AtomicUsize::new(0);
        let ask = async || {
            asked.fetch_add(1, Ordering::SeqCst);
            tokio::task::yield_now().await;
            answered("once", 60)
        };
        let (one, two, three) =
            tokio::join!(cache.get(&question, ask), cache.get(&question, ask), cache.get(&question, ask));
        assert_eq!([one, two, three], [answer("once"), answer("once"), answer("once")]);
        assert_eq!(asked.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn if_the_querying_caller_is_dropped_the_next_one_sends_the_query() {
        let cache = Cache::new(Arc::new(HandClock::default()), 8000);
        let question = Question::new("a.example", Kind::Txt);
        let mut first = Box::pin(cache.get(&question, std::future::pending::<TimedResult>));
        let mut second = Box::pin(cache.get(&question, async || answered("second", 60)));
        tokio::select! {
            biased;
            _ = &mut first => unreachable!("it never answers"),
            _ = &mut second => unreachable!("it waits for the first"),
            () = tokio::task::yield_now() => {}
        }
        drop(first);
        assert_eq!(second.await, answer("second"));
        assert!(cache.state().flights.is_empty());
    }
}
