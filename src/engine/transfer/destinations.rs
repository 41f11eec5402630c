//! The driver of all destinations. One lock guards the deciding machines and the kept connections. The store's timers
//! change under the same lock, so they change in the order of the decisions. The lock is not held while messages are
//! sent or deferred, or while the store is read.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use super::Shared;
use super::destination_queue::DestinationQueue;
use super::keeper::Keeper;
use super::pool::{Pool, PooledConnection};
use super::relays::Number;
use super::site::Site;
use super::worker;
use crate::machine::destination::{
    Destination, Effect, Input, Limits as DecisionLimits, QueuedMessage, RequestedLimit, Slot, Spill,
};
use crate::machine::paused_messages::PausedMessages;
use crate::machine::relay_table::RelayTable;
use crate::machine::scheduler::{DestinationEffect, DestinationId, Scheduler};
use crate::machine::silent_resets::SilentResets;
use crate::machine::unassigned_messages::UnassignedMessages;
use crate::machine::warm_up::WarmUpCounts;
use crate::smtp::shaping::Limits;
use crate::store::timer::Timer;

/// The machines of all destinations, relays and paused messages, and the state of the driver.
#[derive(Default)]
pub(super) struct Destinations {
    pub(super) scheduler: Scheduler<(Number, Site)>,
    pub(super) driven: HashMap<DestinationId, DestinationDriver>,
    pub(super) relays: RelayTable,
    pub(super) warm_up: WarmUpCounts,
    pub(super) paused: PausedMessages,
    pub(super) unassigned: UnassignedMessages,
    pub(super) silent_resets: SilentResets,
}

/// State of the driver for one destination.
pub(super) struct DestinationDriver {
    pub(super) queue: Arc<DestinationQueue>,
    pub(super) pool: Pool,
    pub(super) keeper: Keeper,
}

/// A message to send.
pub(super) struct StartedMessage {
    pub(super) queue: Arc<DestinationQueue>,
    pub(super) slot: Slot,
    pub(super) queued: QueuedMessage,
}

/// Effects that run without the lock.
#[derive(Default)]
pub(super) struct DeferredEffects {
    pub(super) started: VecDeque<StartedMessage>,
    late: Vec<QueuedMessage>,
    pub(super) refill: Option<(Arc<DestinationQueue>, Spill)>,
}

impl Destinations {
    /// Returns the destination queue of a route.
    pub(super) fn find(&self, relay: Number, site: Site) -> Option<Arc<DestinationQueue>> {
        self.queue(self.scheduler.find(&(relay, site))?)
    }

    /// Returns a destination queue.
    pub(super) fn queue(&self, id: DestinationId) -> Option<Arc<DestinationQueue>> {
        self.driven.get(&id).map(|driven| Arc::clone(&driven.queue))
    }

    /// Iterates over the destination queues in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Arc<DestinationQueue>, &Destination)> {
        self.scheduler.iter().filter_map(|(id, destination)| Some((&self.driven.get(&id)?.queue, destination)))
    }

    /// Returns the destination queue of a route, and creates it if it does not exist.
    pub(super) fn open(&mut self, shared: &Shared, relay: Number, site: Site) -> Arc<DestinationQueue> {
        if let Some(queue) = self.find(relay, site.clone()) {
            return queue;
        }
        for forgotten in self.scheduler.forget_idle(shared.now()) {
            self.driven.remove(&forgotten);
            shared.timers().resume(forgotten);
        }
        // All relays' connections to a site are counted together.
        let of_relay = |relay| self.find(relay, site.clone()).map(|queue| queue.site_key);
        let site_key = shared.relays.numbers().find_map(of_relay);
        let limits = shared.shaping.limits(site.provider());
        let is_shared = shared.relays.relay(relay).streams.len() > 1;
        let decision_limits = limits_of(&limits, is_shared, &site);
        let id = self.scheduler.open((relay, site.clone()), &decision_limits);
        let queue = Arc::new(DestinationQueue::new(id, site_key.unwrap_or(id), relay, site, limits));
        let (pool, keeper) = (Pool::default(), Keeper::default());
        self.driven.insert(id, DestinationDriver { queue: Arc::clone(&queue), pool, keeper });
        queue
    }

    /// Reports an event of one destination to the machine.
    pub(super) fn decide(
        &mut self,
        shared: &Arc<Shared>,
        id: DestinationId,
        input: Input,
        decided: &mut DeferredEffects,
    ) {
        let mut effects = Vec::new();
        self.scheduler.handle(id, input, shared.moment(), &mut effects);
        self.apply(shared, effects, decided);
        self.call_keeper(id, shared);
    }

    /// Returns whether the destination keeps a connection for which it has no message, and whose permits other
    /// messages wait for.
    pub(super) fn is_idle_and_wanted(&self, id: DestinationId) -> bool {
        let is_idle = self.scheduler.get(id).is_some_and(|own| own.idle_connections() > 0);
        is_idle && self.driven.get(&id).is_some_and(|driven| driven.pool.is_wanted())
    }

    /// Starts no further message.
    pub(super) fn stop(&mut self, shared: &Arc<Shared>) -> DeferredEffects {
        let (mut effects, mut decided) = (Vec::new(), DeferredEffects::default());
        self.scheduler.stop(shared.moment(), &mut effects);
        self.apply(shared, effects, &mut decided);
        decided
    }

    /// Moves all times, because the service's time was set back.
    pub(super) fn set_back(&mut self, shared: &Arc<Shared>, by: Duration) -> DeferredEffects {
        let (mut effects, mut decided) = (Vec::new(), DeferredEffects::default());
        self.relays.set_back(by);
        self.scheduler.handle_all(Input::SetBack(by), shared.moment(), &mut effects);
        self.apply(shared, effects, &mut decided);
        decided
    }

    fn apply(&mut self, shared: &Arc<Shared>, effects: Vec<DestinationEffect>, decided: &mut DeferredEffects) {
        let timers = shared.timers();
        for (id, effect) in effects {
            let Some(driven) = self.driven.get_mut(&id) else { continue };
            match effect {
                Effect::Wait(queued) => timers.enqueue(&Timer::of_message(&queued), id),
                Effect::Start(slot, queued) => {
                    timers.dequeue([Timer::of_message(&queued)]);
                    decided.started.push_back(StartedMessage { queue: Arc::clone(&driven.queue), slot, queued });
                }
                Effect::Suspend => timers.suspend(id),
                Effect::Resume => timers.resume(id),
                Effect::WakeAt(at) => timers.set_alarm((at, id)),
                Effect::PutOff(late) => {
                    timers.dequeue(late.iter().map(Timer::of_message));
                    decided.late.extend(late);
                }
                Effect::Leave(spilled) => timers.forget_all(spilled.iter().map(Timer::of_message)),
                Effect::Refill(spill) => decided.refill = Some((Arc::clone(&driven.queue), spill)),
                Effect::Reroute(all) => timers.give_back_all(all.iter().map(Timer::of_message)),
                Effect::Quit(count) => {
                    (0..count).filter_map(|_| driven.pool.oldest()).for_each(PooledConnection::leave)
                }
            }
        }
    }
}

impl Shared {
    pub(super) fn destinations(&self) -> MutexGuard<'_, Destinations> {
        self.destinations.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports an event of a destination, and starts the messages that may start.
    pub(super) fn handle(self: &Arc<Self>, id: DestinationId, input: Input) {
        let mut decided = DeferredEffects::default();
        self.destinations().decide(self, id, input, &mut decided);
        self.carry_out(decided);
    }

    /// Lets a due message wait for its route. If the relay is backed off for all accounts, so is the destination.
    pub(super) fn enter(self: &Arc<Self>, relay: Number, site: Site, queued: QueuedMessage) {
        let (now, mut decided) = (self.now(), DeferredEffects::default());
        let mut destinations = self.destinations();
        let queue = destinations.open(self, relay, site);
        if let Some(until) = destinations.relays.held_for_all_until(relay, now) {
            destinations.decide(self, queue.id, Input::Limit(RequestedLimit::Pause(until), None), &mut decided);
        }
        destinations.decide(self, queue.id, Input::Due(queued), &mut decided);
        drop(destinations);
        let has_to_wait = decided.started.is_empty();
        self.carry_out(decided);
        if has_to_wait {
            queue.arrived.notify_waiters();
        }
    }

    /// Starts the messages that may start, and defers those whose time ends before.
    pub(super) fn carry_out(self: &Arc<Self>, decided: DeferredEffects) {
        for started in decided.started {
            self.start(started);
        }
        for queued in decided.late {
            self.postpone(queued, queued.give_up_at);
        }
    }

    pub(super) fn start(self: &Arc<Self>, started: StartedMessage) {
        self.spawn(worker::run(Arc::clone(self), started));
    }
}

fn limits_of(limits: &Limits, is_shared: bool, site: &Site) -> DecisionLimits {
    DecisionLimits {
        connections: limits.connections,
        messages_per_minute: limits.messages_per_minute,
        connections_per_minute: limits.connections_per_minute,
        is_shared,
        // Captured mail has no route by its domain, so it could not be read again.
        may_spill: !matches!(site, Site::Captured(_)),
    }
}
