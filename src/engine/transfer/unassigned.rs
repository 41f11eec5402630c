//! Messages of no destination queue that memory has no room for: they wait for names, or are paused. Like those that
//! destination queues leave behind, they stay in the store with their timers as they are, without a write. Only the
//! place of the first one is remembered. They are read again when there is room, when a pause ends, and when one of
//! them is at its end.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Transfers;
use super::overflow::{Reader, Step};
use super::paused::is_paused;
use crate::base::time::Timestamp;
use crate::machine::destination::{QueuedMessage, Spill, SpillArea};
use crate::store::error::StoreError;
use crate::store::op::suspension::suspension;
use crate::store::row::message::MessageRow;
use crate::store::snapshot::Snapshot;
use crate::store::timer::Timer;
use crate::store::timer_cache::{QueueNumber, TimerCache};

/// The number of these alarms; destinations count from one.
pub(super) const NUMBER: QueueNumber = QueueNumber::MAX;

/// The messages that are in the store alone.
#[derive(Default)]
pub(super) struct Aside(Mutex<State>);

#[derive(Default)]
struct State {
    spilled: SpillArea,
    /// Whether they are to be read once more after the present reading.
    reads_again: bool,
}

impl Aside {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves a message to the store.
    pub(super) fn leave(&self, queued: &QueuedMessage, near: &TimerCache) {
        let reads_at = self.state().spilled.add(Spill::of(queued));
        reads_at.into_iter().for_each(|at| near.set_alarm((at, NUMBER)));
        near.forget(&Timer::of_message(queued));
    }

    /// Has the store read, where messages were left there.
    pub(super) fn call_for_more(&self, now: Timestamp, near: &TimerCache) {
        if !self.state().spilled.is_empty() {
            near.set_alarm((now, NUMBER));
        }
    }

    fn begin_reading(&self) -> Option<Spill> {
        let mut state = self.state();
        state.reads_again = state.spilled.is_reading();
        if state.reads_again { None } else { state.spilled.begin_reading() }
    }

    /// Reading ends; `rest` is still in the store alone.
    pub(super) fn end_reading(&self, rest: Option<Spill>, now: Timestamp, near: &TimerCache) {
        let mut state = self.state();
        let again = std::mem::take(&mut state.reads_again).then_some(now);
        let reads_at = state.spilled.end_reading(rest);
        reads_at.into_iter().chain(again).for_each(|at| near.set_alarm((at, NUMBER)));
    }
}

impl Transfers {
    /// Reads the messages again that are in the store alone.
    pub(super) fn read_aside(self: &Arc<Self>) {
        if let Some(spill) = self.shared.aside.begin_reading() {
            self.read(Reader::Aside, spill);
        }
    }

    /// Decides about a message that was left: it is taken where memory may have room for it now.
    pub(super) fn step_aside(&self, timer: &Timer, row: &MessageRow, snapshot: &Snapshot) -> Result<Step, StoreError> {
        let site = self.routes.last_seen(row.to.domain());
        let name = site.as_ref().map_or_else(|| row.to.domain().as_str().into(), |site| site.name());
        if suspension(snapshot, timer.account)?.is_some() || is_paused(snapshot, timer.account, &name, &row.to)? {
            return Ok(Step::PassOver);
        }
        Ok(match site {
            None if self.routes.is_full() => Step::Stop,
            None if !self.routes.has_room(timer.account, row.stream) => Step::PassOver,
            Some(_) | None => Step::Take,
        })
    }
}
