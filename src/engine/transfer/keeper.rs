//! The keeper of a destination: a task for events that no worker waits for. It closes kept connections that grow old or
//! that other destinations need, and starts the next message when the rate limit allows it.

use std::sync::Arc;

use tokio::time::Instant;

use super::Shared;
use super::destination_queue::{Lane, State};
use super::pool::IDLE;
use crate::machine::destination::Input;

/// State of the task: whether it runs, and the events that it waits for.
#[derive(Default)]
pub(super) struct Keeper {
    is_running: bool,
    awaits: Awaited,
}

/// Events that a keeper waits for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Awaited {
    turn: Option<Instant>,
    /// The end of the oldest kept connection.
    connection: Option<Instant>,
    /// Whether connections are kept that others may want.
    is_idle: bool,
}

impl Awaited {
    fn until(&self) -> Option<Instant> {
        [self.turn, self.connection].into_iter().flatten().min()
    }

    /// Whether a keeper that waits for `before` would come too late.
    fn is_sooner_than(&self, before: &Self) -> bool {
        let is_sooner = self.until().is_some_and(|own| before.until().is_none_or(|before| own < before));
        is_sooner || self.is_idle && !before.is_idle
    }
}

impl Lane {
    /// Starts a keeper for the next events, unless one already waits for them.
    pub(super) fn call_keeper(self: &Arc<Self>, state: &mut State, shared: &Arc<Shared>) {
        let awaited = awaited(state, shared);
        if state.keeper.is_running {
            if awaited.is_sooner_than(&state.keeper.awaits) {
                self.changed.notify_one();
            }
        } else if awaited != Awaited::default() && !shared.is_stopping() {
            state.keeper = Keeper { is_running: true, awaits: awaited };
            shared.spawn(keep(Arc::clone(shared), Arc::clone(self)));
        }
    }

    /// The next events for the keeper. It ends where there are none.
    fn next_awaited(&self, shared: &Arc<Shared>) -> Option<Awaited> {
        let mut state = self.state();
        let awaits = awaited(&state, shared);
        let is_running = awaits != Awaited::default();
        state.keeper = Keeper { is_running, awaits };
        is_running.then_some(awaits)
    }

    /// Closes kept connections, because other destinations wait for one.
    fn give_up_idle(self: &Arc<Self>, shared: &Arc<Shared>) {
        let had_idle = self.state().destination.idle_connections() > 0;
        self.handle(shared, Input::ConnectionsWanted);
        if !had_idle {
            shared.connections.pass_on();
        }
    }
}

fn awaited(state: &State, shared: &Shared) -> Awaited {
    let turn = state.destination.next_wake().map(|at| shared.started + at);
    let connection = state.pool.oldest_since().map(|since| since + IDLE);
    Awaited { turn, connection, is_idle: state.destination.idle_connections() > 0 }
}

async fn passed(until: Option<Instant>) {
    match until {
        Some(until) => tokio::time::sleep_until(until).await,
        None => std::future::pending().await,
    }
}

/// Runs until no event is left to wait for.
async fn keep(shared: Arc<Shared>, lane: Arc<Lane>) {
    while let Some(awaited) = lane.next_awaited(&shared) {
        tokio::select! {
            biased;
            () = shared.closing() => return,
            () = lane.changed.notified() => {}
            () = passed(awaited.until()) => {
                lane.close_old(&shared);
                lane.handle(&shared, Input::TurnCame);
            }
            () = shared.connections.wanted(), if awaited.is_idle => lane.give_up_idle(&shared),
        }
    }
}
