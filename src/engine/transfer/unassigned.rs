//! Unassigned messages: spilled messages without a destination queue, because they wait for lookups or are paused.
//! They stay in the store with their timers, without a write. Only the position of the first one is in memory. They are
//! read again when there is memory, when a pause ends, and when one of them expires.

use std::sync::Arc;

use super::overflow::{Reader, Step};
use super::paused::is_paused;
use super::{Shared, Transfers};
use crate::base::time::Timestamp;
use crate::machine::destination::{QueuedMessage, Spill};
use crate::store::error::StoreError;
use crate::store::op::suspension::suspension;
use crate::store::row::message::MessageRow;
use crate::store::snapshot::Snapshot;
use crate::store::timer::Timer;
use crate::store::timer_cache::QueueNumber;

/// Number of the alarms of unassigned messages; destination numbers start at one.
pub(super) const NUMBER: QueueNumber = QueueNumber::MAX;

impl Shared {
    /// Spills a message.
    pub(super) fn leave_unassigned(&self, queued: &QueuedMessage) {
        let reads_at = self.destinations().unassigned.add(Spill::of(queued));
        self.set_unassigned_alarm(reads_at);
        self.timers().forget(&Timer::of_message(queued));
    }

    /// Starts reading the store, if messages are spilled there.
    pub(super) fn read_unassigned_soon(&self) {
        let is_empty = self.destinations().unassigned.is_empty();
        self.set_unassigned_alarm((!is_empty).then(|| self.now()));
    }

    /// Reading ends; `rest` is still in the store alone.
    pub(super) fn end_unassigned_reading(&self, rest: Option<Spill>) {
        let reads_at = self.destinations().unassigned.end_reading(rest, self.now());
        self.set_unassigned_alarm(reads_at);
    }

    fn set_unassigned_alarm(&self, at: Option<Timestamp>) {
        at.into_iter().for_each(|at| self.timers().set_alarm((at, NUMBER)));
    }
}

impl Transfers {
    /// Reads the spilled messages.
    pub(super) fn read_unassigned(self: &Arc<Self>) {
        let spill = self.shared.destinations().unassigned.begin_reading();
        spill.into_iter().for_each(|spill| self.read(Reader::Unassigned, spill));
    }

    /// Decides about a spilled message: it is loaded if there may be memory for it now.
    pub(super) fn step_unassigned(
        &self,
        timer: &Timer,
        row: &MessageRow,
        snapshot: &Snapshot,
    ) -> Result<Step, StoreError> {
        let site = self.shared.routes.last_seen(row.to.domain());
        let name = site.as_ref().map_or_else(|| row.to.domain().as_str().into(), |site| site.name());
        if suspension(snapshot, timer.account)?.is_some() || is_paused(snapshot, timer.account, &name, &row.to)? {
            return Ok(Step::PassOver);
        }
        Ok(match site {
            None if self.shared.routes.is_full() => Step::Stop,
            None if !self.shared.routes.has_room(timer.account, row.stream) => Step::PassOver,
            Some(_) | None => Step::Take,
        })
    }
}
