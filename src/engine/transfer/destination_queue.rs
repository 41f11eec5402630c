//! The driver of one destination: it hands what has happened to the machine, which decides under the lock, and carries
//! out what comes back. Timers of the store change under the same lock, so their order is that of the decisions.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::Shared;
use super::keeper::Keeper;
use super::pool::{Kept, Pool};
use super::relays::Number;
use super::site::Site;
use super::worker;
use crate::base::id::AccountId;
use crate::engine::ports::Target;
use crate::machine::destination::{
    Destination, Effect, Input, LETS_PASS, Limits as DestinationLimits, QueuedMessage, Slot, Spill, Trust,
};
use crate::smtp::shaping::{Action, Limits};
use crate::store::timer::Timer;

/// The messages of one relay for one site.
pub(super) struct Lane {
    /// Its name among alarms and queues of the store.
    pub(super) number: u64,
    /// Its site among budgets: all relays' connections to a site count as one.
    pub(super) site_key: u64,
    pub(super) relay: Number,
    pub(super) site: Site,
    limits: Limits,
    state: Mutex<State>,
    /// Woken when a message came that has to wait.
    arrived: Notify,
    /// Woken when the keeper has something new to wait for.
    pub(super) changed: Notify,
}

pub(super) struct State {
    pub(super) destination: Destination,
    pub(super) pool: Pool,
    pub(super) keeper: Keeper,
}

/// A message that is to be sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Started {
    pub(super) slot: Slot,
    pub(super) queued: QueuedMessage,
}

/// Effects that are carried out without the lock.
#[derive(Default)]
struct Decided {
    started: VecDeque<Started>,
    late: Vec<QueuedMessage>,
    refill: Option<Spill>,
}

impl Lane {
    pub(super) fn new(
        (number, site_key): (u64, u64),
        relay: Number,
        site: Site,
        limits: Limits,
        is_shared: bool,
    ) -> Self {
        let destination = Destination::new(&DestinationLimits {
            connections: limits.connections,
            messages_per_minute: limits.messages_per_minute,
            connections_per_minute: limits.connections_per_minute,
            is_shared,
        });
        let state = Mutex::new(State { destination, pool: Pool::default(), keeper: Keeper::default() });
        let [arrived, changed] = [Notify::const_new(), Notify::const_new()];
        Self { number, site_key, relay, site, limits, state, arrived, changed }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports what has happened, and starts the messages that may start.
    pub(super) fn handle(self: &Arc<Self>, shared: &Arc<Shared>, input: Input) {
        let mut decided = Decided::default();
        self.decide(&mut self.state(), shared, input, &mut decided);
        let has_to_wait = matches!(input, Input::Due(_)) && decided.started.is_empty();
        self.carry_out(shared, decided);
        if has_to_wait {
            self.arrived.notify_waiters();
        }
    }

    /// Reports the end of a started message, and returns the next one for the same worker.
    pub(super) fn end(self: &Arc<Self>, shared: &Arc<Shared>, input: Input) -> Option<Started> {
        let mut decided = Decided::default();
        self.decide(&mut self.state(), shared, input, &mut decided);
        let own = decided.started.pop_front();
        self.carry_out(shared, decided);
        own
    }

    /// An alarm has come. Returns the spilled messages to read.
    pub(super) fn wake(self: &Arc<Self>, shared: &Arc<Shared>) -> Option<Spill> {
        let mut decided = Decided::default();
        self.decide(&mut self.state(), shared, Input::Woken, &mut decided);
        let refill = decided.refill.take();
        self.carry_out(shared, decided);
        refill
    }

    fn decide(self: &Arc<Self>, state: &mut State, shared: &Arc<Shared>, input: Input, decided: &mut Decided) {
        let (near, mut effects) = (shared.near(), Vec::new());
        let before = state.destination.len();
        state.destination.handle(input, shared.moment(), &mut effects);
        shared.queue_changed(before, state.destination.len());
        for effect in effects {
            match effect {
                Effect::Wait(queued) => near.enqueue(&Timer::of_message(&queued), self.number),
                Effect::Start(slot, queued) => {
                    near.dequeue([Timer::of_message(&queued)]);
                    decided.started.push_back(Started { slot, queued });
                }
                Effect::Suspend => near.suspend(self.number),
                Effect::Resume => near.resume(self.number),
                Effect::WakeAt(at) => near.set_alarm((at, self.number)),
                Effect::PutOff(late) => {
                    near.dequeue(late.iter().map(Timer::of_message));
                    decided.late.extend(late);
                }
                Effect::Leave(spilled) => near.forget_all(spilled.iter().map(Timer::of_message)),
                Effect::Refill(spill) => decided.refill = Some(spill),
                Effect::Reroute(all) => near.give_back_all(all.iter().map(Timer::of_message)),
                Effect::Quit(count) => (0..count).filter_map(|_| state.pool.oldest()).for_each(Kept::leave),
            }
        }
        self.call_keeper(state, shared);
    }

    fn carry_out(self: &Arc<Self>, shared: &Arc<Shared>, decided: Decided) {
        for started in decided.started {
            self.start(shared, started);
        }
        for queued in decided.late {
            shared.put_off(queued, queued.give_up_at);
        }
    }

    pub(super) fn start(self: &Arc<Self>, shared: &Arc<Shared>, started: Started) {
        shared.spawn(worker::run(Arc::clone(shared), Arc::clone(self), started));
    }

    /// Has a started message use a kept connection to one of `targets`.
    pub(super) fn take_kept<'a>(
        self: &Arc<Self>,
        shared: &Arc<Shared>,
        slot: Slot,
        targets: impl IntoIterator<Item = &'a Target>,
    ) -> Option<Kept> {
        self.close_old(shared);
        let (mut state, mut decided) = (self.state(), Decided::default());
        let found = state.pool.take(targets)?;
        self.decide(&mut state, shared, Input::Reuse(slot), &mut decided);
        drop(state);
        self.carry_out(shared, decided);
        Some(found)
    }

    /// Keeps the connection of a started message.
    pub(super) fn keep(self: &Arc<Self>, shared: &Arc<Shared>, slot: Slot, kept: Kept) {
        let (mut state, mut decided) = (self.state(), Decided::default());
        state.pool.put(kept);
        self.decide(&mut state, shared, Input::Keep(slot), &mut decided);
        drop(state);
        self.carry_out(shared, decided);
    }

    /// Closes the kept connections that are past their time.
    pub(super) fn close_old(self: &Arc<Self>, shared: &Arc<Shared>) {
        let (mut state, mut decided) = (self.state(), Decided::default());
        let old = state.pool.take_old(&self.limits, Instant::now());
        if !old.is_empty() {
            self.decide(&mut state, shared, Input::Closed(old.len()), &mut decided);
        }
        drop(state);
        old.into_iter().for_each(Kept::leave);
        self.carry_out(shared, decided);
    }

    /// Resolves when a message of another account could begin instead of one of `account` that waits for a connection.
    pub(super) async fn is_wanted_by_others(&self, account: AccountId, shared: &Shared) {
        loop {
            // Listens before it looks, so that no arrival in between goes unheard.
            let arrived = self.arrived.notified();
            if self.state().destination.has_other(account, shared.moment()) {
                return;
            }
            tokio::select! {
                biased;
                () = arrived => {}
                () = tokio::time::sleep(LETS_PASS) => {}
            }
        }
    }

    /// Does what an answer asked for.
    pub(super) fn shape(self: &Arc<Self>, shared: &Arc<Shared>, actions: &[Action]) {
        let now = shared.now();
        for action in actions {
            let input = match *action {
                Action::Pause(time) => Input::Throttle(now + time),
                Action::Rate { messages_per_minute, lasts } => Input::Space(messages_per_minute, now + lasts),
                Action::Connections { most, lasts } => Input::Narrow(most, now + lasts),
            };
            self.handle(shared, input);
        }
    }

    /// Returns the trust in the site.
    pub(super) fn trust(&self) -> Trust {
        self.state().destination.trust()
    }

    /// Counts the next connection, and returns how long it has to wait.
    pub(super) fn connection_wait(&self, shared: &Shared) -> Duration {
        self.state().destination.connection_wait(shared.moment())
    }
}
