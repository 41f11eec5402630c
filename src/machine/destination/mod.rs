//! One destination: the messages of one relay for one site, and the decisions about them. Which message starts, when,
//! over how many connections; whether the site is throttled, and who probes it; which kept connections are closed.
//!
//! The driver hands in what has happened ([`Input`]) with the time on both clocks, and carries out what comes back
//! ([`Effect`]). Each started message has a [`Slot`] until the driver says that it has ended, whatever happens to it.
//!
//! ```text
//!          failures, a pause, a relay's fault                wake-up, or "try now"
//!   Open --------------------------------------> Held -------------------------------> Probing
//!     ^                                           ^                                       |
//!     |                                           +---- the probe failed -----------------+
//!     +---------------- the site answered ------------------------------------------------+
//! ```
//!
//! While the site is not open its messages are suspended. Suspending them is one effect, however many they are.

mod messages;
mod queue;
mod slots;
mod spacing;
mod spill;
#[cfg(test)]
mod tests;
mod view;
mod window;

use std::time::Duration;

use crate::base::time::Timestamp;
pub use messages::{Effect, Input, Limits, Moment, QueuedMessage, Signal};
pub use queue::LETS_PASS;
use queue::MessageQueue;
pub use slots::Slot;
use slots::Slots;
use spacing::Spacing;
pub use spill::{Place, Spill, SpillArea};
pub use view::{Obstacle, View};
pub use window::Trust;
use window::{Standing, Window};

/// A queue this short spills nothing.
const SHORT: usize = 8;
/// A queue that is shorter reads more of its spilled messages, and up to so many.
const LOW: usize = if cfg!(test) { 16 } else { 2_048 };
const HIGH: usize = if cfg!(test) { 128 } else { 16_384 };

/// One destination.
#[derive(Debug, Clone)]
pub struct Destination {
    queue: MessageQueue,
    window: Window,
    slots: Slots,
    /// The message that probes the site.
    prober: Option<Slot>,
    /// Kept connections.
    kept: usize,
    /// Whether the messages that wait are suspended.
    is_suspended: bool,
    messages: Option<Spacing>,
    connections: Option<Spacing>,
    /// Wider spacing that an answer asked for, and its end.
    slower: Option<(Spacing, Timestamp)>,
    /// When the next message may start, if it waits for its turn in the minute.
    spaced_until: Option<Duration>,
    last_answer: Option<String>,
    spilled: SpillArea,
    is_shared: bool,
    may_spill: bool,
    is_stopped: bool,
}

impl Destination {
    /// A destination that nothing is known of.
    pub fn new(limits: &Limits) -> Self {
        Self {
            queue: MessageQueue::default(),
            window: Window::new(limits.connections),
            slots: Slots::default(),
            prober: None,
            kept: 0,
            is_suspended: false,
            messages: limits.messages_per_minute.map(Spacing::per_minute),
            connections: limits.connections_per_minute.map(Spacing::per_minute),
            slower: None,
            spaced_until: None,
            last_answer: None,
            spilled: SpillArea::default(),
            is_shared: limits.is_shared,
            may_spill: limits.may_spill,
            is_stopped: false,
        }
    }

    /// Takes in what has happened, and adds what is to be done to `effects`.
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
            Input::ServerSilent => self.window.timed_out(),
            Input::Throttle(until) => {
                if self.window.hold(until, moment.wall) {
                    self.throttle(until, effects);
                }
            }
            Input::Space(per_minute, until) => self.slower = Some((Spacing::per_minute(per_minute), until)),
            Input::Narrow(most, until) => self.window.limit(most, until),
            Input::LetPass(slot) => {
                if let Some(message) = self.end(slot) {
                    self.enqueue(message, effects, |queue, message| queue.put_back(message, moment.machine));
                }
            }
            Input::Ended(slot, signal) => {
                if self.end(slot).is_some() {
                    self.learn(signal, moment.wall, effects);
                }
            }
            Input::TryNow => {
                if self.window.hurry(moment.wall) {
                    effects.push(Effect::WakeAt(moment.wall));
                }
            }
            Input::Woken => self.wake(moment.wall, effects),
            Input::Spill => self.spill(effects),
            Input::Refilled(rest) => effects.extend(self.spilled.end_reading(rest).map(Effect::WakeAt)),
            Input::Clear => effects.push(Effect::Reroute(self.queue.clear())),
            Input::TurnCame => {}
            Input::Stop => self.stop(),
        }
        self.proceed(moment, effects);
    }

    /// Has a message wait. It is put off where its lifetime ends before the site is tried again.
    fn enqueue(
        &mut self,
        message: QueuedMessage,
        effects: &mut Vec<Effect>,
        add: impl FnOnce(&mut MessageQueue, QueuedMessage),
    ) {
        match self.window.standing() {
            Standing::Held(until) if message.give_up_at <= until => effects.push(Effect::PutOff(vec![message])),
            Standing::Held(_) | Standing::Probing | Standing::Open => {
                effects.push(Effect::Wait(message));
                add(&mut self.queue, message);
            }
        }
    }

    fn end(&mut self, slot: Slot) -> Option<QueuedMessage> {
        let message = self.slots.remove(slot)?;
        if self.prober == Some(slot) {
            self.prober = None;
        }
        Some(message)
    }

    fn learn(&mut self, signal: Signal, now: Timestamp, effects: &mut Vec<Effect>) {
        let held_until = match signal {
            Signal::Took => {
                self.window.took();
                None
            }
            Signal::Answered => {
                self.window.answered();
                None
            }
            Signal::Slowed => {
                self.window.slowed();
                None
            }
            Signal::PushedBack => self.window.pushed_back(now),
            Signal::TurnedAway => self.window.turned_away(now),
            Signal::TimedOut => self.window.hung(now),
            Signal::Silent => None,
        };
        if let Some(until) = held_until {
            self.throttle(until, effects);
        }
    }

    /// The site gets nothing until then.
    fn throttle(&mut self, until: Timestamp, effects: &mut Vec<Effect>) {
        // Before the messages are suspended, so that time which is moved stops at it.
        effects.push(Effect::WakeAt(until));
        let late = self.queue.extract_ending(until);
        if !late.is_empty() {
            effects.push(Effect::PutOff(late));
        }
    }

    fn wake(&mut self, now: Timestamp, effects: &mut Vec<Effect>) {
        if !self.is_stopped && self.window.rings(now) {
            // The next message is the probe, whatever an earlier one still does.
            self.prober = None;
        }
        self.spilled.woken();
        if self.reads_spilled(now) {
            effects.extend(self.spilled.begin_reading().map(Effect::Refill));
        }
    }

    fn reads_spilled(&self, now: Timestamp) -> bool {
        let is_low = self.queue.len() == 0 || self.window.standing() == Standing::Open && self.queue.len() < LOW;
        !self.is_stopped && self.spilled.is_due(is_low, now)
    }

    /// Leaves half of the messages to the store.
    fn spill(&mut self, effects: &mut Vec<Effect>) {
        let count = if self.queue.len() <= SHORT { 0 } else { self.queue.len() / 2 };
        let shed = self.queue.shed(count);
        let Some(spill) = shed.iter().map(Spill::of).reduce(|spill, one| spill.and(Some(one))) else { return };
        effects.extend(self.spilled.add(spill).map(Effect::WakeAt));
        effects.push(Effect::Leave(shed));
    }

    /// Does all that can be done now.
    fn proceed(&mut self, moment: Moment, effects: &mut Vec<Effect>) {
        let most = if self.is_stopped { 0 } else { self.window.connections(moment.wall) };
        self.quit((self.kept + self.slots.connected()).saturating_sub(most), effects);
        let is_suspended = self.window.standing() != Standing::Open;
        if std::mem::replace(&mut self.is_suspended, is_suspended) != is_suspended {
            effects.push(if is_suspended { Effect::Suspend } else { Effect::Resume });
        }
        while let Some(message) = self.next(moment) {
            let slot = self.slots.add(message);
            if self.window.standing() == Standing::Probing {
                self.prober = Some(slot);
            }
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

    /// The next message that may start.
    fn next(&mut self, moment: Moment) -> Option<QueuedMessage> {
        self.spaced_until = None;
        let may_start = match self.window.standing() {
            _ if self.is_stopped => false,
            Standing::Held(_) => false,
            Standing::Probing => self.prober.is_none(),
            Standing::Open => self.slots.len() < self.window.connections(moment.wall),
        };
        let has_marketing_room = self.marketing_room(moment.wall) > 0;
        if !may_start || self.queue.transactional_len() == 0 && !has_marketing_room {
            return None;
        }
        let wait = self.spacing_wait(moment);
        // Nobody waits for a probe.
        if !wait.is_zero() && self.window.standing() == Standing::Open {
            self.spaced_until = Some(moment.machine + wait);
            return None;
        }
        let slower = self.slower.as_mut().map(|(spacing, _)| spacing);
        self.messages.iter_mut().chain(slower).for_each(|spacing| spacing.count(moment.machine));
        self.queue.pop(has_marketing_room, moment.machine)
    }

    /// Returns how many marketing messages may start. Where the streams share the destination, one connection is
    /// reserved.
    fn marketing_room(&self, now: Timestamp) -> usize {
        let waiting = self.queue.marketing_len();
        // Messages that were under way before the site was throttled take nothing from its probe.
        if self.window.standing() == Standing::Probing {
            return waiting;
        }
        let connections = self.window.connections(now);
        let theirs = if self.is_shared { connections.saturating_sub(1).max(1) } else { connections };
        theirs.saturating_sub(self.slots.marketing()).min(waiting)
    }

    /// Returns how long the next message has to wait for its turn in the minute.
    fn spacing_wait(&mut self, moment: Moment) -> Duration {
        self.slower = self.slower.filter(|(_, until)| *until > moment.wall);
        let spacings = self.messages.iter().chain(self.slower.as_ref().map(|(spacing, _)| spacing));
        spacings.map(|spacing| spacing.wait(moment.machine)).max().unwrap_or_default()
    }

    /// Counts the next new connection, and returns how long it has to wait.
    pub fn connection_wait(&mut self, moment: Moment) -> Duration {
        let Some(spacing) = &mut self.connections else { return Duration::ZERO };
        let wait = spacing.wait(moment.machine);
        spacing.count(moment.machine + wait);
        wait
    }

    /// Starts nothing any more.
    pub const fn stop(&mut self) {
        self.is_stopped = true;
    }

    /// Remembers the last answer of the site, for the operator.
    pub fn heard(&mut self, answer: String) {
        self.last_answer = Some(answer);
    }
}
