//! A lane: the due messages of one relay for one site, in memory as timers alone, its window of workers, and whether it
//! is held back. While it is, its timers rest: nothing is written for what never reached the wire.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::pace::Pace;
use super::pool::Pool;
use super::queue::{Duty, LETS_PASS, Queue, Ticket};
use super::relays::Number;
use super::site::Site;
use super::why::Obstacle;
use super::window::{Standing, Trust, Window};
use crate::base::id::AccountId;
use crate::base::time::Timestamp;
use crate::domain::stream::Stream;
use crate::smtp::shaping::{Action, Limits};
use crate::store::near::NearTimers;

/// The due messages of one relay for one site.
pub(super) struct Lane {
    /// Its name among alarms.
    pub(super) number: u64,
    /// Its site among budgets: all relays' connections to a site count as one.
    pub(super) site_key: u64,
    pub(super) relay: Number,
    pub(super) site: Site,
    pub(super) limits: Limits,
    pub(super) pool: Pool,
    queue: Mutex<Queue>,
    /// Woken when a job was pushed.
    pushed: Notify,
    /// Woken when a message came that waits for a busy worker.
    arrived: Notify,
}

/// Next action of a worker.
#[derive(Debug)]
pub(super) enum Next {
    /// Send this.
    Go(Ticket),
    /// Wait so long: the site takes no more in a minute.
    Pace(Duration),
    /// Nothing is due.
    Nothing,
    /// Stop: the lane has more workers than its window, or is closed.
    Stop,
}

/// Operator's view of a destination queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sight {
    pub(super) in_flight: usize,
    pub(super) held_until: Option<Timestamp>,
    pub(super) last_answer: Option<String>,
}

impl Lane {
    pub(super) fn new(
        (number, site_key): (u64, u64),
        relay: Number,
        site: Site,
        limits: Limits,
        is_shared: bool,
    ) -> Self {
        let (pool, queue) = (Pool::default(), Mutex::new(Queue::new(&limits, is_shared)));
        Self {
            number,
            site_key,
            relay,
            site,
            limits,
            pool,
            queue,
            pushed: Notify::const_new(),
            arrived: Notify::const_new(),
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a message. The duty of another worker that is to be started for it, where one is: that worker is counted
    /// already. A message whose time ends while the lane is held back comes back with that moment.
    pub(super) fn push(&self, ticket: Ticket, now: Timestamp, near: &NearTimers) -> Result<Option<Duty>, Ticket> {
        let mut state = self.state();
        state.welcome(ticket, near)?;
        state.of(ticket.stream).push(ticket.account(), ticket);
        let hired = state.hires(now);
        let wake = hired.is_none() && state.waiting > 0;
        drop(state);
        if wake {
            self.pushed.notify_one();
        }
        if hired.is_none() {
            self.arrived.notify_waiters();
        }
        Ok(hired)
    }

    /// Puts back a message that waited for a connection in vain, for others to pass. It comes back where its time ends
    /// while the lane is held back.
    pub(super) fn put_back(&self, ticket: Ticket, instant: Instant, near: &NearTimers) -> Result<(), Ticket> {
        let mut state = self.state();
        state.welcome(ticket, near)?;
        state.let_pass(ticket.account(), instant);
        state.of(ticket.stream).push_front(ticket.account(), ticket);
        Ok(())
    }

    /// Resolves when a message of another account could begin instead of one of `account` that waits for a connection.
    pub(super) async fn is_wanted_by_others(&self, account: AccountId, now: impl Fn() -> Timestamp) {
        loop {
            // Listens before it looks, so that no arrival in between goes unheard.
            let arrived = self.arrived.notified();
            if self.state().has_other(account, now(), Instant::now()) {
                return;
            }
            tokio::select! {
                biased;
                () = arrived => {}
                () = tokio::time::sleep(LETS_PASS) => {}
            }
        }
    }

    /// Decides the next action of a worker. Transactional mail never waits behind marketing mail.
    pub(super) fn next(&self, duty: &mut Duty, now: Timestamp, instant: Instant, near: &NearTimers) -> Next {
        let mut state = self.state();
        if !state.admits(duty, now) {
            return Next::Stop;
        }
        if state.takeable(now) == 0 {
            return Next::Nothing;
        }
        let wait = state.pace(now, instant);
        if !wait.is_zero() {
            return Next::Pace(wait);
        }
        state.pop(now, instant, near).map_or(Next::Nothing, |ticket| {
            state.count(instant);
            Next::Go(ticket)
        })
    }

    /// A worker has done with a message.
    pub(super) fn done(&self, stream: Stream) {
        let mut state = self.state();
        state.in_flight -= 1;
        state.marketing_in_flight -= usize::from(stream == Stream::Marketing);
    }

    /// Resolves when there may be a job, for a worker that has found none.
    pub(super) async fn wait(&self, now: Timestamp) {
        {
            let mut state = self.state();
            if state.is_closed || state.takeable(now) > 0 {
                return;
            }
            state.waiting += 1;
        }
        let waiting = Waiting(self);
        self.pushed.notified().await;
        drop(waiting);
    }

    /// A worker ends. It says whether another must take its place, because a job came meanwhile.
    pub(super) fn leave(&self, duty: Duty, now: Timestamp) -> Leave {
        let mut state = self.state();
        state.dismiss(duty);
        if let Some(duty) = state.hires(now) {
            return Leave::Stays(duty);
        }
        let left_behind = state.waiting > 0 && state.takeable(now) > 0;
        let is_last = state.workers == 0;
        drop(state);
        if left_behind {
            // The call that brought this worker here was meant for whoever can still serve it.
            self.pushed.notify_one();
        }
        if is_last { Leave::Last } else { Leave::Goes }
    }

    /// The duty of a worker that nobody asked for yet, where the window has room for one; it is counted then.
    pub(super) fn grow(&self, now: Timestamp) -> Option<Duty> {
        self.state().hires(now)
    }

    /// The messages that wait.
    pub(super) fn len(&self) -> usize {
        self.state().len()
    }

    /// Returns how many more connections the window allows.
    pub(super) fn spare(&self, now: Timestamp) -> usize {
        let state = self.state();
        state.window.connections(now).saturating_sub(state.in_flight)
    }

    /// Returns the trust in the site.
    pub(super) fn trust(&self) -> Trust {
        self.state().window.trust()
    }

    /// An attempt timed out, in whatever phase.
    pub(super) fn timed_out(&self) {
        self.state().window.timed_out();
    }

    /// The site took a message.
    pub(super) fn took(&self, near: &NearTimers) {
        self.tell(near, Window::took);
    }

    /// The site was there, whatever it said.
    pub(super) fn answered(&self, near: &NearTimers) {
        self.tell(near, Window::answered);
    }

    /// The site asked us to be slower.
    pub(super) fn slowed(&self, near: &NearTimers) {
        self.tell(near, Window::slowed);
    }

    fn tell(&self, near: &NearTimers, what: impl FnOnce(&mut Window)) {
        let mut state = self.state();
        what(&mut state.window);
        if state.is_resting && state.window.standing() == Standing::Open {
            state.is_resting = false;
            near.rouse(state.timers());
        }
    }

    /// Reports a failure to the window, which may hold the site back. Messages whose time ends meanwhile come back.
    #[must_use]
    pub(super) fn fails(&self, near: &NearTimers, what: impl FnOnce(&mut Window) -> Option<Timestamp>) -> Vec<Ticket> {
        let mut state = self.state();
        match what(&mut state.window) {
            Some(until) => self.rest(&mut state, until, near),
            None => Vec::new(),
        }
    }

    /// Holds the lane back for another reason. Messages whose time ends meanwhile come back.
    #[must_use]
    pub(super) fn hold(&self, until: Timestamp, now: Timestamp, near: &NearTimers) -> Vec<Ticket> {
        let mut state = self.state();
        if state.window.hold(until, now) { self.rest(&mut state, until, near) } else { Vec::new() }
    }

    /// Has a lane that is held back probe its site without waiting for the end of that.
    pub(super) fn hurry(&self, now: Timestamp, near: &NearTimers) {
        let mut state = self.state();
        if state.window.hurry(now) {
            near.set_alarm((now, self.number));
        }
    }

    fn rest(&self, state: &mut Queue, until: Timestamp, near: &NearTimers) -> Vec<Ticket> {
        let is_late = |ticket: &Ticket| ticket.give_up_at <= until;
        let mut late = state.transactional.extract(is_late);
        late.append(&mut state.marketing.extract(is_late));
        near.rouse(late.iter().map(|ticket| ticket.timer));
        // Before anything can count as settled, so that time which is moved stops at it.
        near.set_alarm((until, self.number));
        if !std::mem::replace(&mut state.is_resting, true) {
            near.rest(state.timers());
        }
        late
    }

    /// An alarm of the lane rings: the message to probe the site with, and the duty of its worker, which is counted
    /// already.
    pub(super) fn ring(&self, now: Timestamp, near: &NearTimers) -> Option<(Ticket, Duty)> {
        let mut state = self.state();
        if state.is_closed || !state.window.rings(now) {
            return None;
        }
        // Where there is no message, the next one that comes is the probe.
        state.prober = None;
        let ticket = state.pop(now, Instant::now(), near)?;
        state.workers += 1;
        let duty = state.appoint_prober();
        Some((ticket, duty))
    }

    /// Does what an answer asked for. Messages whose time ends while the lane is held back come back.
    #[must_use]
    pub(super) fn shape(&self, actions: &[Action], now: Timestamp, near: &NearTimers) -> Vec<Ticket> {
        let mut late = Vec::new();
        for action in actions {
            match *action {
                Action::Pause(time) => late.extend(self.hold(now + time, now, near)),
                Action::Rate { messages_per_minute, lasts } => {
                    self.state().slower = Some((Pace::per_minute(messages_per_minute), now + lasts));
                }
                Action::Connections { most, lasts } => self.state().window.limit(most, now + lasts),
            }
        }
        late
    }

    /// Counts the next connection and returns how long it has to wait.
    pub(super) fn connection_wait(&self, instant: Instant) -> Duration {
        let mut state = self.state();
        let Some(pace) = &mut state.connections else { return Duration::ZERO };
        let wait = pace.wait(instant);
        pace.count(instant + wait);
        wait
    }

    /// Keeps what the site said last, for the operator.
    pub(super) fn heard(&self, answer: String) {
        self.state().last_answer = Some(answer);
    }

    /// Takes out all that waits.
    #[must_use]
    pub(super) fn clear(&self) -> Vec<Ticket> {
        let mut state = self.state();
        let mut all = state.transactional.extract(|_| true);
        all.append(&mut state.marketing.extract(|_| true));
        all
    }

    pub(super) fn sight(&self, now: Timestamp) -> Sight {
        let state = self.state();
        let held_until = match state.window.standing() {
            Standing::Held(until) => Some(until).filter(|until| *until > now),
            Standing::Probing | Standing::Open => None,
        };
        Sight { in_flight: state.in_flight, held_until, last_answer: state.last_answer.clone() }
    }

    /// Returns the obstacle to sending the next message at once.
    pub(super) fn obstacle(&self, now: Timestamp, instant: Instant) -> Obstacle {
        let mut state = self.state();
        if let Some(since) = state.window.closed_at() {
            let until = match state.window.standing() {
                Standing::Held(until) => Some(until).filter(|until| *until > now),
                Standing::Probing | Standing::Open => None,
            };
            return Obstacle::Throttled { since, until, last_answer: state.last_answer.clone() };
        }
        let wait = state.pace(now, instant);
        if !wait.is_zero() {
            return Obstacle::Paced(now + wait);
        }
        if state.in_flight < state.window.connections(now) {
            return Obstacle::Nothing;
        }
        state.window.fewer_until(now).map_or(Obstacle::Window, Obstacle::Fewer)
    }

    /// Whether nothing is known of the lane that is worth keeping.
    pub(super) fn is_idle(&self, now: Timestamp) -> bool {
        let state = self.state();
        let is_held = matches!(state.window.standing(), Standing::Held(until) if until > now);
        state.workers == 0 && state.len() == 0 && !is_held && state.left.is_none() && !state.is_reading
    }

    /// Lets no worker begin another job.
    pub(super) fn close(&self) {
        self.state().is_closed = true;
        self.pushed.notify_waiters();
    }
}

/// Instruction for a worker that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leave {
    /// It goes on with this duty: there is work again.
    Stays(Duty),
    /// It goes.
    Goes,
    /// It goes, and nobody is left.
    Last,
}

/// Counts a waiting worker, whatever ends its wait.
struct Waiting<'a>(&'a Lane);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.state().waiting -= 1;
    }
}
