//! Answers, kept for as long as they may be believed, and asked for once however many wait.
//!
//! Lifetimes follow the program's monotonic clock. The lock is never held over an await: whoever asks first takes a
//! flight, the others wait for it to land; where the first is dropped in mid-air, the next of them asks.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use crate::engine::ports::Clock;

use super::query::{Answered, Question, Told};

/// How many answers are kept; beyond that the one that would end first goes.
pub(super) const ENTRIES_MAX: usize = 64 * 1024;

/// The cache.
pub(super) struct Cache {
    clock: Arc<dyn Clock>,
    entries_max: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    entries: HashMap<Question, Entry>,
    by_end: BTreeSet<(Duration, Question)>,
    flights: HashMap<Question, watch::Receiver<Option<Told>>>,
}

struct Entry {
    told: Told,
    end: Duration,
}

/// What the next step of one who asks is.
enum Turn<'a> {
    Known(Told),
    Wait(watch::Receiver<Option<Told>>),
    Ask(Flight<'a>),
}

impl Cache {
    pub(super) fn new(clock: Arc<dyn Clock>, entries_max: usize) -> Self {
        Self { clock, entries_max, state: Mutex::default() }
    }

    /// The answer to `question`: a kept one, that of a flight under way, or what `ask` gives.
    pub(super) async fn get<F>(&self, question: &Question, ask: impl Fn() -> F) -> Told
    where
        F: Future<Output = Answered>,
    {
        loop {
            match self.turn(question) {
                Turn::Known(told) => return told,
                Turn::Ask(flight) => return flight.land(ask().await),
                Turn::Wait(mut landing) => {
                    let landed = landing.wait_for(Option::is_some).await.ok().and_then(|told| told.clone());
                    if let Some(told) = landed {
                        return told;
                    }
                }
            }
        }
    }

    fn turn(&self, question: &Question) -> Turn<'_> {
        let now = self.clock.monotonic();
        let mut state = self.state();
        if let Some(entry) = state.entries.get(question).filter(|entry| now < entry.end) {
            return Turn::Known(entry.told.clone());
        }
        if let Some(landing) = state.flights.get(question) {
            return Turn::Wait(landing.clone());
        }
        let (announce, landing) = watch::channel(None);
        state.flights.insert(question.clone(), landing);
        Turn::Ask(Flight { cache: self, question: question.clone(), announce })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change is whole before anything can panic, so a poisoned lock still holds a sound state.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn keep(&mut self, question: Question, entry: Entry, entries_max: usize) {
        self.by_end.insert((entry.end, question.clone()));
        let end = entry.end;
        if let Some(old) = self.entries.insert(question.clone(), entry)
            && old.end != end
        {
            self.by_end.remove(&(old.end, question));
        }
        while self.entries.len() > entries_max {
            let Some((_, first_to_end)) = self.by_end.pop_first() else { break };
            self.entries.remove(&first_to_end);
        }
    }
}

/// A question on its way. Dropped without landing, it lets the next one ask.
struct Flight<'a> {
    cache: &'a Cache,
    question: Question,
    announce: watch::Sender<Option<Told>>,
}

impl Flight<'_> {
    fn land(self, answered: Answered) -> Told {
        let end = self.cache.clock.monotonic() + answered.ttl;
        let entry = Entry { told: answered.told.clone(), end };
        self.cache.state().keep(self.question.clone(), entry, self.cache.entries_max);
        self.announce.send_replace(Some(answered.told.clone()));
        answered.told
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        self.cache.state().flights.remove(&self.question);
    }
}

#[cfg(test)]
mod tests {
    use super::super::query::{Answer, Fact, Kind};
    use super::super::zone::HandClock;
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn answered(text: &str, secs: u64) -> Answered {
        Answered { told: answer(text), ttl: Duration::from_secs(secs) }
    }

    fn answer(text: &str) -> Told {
        Told::insecure(Answer::Found([Fact::Text(text.to_owned())].into()))
    }

    #[tokio::test]
    async fn an_answer_is_kept_until_its_ttl_is_over_on_the_programs_clock() {
        let clock = Arc::new(HandClock::default());
        let cache = Cache::new(clock.clone(), 8);
        let question = Question::new("a.example", Kind::Txt);
        assert_eq!(cache.get(&question, async || answered("first", 60)).await, answer("first"));
        clock.advance(Duration::from_secs(59));
        assert_eq!(cache.get(&question, async || answered("second", 60)).await, answer("first"));
        clock.advance(Duration::from_secs(1));
        assert_eq!(cache.get(&question, async || answered("third", 60)).await, answer("third"));
        assert_eq!(cache.state().by_end.len(), 1);
    }

    #[tokio::test]
    async fn the_cache_is_bounded_and_drops_what_would_end_first() {
        let cache = Cache::new(Arc::new(HandClock::default()), 2);
        for (name, secs) in [("long", 300), ("short", 5), ("middle", 60)] {
            cache.get(&Question::new(name, Kind::Txt), async || answered(name, secs)).await;
        }
        let state = cache.state();
        assert_eq!((state.entries.len(), state.by_end.len()), (2, 2));
        assert!(!state.entries.contains_key(&Question::new("short", Kind::Txt)));
    }

    #[tokio::test]
    async fn many_who_wait_ask_once() {
        let cache = Cache::new(Arc::new(HandClock::default()), 8);
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
    async fn where_the_one_who_asks_is_dropped_the_next_asks() {
        let cache = Cache::new(Arc::new(HandClock::default()), 8);
        let question = Question::new("a.example", Kind::Txt);
        let mut first = Box::pin(cache.get(&question, std::future::pending::<Answered>));
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
