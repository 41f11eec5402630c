//! The keeper of a destination: a task for events that no worker waits for. It closes kept connections that expire or
//! that other destinations need, and starts the next message when the rate limit allows it.

use std::sync::Arc;

use tokio::time::Instant;

use super::Shared;
use super::destination_queue::DestinationQueue;
use super::destinations::Destinations;
use super::pool::IDLE;
use crate::machine::destination::{Destination, Input};
use crate::machine::scheduler::DestinationId;

/// State of the task: whether it runs, and the events that it awaits.
#[derive(Default)]
pub(super) struct Keeper {
    is_running: bool,
    awaits: AwaitedEvents,
}

/// Events that a keeper awaits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct AwaitedEvents {
    turn: Option<Instant>,
    /// The expiry of the oldest kept connection.
    connection: Option<Instant>,
    /// Whether connections are kept that other destinations may need.
    is_idle: bool,
}

impl AwaitedEvents {
    fn until(&self) -> Option<Instant> {
        [self.turn, self.connection].into_iter().flatten().min()
    }

    /// Returns whether a keeper that awaits `before` would be late.
    fn is_sooner_than(&self, before: &Self) -> bool {
        let is_sooner = self.until().is_some_and(|own| before.until().is_none_or(|before| own < before));
        is_sooner || self.is_idle && !before.is_idle
    }
}

impl Destinations {
    /// Starts a keeper for the next events of a destination, unless one already awaits them.
    pub(super) fn call_keeper(&mut self, id: DestinationId, shared: &Arc<Shared>) {
        let awaits = self.awaited(id, shared);
        let Some(driven) = self.driven.get_mut(&id) else { return };
        if driven.keeper.is_running {
            if awaits.is_sooner_than(&driven.keeper.awaits) {
                driven.queue.changed.notify_one();
            }
        } else if awaits != AwaitedEvents::default() && !shared.is_stopping() {
            driven.keeper = Keeper { is_running: true, awaits };
            shared.spawn(keep(Arc::clone(shared), Arc::clone(&driven.queue)));
        }
    }

    /// Returns the next events for the keeper. The keeper ends if there are none.
    fn next_awaited(&mut self, id: DestinationId, shared: &Shared) -> Option<AwaitedEvents> {
        let awaits = self.awaited(id, shared);
        let is_running = awaits != AwaitedEvents::default();
        self.driven.get_mut(&id)?.keeper = Keeper { is_running, awaits };
        is_running.then_some(awaits)
    }

    fn awaited(&self, id: DestinationId, shared: &Shared) -> AwaitedEvents {
        let (Some(destination), Some(driven)) = (self.scheduler.get(id), self.driven.get(&id)) else {
            return AwaitedEvents::default();
        };
        let turn = destination.next_wake().map(|at| shared.started + at);
        let connection = driven.pool.oldest_since().map(|since| since + IDLE);
        AwaitedEvents { turn, connection, is_idle: destination.idle_connections() > 0 }
    }
}

impl DestinationQueue {
    /// Closes kept connections, because other destinations wait for permits.
    fn give_up_idle(&self, shared: &Arc<Shared>) {
        let idle = shared.destinations().scheduler.get(self.id).map(Destination::idle_connections);
        self.handle(shared, Input::ConnectionsWanted);
        if idle.is_none_or(|idle| idle == 0) {
            shared.connections.all.pass_on();
        }
    }
}

async fn passed(until: Option<Instant>) {
    match until {
        Some(until) => tokio::time::sleep_until(until).await,
        None => std::future::pending().await,
    }
}

/// Runs until there is no event to wait for.
async fn keep(shared: Arc<Shared>, queue: Arc<DestinationQueue>) {
    loop {
        let next = shared.destinations().next_awaited(queue.id, &shared);
        let Some(awaited) = next else { return };
        tokio::select! {
            biased;
            () = shared.closing() => return,
            () = queue.changed.notified() => {}
            () = passed(awaited.until()) => {
                queue.close_old(&shared);
                queue.handle(&shared, Input::TurnCame);
            }
            () = shared.connections.all.wanted(), if awaited.is_idle => queue.give_up_idle(&shared),
        }
    }
}
