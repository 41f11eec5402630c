//! Spilled messages: those that do not fit into memory. They stay in the store with their timers, without a write. For
//! each destination queue, only the position of the first one is in memory. The queue reads them again when it runs
//! low, and when one of them may expire. The longest queues spill first, those of throttled sites before the others.

use std::sync::Arc;
use std::time::Duration;

use super::destination_queue::DestinationQueue;
use super::relays::Number;
use super::site::Site;
use super::{Transfers, unassigned};
use crate::base::id::MessageId;
use crate::engine::caught_panic::caught;
use crate::engine::relay::RelayWay;
use crate::machine::destination::{Destination, Input, Spill};
use crate::machine::scheduler::DestinationId;
use crate::store::error::StoreError;
use crate::store::read::{Order, Read};
use crate::store::row::message::MessageRow;
use crate::store::schema::{self, Table};
use crate::store::snapshot::Snapshot;
use crate::store::timer::{Timer, TimerKind};
use crate::store::timer_cache::Hold;

/// Maximum number of timers read from one snapshot.
const PAGE: usize = 512;
/// Pause after the store could not be read.
const AGAIN: Duration = Duration::from_secs(60);

/// The reader of spilled messages.
pub(super) enum Reader {
    /// A destination queue.
    Queue(Arc<DestinationQueue>),
    /// Reader of the messages that have no destination queue.
    Unassigned,
}

/// Decision of a reader about one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// The message is loaded into memory.
    Take,
    /// The message stays in the store, and the reader continues with the next one.
    PassOver,
    /// The message and all that follow stay in the store.
    Stop,
}

impl Transfers {
    /// Reads spilled messages again.
    pub(super) fn read(self: &Arc<Self>, reader: Reader, spill: Spill) {
        let hold = self.shared.engine.store.timers().hold();
        let looks_at_all = spill.ends_at <= self.shared.now();
        let reading = Reading { transfers: Arc::clone(self), reader, rest: Some(spill), _hold: hold };
        tokio::spawn(async move { caught(reading.run(looks_at_all)).await.ok() });
    }

    /// Returns whether `reader` must read this message: it may belong there, or no other queue would read it.
    fn is_read_by(&self, reader: &Reader, timer: &Timer, row: &MessageRow) -> bool {
        let order = self.shared.relays.order(row.stream, MessageId(timer.id));
        let options: Vec<(Number, Option<Site>)> =
            order.into_iter().map(|number| (number, self.site_for(number, row))).collect();
        let is_own = |(number, site): &(Number, Option<Site>)| {
            let Reader::Queue(queue) = reader else { return false };
            *number == queue.relay && site.as_ref().is_none_or(|site| *site == queue.site)
        };
        let destinations = self.shared.destinations();
        let scheduler = &destinations.scheduler;
        let is_covered = |(number, site): (Number, Option<Site>)| {
            let other = site.and_then(|site| scheduler.get(scheduler.find(&(number, site))?));
            other.is_some_and(|other| other.covers(timer.place()))
        };
        options.iter().any(is_own) || !options.into_iter().any(is_covered)
    }

    fn site_for(&self, number: Number, row: &MessageRow) -> Option<Site> {
        match &self.shared.relays.relay(number).way {
            RelayWay::Smarthost(smarthost) => Some(Site::of_smarthost(smarthost)),
            RelayWay::Mx => self.shared.routes.last_seen(row.to.domain()),
        }
    }
}

/// A pass over spilled messages. Messages that were not read when it is dropped stay spilled.
struct Reading {
    transfers: Arc<Transfers>,
    reader: Reader,
    rest: Option<Spill>,
    _hold: Hold,
}

impl Drop for Reading {
    fn drop(&mut self) {
        let shared = &self.transfers.shared;
        match &self.reader {
            Reader::Queue(queue) => queue.handle(shared, Input::Refilled(self.rest.take())),
            Reader::Unassigned => shared.end_unassigned_reading(self.rest.take()),
        }
    }
}

impl Reading {
    fn alarm(&self) -> u64 {
        match &self.reader {
            Reader::Queue(queue) => queue.id,
            Reader::Unassigned => unassigned::NUMBER,
        }
    }

    fn is_full(&self, id: DestinationId) -> bool {
        self.transfers.shared.destinations().scheduler.get(id).is_some_and(Destination::is_full)
    }

    fn step(&self, timer: &Timer, row: &MessageRow, snapshot: &Snapshot) -> Result<Step, StoreError> {
        if row.give_up_at <= self.transfers.shared.expiry() {
            return Ok(Step::Take);
        }
        match &self.reader {
            Reader::Queue(queue) if self.is_full(queue.id) => Ok(Step::Stop),
            Reader::Queue(_) => Ok(Step::Take),
            Reader::Unassigned => self.transfers.step_unassigned(timer, row, snapshot),
        }
    }

    /// Reads until the queue is full. If some messages may expire, it reads to the end of the table.
    async fn run(mut self, looks_at_all: bool) {
        let shared = Arc::clone(&self.transfers.shared);
        let mut from = self.rest.map(|rest| Timer::at(rest.from));
        // The earliest expiry of the skipped messages.
        let mut passed = None;
        while let Some(first) = from.filter(|_| !shared.is_stopping()) {
            match self.page(&first, looks_at_all, &mut passed) {
                Ok(next) => from = next,
                Err(error) => {
                    tracing::error!(%error, "could not read queued messages; reading them again in a minute");
                    shared.timers().set_alarm((shared.now() + AGAIN, self.alarm()));
                    return;
                }
            }
            tokio::task::yield_now().await;
        }
        self.rest = passed;
    }

    /// Reads one page, and returns the start of the next one.
    fn page(&self, from: &Timer, looks_at_all: bool, passed: &mut Option<Spill>) -> Result<Option<Timer>, StoreError> {
        let shared = &self.transfers.shared;
        let time = shared.engine.clock.time();
        let snapshot = shared.engine.store.snapshot()?;
        let end = Timer::of_store(time.now + Duration::from_millis(1), TimerKind::Transfer).encode();
        let keys = snapshot.sound_keys(Table::Timers, &from.encode(), &end, Order::Ascending, PAGE)?;
        let timers: Vec<_> = keys.iter().filter_map(|key| Timer::decode(key)).collect();
        for timer in timers.iter().filter(|timer| timer.kind == TimerKind::Transfer) {
            if shared.timers().knows(timer) {
                continue;
            }
            let key = schema::message(timer.account, MessageId(timer.id));
            let Some(row) = snapshot.sound_row::<MessageRow>(&key)? else { continue };
            if !self.transfers.is_read_by(&self.reader, timer, &row) {
                continue;
            }
            let step = self.step(timer, &row, &snapshot)?;
            if step != Step::Take {
                let ends_at = time.deadline(row.give_up_at);
                *passed = Some(Spill { from: timer.place(), ends_at }.and(*passed));
                if looks_at_all || step == Step::PassOver {
                    continue;
                }
                *passed = passed.map(|passed| passed.and(self.rest.map(|rest| Spill { from: timer.place(), ..rest })));
                return Ok(None);
            }
            if shared.timers().claim(timer) {
                self.transfers.take(*timer, &snapshot)?;
            }
        }
        Ok(timers.last().filter(|_| keys.len() == PAGE).copied())
    }
}
