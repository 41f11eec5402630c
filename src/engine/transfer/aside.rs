//! Messages of no destination queue that memory has no room for: they wait for names, or are paused. Like those that
//! destination queues leave behind, they stay in the store with their timers as they are, without a write. Only the
//! place of the first one is remembered. They are read again when there is room, when a pause ends, and when one of
//! them is at its end.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Transfers;
use super::overflow::{Left, Reader, Step};
use super::paused::is_paused;
use super::queue::Ticket;
use crate::base::time::Timestamp;
use crate::store::error::StoreError;
use crate::store::near::NearTimers;
use crate::store::op::suspension::suspension;
use crate::store::row::message::MessageRow;
use crate::store::snapshot::Snapshot;
use crate::store::timer::Timer;

/// The number of these alarms; destination queues count from one.
pub(super) const ALARM: u64 = u64::MAX;

/// The messages that are in the store alone.
#[derive(Default)]
pub(super) struct Aside(Mutex<State>);

#[derive(Default)]
struct State {
    left: Option<Left>,
    is_reading: bool,
    /// Whether they are to be read once more after the present reading.
    reads_again: bool,
}

impl State {
    fn add(&mut self, left: Left, near: &NearTimers) {
        let left = left.and(self.left);
        if self.left.is_none_or(|before| before.looks_at() != left.looks_at()) {
            near.set_alarm((left.looks_at(), ALARM));
        }
        self.left = Some(left);
    }
}

impl Aside {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves a message to the store.
    pub(super) fn leave(&self, ticket: Ticket, near: &NearTimers) {
        self.state().add(Left::of(&ticket), near);
        near.leave([ticket.timer]);
    }

    /// Has the store read, where messages were left there.
    pub(super) fn call_for_more(&self, now: Timestamp, near: &NearTimers) {
        let state = self.state();
        if state.left.is_some() || state.is_reading {
            near.set_alarm((now, ALARM));
        }
    }

    fn begin_reading(&self) -> Option<Left> {
        let mut state = self.state();
        state.reads_again = state.is_reading;
        let left = if state.is_reading { None } else { state.left.take() };
        state.is_reading |= left.is_some();
        left
    }

    /// Reading ends; `left` are still in the store alone.
    pub(super) fn end_reading(&self, left: Option<Left>, now: Timestamp, near: &NearTimers) {
        let mut state = self.state();
        state.is_reading = false;
        left.into_iter().for_each(|left| state.add(left, near));
        if std::mem::take(&mut state.reads_again) {
            near.set_alarm((now, ALARM));
        }
    }
}

impl Transfers {
    /// Reads the messages again that are in the store alone.
    pub(super) fn read_aside(self: &Arc<Self>) {
        if let Some(left) = self.shared.aside.begin_reading() {
            self.read(Reader::Aside, left);
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
