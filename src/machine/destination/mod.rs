//! One destination: the messages of one relay for one site. It decides which message starts, when, and over how many
//! connections. It also decides whether the site is throttled, which message probes it, and which kept connections are
//! closed.
//!
//! The driver reports events ([`Input`]) with the time of both clocks, and carries out the effects ([`Effect`]). Each
//! started message has a [`Slot`] until the driver reports its end.
//!
//! ```text
//!          failures, a pause, a relay's fault                wake-up, or "try now"
//!   Open -----------------------------------> BackedOff ----------------------------> Probing
//!     ^                                           ^                                       |
//!     |                                           +---- the probe failed -----------------+
//!     +---------------- the site answered ------------------------------------------------+
//! ```
//!
//! While the site is not open, its messages are suspended. This is one effect for any number of messages.

mod evidence;
mod messages;
mod queue;
mod requested;
mod slots;
mod spacing;
mod spill;
#[cfg(test)]
mod tests;
mod turns;
mod view;
mod window;

use std::time::Duration;

use crate::base::id::AccountId;
use crate::base::time::Timestamp;
use evidence::{Concerned, Evidence};
pub use messages::{Effect, Input, Limits, Moment, QueuedMessage, RequestedLimit, Signal};
pub use queue::LETS_PASS;
use queue::MessageQueue;
use requested::RequestedLimits;
pub use slots::Slot;
use slots::Slots;
use spacing::Spacing;
pub use spill::{Place, Spill, SpillArea};
pub use turns::EXTRA_MAX;
use turns::Special;
pub use view::{Obstacle, View};
pub use window::Trust;
use window::{Window, WindowState};

/// Length up to which a queue spills nothing.
const SHORT: usize = 8;
/// Length below which a queue reads its spilled messages, and up to which it reads them.
const LOW: usize = if cfg!(test) { 16 } else { 2_048 };
const HIGH: usize = if cfg!(test) { 128 } else { 16_384 };

/// One destination.
#[derive(Debug, Clone)]
pub struct Destination {
    queue: MessageQueue,
    window: Window,
    /// Evidence about 421, requested pauses, and messages that got no answer.
    refusals: Evidence,
    /// Evidence about requests to send more slowly, or over fewer connections.
    slowdowns: Evidence,
    /// The account that alone caused the backoff. The next message of another account ends it.
    blamed: Option<AccountId>,
    slots: Slots,
    special: Special,
    /// Kept connections.
    kept: usize,
    /// Whether the waiting messages are suspended.
    is_suspended: bool,
    messages: Option<Spacing>,
    connections: Option<Spacing>,
    requested: RequestedLimits,
    /// Time of the next message's start, if it waits for the rate limit, for a probe, or behind other accounts.
    turn_at: Option<Duration>,
    last_answer: Option<String>,
    spilled: SpillArea,
    is_shared: bool,
    may_spill: bool,
    is_stopped: bool,
}

impl Destination {
    /// Creates a destination without any known state.
    pub fn new(limits: &Limits) -> Self {
        Self {
            queue: MessageQueue::default(),
            window: Window::new(limits.connections),
            refusals: Evidence::default(),
            slowdowns: Evidence::default(),
            blamed: None,
            slots: Slots::default(),
            special: Special::default(),
            kept: 0,
            is_suspended: false,
            messages: limits.messages_per_minute.map(Spacing::per_minute),
            connections: limits.connections_per_minute.map(Spacing::per_minute),
            requested: RequestedLimits::default(),
            turn_at: None,
            last_answer: None,
            spilled: SpillArea::default(),
            is_shared: limits.is_shared,
            may_spill: limits.may_spill,
            is_stopped: false,
        }
    }

    /// Processes an input, and adds the resulting instructions to `effects`.
    pub fn handle(&mut self, input: Input, moment: Moment, effects: &mut Vec<Effect>) {
        match input {
            Input::Due(message) => self.enqueue(message, effects, MessageQueue::push),
            Input::Connecting(slot) => self.slots.set_connected(slot, true),
            Input::Reuse(slot) => {
                self.kept = self.kept.saturating_sub(1);
                self.slots.set_connected(slot, true);
            }
            Input::Keep(slot) => {
                self.kept += 1;
                self.slots.set_connected(slot, false);
            }
            Input::Closed(count) => self.kept = self.kept.saturating_sub(count),
            Input::ConnectionsWanted => self.quit(self.idle_connections(), effects),
            Input::ServerSilent(of) => {
                let only = of.filter(|account| self.refusals.serves_others(*account, moment.machine));
                self.window.timed_out(only.is_some());
                only.into_iter().for_each(|account| self.slow_down(account, moment.wall));
            }
            Input::Limit(limit, account) => self.limit(limit, account, moment, effects),
            Input::LetPass(slot) => {
                if let Some(message) = self.end(slot) {
                    self.enqueue(message, effects, |queue, message| queue.put_back(message, moment.machine));
                }
            }
            Input::Ended(slot, signal) => {
                if let Some(message) = self.end(slot) {
                    self.learn(signal, message.place.account, moment, effects);
                }
            }
            Input::TryNow => {
                if self.window.allow_probe(moment.wall) {
                    effects.push(Effect::WakeAt(moment.wall));
                }
            }
            Input::Woken => self.wake(moment.wall, effects),
            Input::Spill => self.spill(effects),
            Input::Refilled(rest) => effects.extend(self.spilled.end_reading(rest).map(Effect::WakeAt)),
            Input::Clear => effects.push(Effect::Reroute(self.queue.clear())),
            Input::SetBack(by) => self.set_back(by, effects),
            Input::TurnCame => {}
            Input::Stop => self.stop(),
        }
        self.proceed(moment, effects);
    }

    /// Adds a message to the queue. It is deferred if it expires before the site is tried again.
    fn enqueue(
        &mut self,
        message: QueuedMessage,
        effects: &mut Vec<Effect>,
        add: impl FnOnce(&mut MessageQueue, QueuedMessage),
    ) {
        match self.window.state() {
            WindowState::BackedOff(until)
                if message.give_up_at <= until && self.blamed.is_none_or(|blamed| blamed == message.place.account) =>
            {
                effects.push(Effect::PutOff(vec![message]));
            }
            WindowState::BackedOff(_) | WindowState::Probing | WindowState::Open => {
                effects.push(Effect::Wait(message));
                add(&mut self.queue, message);
            }
        }
    }

    /// Keeps the remaining durations of a backoff and of requested limits.
    fn set_back(&mut self, by: Duration, effects: &mut Vec<Effect>) {
        self.window.set_back(by);
        self.requested.set_back(by);
        let backoff = match self.window.state() {
            WindowState::BackedOff(until) => Some(until),
            WindowState::Probing | WindowState::Open => None,
        };
        effects.extend(backoff.into_iter().chain(self.requested.ends()).map(Effect::WakeAt));
    }

    fn end(&mut self, slot: Slot) -> Option<QueuedMessage> {
        let message = self.slots.remove(slot)?;
        self.special.ended(slot);
        Some(message)
    }

    fn learn(&mut self, signal: Signal, account: AccountId, moment: Moment, effects: &mut Vec<Effect>) {
        let now = moment.wall;
        let concerned = self.weigh(signal, account, moment.machine, effects);
        let is_of_account = concerned == Concerned::Account;
        let held_until = match signal {
            Signal::Took => {
                self.window.took();
                None
            }
            Signal::Answered => {
                self.window.answered();
                None
            }
            Signal::Slowed | Signal::RefusedAccount if is_of_account => {
                self.window.answered();
                self.slow_down(account, now);
                None
            }
            Signal::Slowed => {
                self.window.slowed();
                None
            }
            Signal::PushedBack => self.window.pushed_back(now),
            Signal::TurnedAway | Signal::RefusedAccount => self.window.turned_away(now),
            Signal::TimedOut => self.window.hung(is_of_account, now),
            Signal::Silent => None,
        };
        if let Some(until) = held_until {
            self.throttle(until, (concerned != Concerned::All).then_some(account), effects);
        }
    }

    /// Records a signal as evidence. Returns the accounts that it concerns.
    fn weigh(&mut self, signal: Signal, account: AccountId, now: Duration, effects: &mut Vec<Effect>) -> Concerned {
        match signal {
            Signal::Took | Signal::Answered => {
                self.refusals.served(account, now);
                self.slowdowns.served(account, now);
                Concerned::All
            }
            Signal::Slowed => {
                self.refusals.served(account, now);
                self.slowdowns.refused(account, now)
            }
            Signal::RefusedAccount | Signal::TimedOut => self.refused(account, now, effects),
            Signal::PushedBack | Signal::TurnedAway | Signal::Silent => Concerned::All,
        }
    }

    fn refused(&mut self, account: AccountId, now: Duration, effects: &mut Vec<Effect>) -> Concerned {
        let concerned = self.refusals.refused(account, now);
        if concerned == Concerned::All
            && self.blamed.take().is_some()
            && let WindowState::BackedOff(until) = self.window.state()
        {
            self.put_off(until, effects);
        }
        concerned
    }

    /// Applies a requested limit to all, or to the account whose message was answered. While the site serves others, a
    /// pause means one connection, which shows when the account may send again.
    fn limit(&mut self, limit: RequestedLimit, account: Option<AccountId>, moment: Moment, effects: &mut Vec<Effect>) {
        let now = moment.wall;
        let concerned = account.map_or(Concerned::All, |account| match limit {
            RequestedLimit::Pause(_) => self.refused(account, moment.machine, effects),
            RequestedLimit::Rate(..) | RequestedLimit::Connections(..) => {
                self.slowdowns.refused(account, moment.machine)
            }
        });
        let of = account.filter(|_| concerned != Concerned::All);
        if concerned == Concerned::Account {
            self.window.answered();
        }
        let until = match limit {
            RequestedLimit::Pause(until) if concerned == Concerned::Account => {
                self.requested.limit_connections(of, 1, until, now);
                until
            }
            RequestedLimit::Pause(until) => {
                if let Some(until) = self.window.hold(until, now) {
                    self.throttle(until, of, effects);
                }
                return;
            }
            RequestedLimit::Rate(per_minute, until) => {
                self.requested.limit_rate(of, per_minute, until, now);
                until
            }
            RequestedLimit::Connections(most, until) => {
                self.requested.limit_connections(of, most, until, now);
                self.quit(self.idle_connections(), effects);
                until
            }
        };
        effects.push(Effect::WakeAt(until));
    }

    /// Halves the connections of one account for a while: the site serves others.
    fn slow_down(&mut self, account: AccountId, now: Timestamp) {
        self.requested.slow_down(account, self.slots.of(&account), now);
    }

    /// Sends the site nothing before `until`. `blamed` is the account that alone caused this.
    fn throttle(&mut self, until: Timestamp, blamed: Option<AccountId>, effects: &mut Vec<Effect>) {
        self.blamed = blamed;
        // The wake-up is requested before the messages are suspended, so that virtual time stops at it.
        effects.push(Effect::WakeAt(until));
        self.put_off(until, effects);
    }

    /// Defers the messages that expire before the site is tried again with a message of their account.
    fn put_off(&mut self, until: Timestamp, effects: &mut Vec<Effect>) {
        let late = self.queue.extract_ending(until, self.blamed);
        if !late.is_empty() {
            effects.push(Effect::PutOff(late));
        }
    }

    fn wake(&mut self, now: Timestamp, effects: &mut Vec<Effect>) {
        if !self.is_stopped && self.window.begin_probe(now) {
            // The next message is the probe, even if an earlier one is still in flight.
            self.special.prober = None;
        }
        self.spilled.woken();
        if self.reads_spilled(now) {
            effects.extend(self.spilled.begin_reading().map(Effect::Refill));
        }
    }

    fn reads_spilled(&self, now: Timestamp) -> bool {
        let is_low = self.queue.len() == 0 || self.window.state() == WindowState::Open && self.queue.len() < LOW;
        !self.is_stopped && self.spilled.is_due(is_low, now)
    }

    /// Spills half of the messages.
    fn spill(&mut self, effects: &mut Vec<Effect>) {
        let count = if self.queue.len() <= SHORT { 0 } else { self.queue.len() / 2 };
        let shed = self.queue.shed(count);
        let Some(spill) = shed.iter().map(Spill::of).reduce(|spill, one| spill.and(Some(one))) else { return };
        effects.extend(self.spilled.add(spill).map(Effect::WakeAt));
        effects.push(Effect::Leave(shed));
    }

    /// Carries out everything that is possible now.
    fn proceed(&mut self, moment: Moment, effects: &mut Vec<Effect>) {
        let passes =
            |account: &AccountId| self.blamed != Some(*account) && !self.queue.lets_pass(account, moment.machine);
        if self.blamed.is_some() && self.queue.has_of(passes, true) && self.window.end_backoff(moment.wall) {
            self.window.forget_failures();
            effects.push(Effect::WakeAt(moment.wall));
        }
        let most = if self.is_stopped { 0 } else { self.connections(moment.wall) };
        self.quit((self.kept + self.slots.connected()).saturating_sub(most), effects);
        let is_suspended = self.window.state() != WindowState::Open;
        if std::mem::replace(&mut self.is_suspended, is_suspended) != is_suspended {
            effects.push(if is_suspended { Effect::Suspend } else { Effect::Resume });
        }
        while let Some((slot, message)) = self.start_next(moment) {
            effects.push(Effect::Start(slot, message));
        }
        if self.reads_spilled(moment.wall) && self.spilled.calls() {
            effects.push(Effect::WakeAt(moment.wall));
        }
    }

    fn quit(&mut self, count: usize, effects: &mut Vec<Effect>) {
        let count = count.min(self.kept);
        self.kept -= count;
        if count > 0 {
            effects.push(Effect::Quit(count));
        }
    }

    /// Returns the number of connections that are allowed.
    fn connections(&self, now: Timestamp) -> usize {
        self.window.connections().min(self.requested.most(now))
    }

    /// Returns the time for which the next message must wait for the rate limit.
    fn spacing_wait(&self, moment: Moment) -> Duration {
        let wait = self.messages.map_or(Duration::ZERO, |spacing| spacing.wait(moment.machine));
        wait.max(self.requested.wait(moment))
    }

    /// Returns the time until a new connection may be opened. If it is zero, counts the connection.
    pub fn connection_wait(&mut self, moment: Moment) -> Duration {
        let Some(spacing) = &mut self.connections else { return Duration::ZERO };
        let wait = spacing.wait(moment.machine);
        if wait.is_zero() {
            spacing.count(moment.machine);
        }
        wait
    }

    /// Starts no further message.
    pub const fn stop(&mut self) {
        self.is_stopped = true;
    }

    /// Stores the last answer of the site, for the operator.
    pub fn set_last_answer(&mut self, answer: String) {
        self.last_answer = Some(answer);
    }
}
