//! DNS cache. Concurrent requests of one account for one answer share one query. Accounts share answers, not queries: a
//! query may wait for a slot of its account.
//!
//! Lifetimes follow the program's monotonic clock. The lock is never held over an await: the first caller sends the
//! query and the others wait for it. If the first caller is dropped before the answer, the next one sends it. If there
//! is no slot for a query, an expired answer is used for a while (RFC 8767).

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use crate::engine::ports::{Clock, Requester};

use super::answer::{Answer, LookupResult, TimedResult, Unknown};
use super::query::{Question, SlotWait};

/// Maximum memory for answers: 24 MiB of the 32 MiB that all caches of names share. Beyond it, the least recently used
/// answer is dropped.
pub(super) const BYTES_MAX: usize = 24 * 1024 * 1024;

/// Time for which an expired answer is used while there is no slot for a query: as long as that of a domain's site.
const STALE_LIFETIME: Duration = Duration::from_secs(600);

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
    flights: HashMap<(Question, Requester), watch::Receiver<Option<LookupResult>>>,
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
    pub(super) async fn get<F>(
        &self,
        question: &Question,
        requester: Requester,
        ask: impl Fn(SlotWait) -> F,
    ) -> LookupResult
    where
        F: Future<Output = TimedResult>,
    {
        loop {
            match self.turn(question, requester) {
                CacheStep::Known(result) => return result,
                CacheStep::Ask(flight) => {
                    let answered = ask(flight.patience()).await;
                    return flight.land(answered);
                }
                CacheStep::Wait(mut landing) => {
                    let landed = landing.wait_for(Option::is_some).await.ok().and_then(|result| result.clone());
                    if let Some(result) = landed {
                        return result;
                    }
                }
            }
        }
    }

    fn turn(&self, question: &Question, requester: Requester) -> CacheStep<'_> {
        let now = self.clock.monotonic();
        let mut state = self.state();
        if let Some(result) = state.known(question, now) {
            return CacheStep::Known(result);
        }
        let key = (question.clone(), requester);
        if let Some(landing) = state.flights.get(&key) {
            return CacheStep::Wait(landing.clone());
        }
        let (announce, landing) = watch::channel(None);
        state.flights.insert(key.clone(), landing);
        let stale = state.stale(question, now);
        CacheStep::Ask(Flight { cache: self, key, stale, announce })
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

    /// Returns the expired answer that may still be used at `now`.
    fn stale(&self, question: &Question, now: Duration) -> Option<LookupResult> {
        let entry = self.entries.get(question).filter(|entry| now < entry.end + STALE_LIFETIME)?;
        matches!(entry.result.answer, Answer::Found(_)).then(|| entry.result.clone())
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
    key: (Question, Requester),
    /// The expired answer, used if there is no slot.
    stale: Option<LookupResult>,
    announce: watch::Sender<Option<LookupResult>>,
}

impl Flight<'_> {
    const fn patience(&self) -> SlotWait {
        if self.stale.is_some() { SlotWait::HasStaleAnswer } else { SlotWait::WaitsForPlace }
    }

    fn land(mut self, answered: TimedResult) -> LookupResult {
        let result = match (&answered.result.answer, self.stale.take()) {
            (Answer::Unknown(Unknown::Unasked), Some(stale)) => stale,
            _ => answered.result,
        };
        let end = self.cache.clock.monotonic() + answered.ttl;
        if !answered.ttl.is_zero() {
            self.cache.state().keep(self.key.0.clone(), result.clone(), end, self.cache.bytes_max);
        }
        self.announce.send_replace(Some(result.clone()));
        result
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        self.cache.state().flights.remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::super::answer::Answer;
    use super::super::fact::RecordData;
    use super::super::query::Kind;
    use super::super::zone::ManualClock;
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const ONE: Requester = Requester::SERVICE;
    const OTHER: Requester = Requester::CHECKS;

    fn answered(text: &str, secs: u64) -> TimedResult {
        TimedResult { result: answer(text), ttl: Duration::from_secs(secs) }
    }

    fn answer(text: &str) -> LookupResult {
        LookupResult::insecure(Answer::Found([RecordData::Text(text.to_owned())].into()))
    }

    #[tokio::test]
    async fn an_answer_is_cached_until_its_ttl_ends_on_the_program_s_clock() {
        let clock = Arc::new(ManualClock::default());
        let cache = Cache::new(clock.clone(), 8000);
        let question = Question::new("a.example", Kind::Txt);
        assert_eq!(cache.get(&question, ONE, async |_| answered("first", 60)).await, answer("first"));
        clock.advance(Duration::from_secs(59));
        assert_eq!(cache.get(&question, ONE, async |_| answered("second", 60)).await, answer("first"));
        clock.advance(Duration::from_secs(1));
        assert_eq!(cache.get(&question, ONE, async |_| answered("third", 60)).await, answer("third"));
        assert_eq!(cache.state().by_use.len(), 1);
    }

    #[tokio::test]
    async fn the_cache_is_bounded_in_bytes_and_drops_the_least_recently_used_answer() {
        let cache = Cache::new(Arc::new(ManualClock::default()), 3000);
        let question = |name| Question::new(name, Kind::Txt);
        for name in ["a", "b", "c"] {
            cache.get(&question(name), ONE, async |_| answered(&name.repeat(500), 60)).await;
        }
        cache.get(&question("a"), ONE, async |_| unreachable!("it is cached")).await;
        cache.get(&question("d"), ONE, async |_| answered(&"d".repeat(500), 60)).await;
        let kept = |name| cache.state().entries.contains_key(&question(name));
        assert_eq!(["a", "b", "c", "d"].map(kept), [true, false, true, true]);
        cache.get(&question("large"), ONE, async |_| answered(&"large".repeat(2000), 60)).await;
        let state = cache.state();
        assert_eq!(
            (state.entries.len(), state.by_use.len(), state.bytes),
            (0, 0, 0),
            "it is larger than the whole cache"
        );
    }

    #[tokio::test]
    async fn concurrent_lookups_share_one_query() {
        let cache = Cache::new(Arc::new(ManualClock::default()), 8000);
        let question = Question::new("a.example", Kind::Txt);
        let asked = AtomicUsize::new(0);
        let ask = async |_| {
            asked.fetch_add(1, Ordering::SeqCst);
            tokio::task::yield_now().await;
            answered("once", 60)
        };
        let (one, two, three) = tokio::join!(
            cache.get(&question, ONE, ask),
            cache.get(&question, ONE, ask),
            cache.get(&question, ONE, ask)
        );
        assert_eq!([one, two, three], [answer("once"), answer("once"), answer("once")]);
        assert_eq!(asked.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn if_the_querying_caller_is_dropped_the_next_one_sends_the_query() {
        let cache = Cache::new(Arc::new(ManualClock::default()), 8000);
        let question = Question::new("a.example", Kind::Txt);
        let mut first = Box::pin(cache.get(&question, ONE, |_| std::future::pending::<TimedResult>()));
        let mut second = Box::pin(cache.get(&question, ONE, async |_| answered("second", 60)));
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

    #[tokio::test]
    async fn an_account_never_waits_for_the_query_of_another() {
        let cache = Cache::new(Arc::new(ManualClock::default()), 8000);
        let question = Question::new("a.example", Kind::Txt);
        let mut first = Box::pin(cache.get(&question, ONE, |_| std::future::pending::<TimedResult>()));
        tokio::select! {
            biased;
            _ = &mut first => unreachable!("it never answers"),
            () = tokio::task::yield_now() => {}
        }
        assert_eq!(cache.get(&question, OTHER, async |_| answered("second", 60)).await, answer("second"));
    }

    #[tokio::test]
    async fn without_a_slot_an_expired_answer_is_used_for_ten_minutes() {
        let clock = Arc::new(ManualClock::default());
        let cache = Cache::new(clock.clone(), 8000);
        let question = Question::new("a.example", Kind::Txt);
        let busy = async || {
            let patience = std::cell::Cell::new(None);
            let ask = |given| {
                patience.set(Some(given));
                std::future::ready(TimedResult::unasked())
            };
            let found = cache.get(&question, ONE, ask).await;
            (found, patience.get().unwrap())
        };
        let unasked = (TimedResult::unasked().result, SlotWait::WaitsForPlace);
        assert_eq!(busy().await, unasked);
        cache.get(&question, ONE, async |_| answered("first", 60)).await;
        clock.advance(Duration::from_secs(60));
        assert_eq!(busy().await, (answer("first"), SlotWait::HasStaleAnswer));
        clock.advance(Duration::from_secs(599));
        assert_eq!(busy().await, (answer("first"), SlotWait::HasStaleAnswer));
        let failed = async |_| TimedResult::failed("SERVFAIL");
        assert_eq!(cache.get(&question, OTHER, failed).await, TimedResult::failed("SERVFAIL").result);
        clock.advance(Duration::from_secs(10));
        assert_eq!(busy().await, unasked, "the failure has replaced it");
    }
}
