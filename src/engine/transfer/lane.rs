//! A lane: the due messages for one place, its window of workers, and whether it is held back.
//!
//! The window grows by one with every message that is taken. When the site pushes back it falls to one: while a site
//! fails, a single worker probes it.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::Job;
use super::way::Place;
use crate::base::time::Timestamp;
use crate::domain::stream::Stream;

/// Workers of a fresh lane, and at most.
const WINDOW_START: usize = 2;
const WINDOW_MAX: usize = 10;
/// Jobs that wait in one lane at most.
const JOBS_MAX: usize = 512;
/// How long a site is held back after its first, second, ... failure in a row: each time shorter than the delay of a
/// lone message's retry (contract 6, less 10 %), so that such a message keeps to its own schedule.
const HOLD_SECS: [u64; 6] = [50, 100, 210, 420, 800, 1600];

/// The due messages for one place.
pub(super) struct Lane {
    pub(super) place: Place,
    state: Mutex<State>,
    /// Woken when a job was pushed.
    pushed: Notify,
}

struct State {
    transactional: VecDeque<Job>,
    marketing: VecDeque<Job>,
    workers: usize,
    /// Workers with a kept connection and nothing to send.
    waiting: usize,
    window: usize,
    failures: usize,
    held_until: Option<Timestamp>,
    is_closed: bool,
}

/// What a worker does next.
pub(super) enum Next {
    /// Send this.
    Job(Box<Job>),
    /// Put this off until the site may be asked again.
    Held(Box<Job>, Timestamp),
    /// Nothing is due.
    Nothing,
    /// Stop: the lane has more workers than its window, or is closed.
    Stop,
}

impl Lane {
    pub(super) const fn new(place: Place) -> Self {
        let state = State {
            transactional: VecDeque::new(),
            marketing: VecDeque::new(),
            workers: 0,
            waiting: 0,
            window: WINDOW_START,
            failures: 0,
            held_until: None,
            is_closed: false,
        };
        Self { place, state: Mutex::new(state), pushed: Notify::const_new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a job, and says whether another worker is to be started for it. Where it says so, that worker is counted
    /// already.
    pub(super) fn push(&self, job: Job) -> bool {
        let mut state = self.state();
        match job.message.stream {
            Stream::Transactional => state.transactional.push_back(job),
            Stream::Marketing => state.marketing.push_back(job),
        }
        let wants_worker = state.wants_worker();
        if wants_worker {
            state.workers += 1;
        }
        let wake = state.waiting > 0;
        drop(state);
        if wake {
            self.pushed.notify_one();
        }
        wants_worker
    }

    /// What a worker is to do at `now`. Transactional mail never waits behind marketing mail.
    pub(super) fn next(&self, now: Timestamp) -> Next {
        let mut state = self.state();
        if state.is_closed || state.workers > state.window {
            return Next::Stop;
        }
        let Some(job) = state.pop() else { return Next::Nothing };
        match state.held_until {
            // What is over never needs the wire: it ends now, held back or not.
            Some(until) if until > now && job.message.give_up_at > now => Next::Held(Box::new(job), until),
            Some(_) | None => Next::Job(Box::new(job)),
        }
    }

    /// Resolves when there may be a job, for a worker that has found none.
    pub(super) async fn wait(&self) {
        {
            let mut state = self.state();
            if state.is_closed || !state.is_empty() {
                return;
            }
            state.waiting += 1;
        }
        let waiting = Waiting(self);
        self.pushed.notified().await;
        drop(waiting);
    }

    /// A worker ends. It says whether another must take its place, because a job came meanwhile.
    pub(super) fn leave(&self) -> bool {
        let mut state = self.state();
        state.workers -= 1;
        let again = state.wants_worker();
        if again {
            state.workers += 1;
        }
        let left_behind = !again && state.waiting > 0 && !state.is_empty();
        drop(state);
        if left_behind {
            // The call that brought this worker here was meant for whoever can still serve it.
            self.pushed.notify_one();
        }
        again
    }

    /// Whether so many jobs wait that another must look again later, so that one site can't fill all memory.
    pub(super) fn is_full(&self) -> bool {
        let state = self.state();
        state.transactional.len() + state.marketing.len() >= JOBS_MAX
    }

    /// The site answered for a message: it is there, whatever it said.
    pub(super) fn answered(&self) {
        let mut state = self.state();
        state.failures = 0;
        state.held_until = None;
    }

    /// The site took a message.
    pub(super) fn succeeded(&self) {
        let mut state = self.state();
        state.failures = 0;
        state.held_until = None;
        state.window = (state.window + 1).min(WINDOW_MAX);
    }

    /// Whether the window has room for a worker that nobody asked for yet.
    pub(super) fn grow(&self) -> bool {
        let mut state = self.state();
        let wants_worker = state.wants_worker();
        if wants_worker {
            state.workers += 1;
        }
        wants_worker
    }

    /// The site pushed back, or could not be reached.
    pub(super) fn pushed_back(&self, now: Timestamp) {
        let mut state = self.state();
        // Several workers may meet the same failure: it holds the site back once.
        if state.held_until.is_some_and(|until| until > now) {
            return;
        }
        let hold = HOLD_SECS[state.failures.min(HOLD_SECS.len() - 1)];
        state.failures += 1;
        state.window = 1;
        state.held_until = Some(now + Duration::from_secs(hold));
    }

    /// Whether nothing is known of the lane that is worth keeping.
    pub(super) fn is_idle(&self, now: Timestamp) -> bool {
        let state = self.state();
        state.workers == 0 && state.is_empty() && state.held_until.is_none_or(|until| until <= now)
    }

    /// Lets no worker begin another job.
    pub(super) fn close(&self) {
        self.state().is_closed = true;
        self.pushed.notify_waiters();
    }
}

/// Counts a waiting worker, whatever ends its wait.
struct Waiting<'a>(&'a Lane);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.state().waiting -= 1;
    }
}

impl State {
    fn is_empty(&self) -> bool {
        self.transactional.is_empty() && self.marketing.is_empty()
    }

    fn pop(&mut self) -> Option<Job> {
        self.transactional.pop_front().or_else(|| self.marketing.pop_front())
    }

    fn wants_worker(&self) -> bool {
        let jobs = self.transactional.len() + self.marketing.len();
        !self.is_closed && self.workers < self.window && jobs > self.waiting
    }
}
