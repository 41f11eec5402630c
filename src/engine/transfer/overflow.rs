//! Messages that memory has no room for. They stay in the store with their timers as they are, without a write. Of each
//! destination queue only the place of the first one is remembered. The queue reads them again when it runs low, and
//! when one of them is at its end. The longest queues shed first, those of throttled sites before all others.

use std::sync::Arc;
use std::time::Duration;

use super::lane::Lane;
use super::queue::Ticket;
use super::relays::Number;
use super::site::Site;
use super::window::Standing;
use super::{Transfers, aside, way_lanes};
use crate::base::id::MessageId;
use crate::base::time::Timestamp;
use crate::engine::crash::caught;
use crate::engine::relay::RelayWay;
use crate::store::error::StoreError;
use crate::store::near::{Hold, NearTimers};
use crate::store::read::{Order, Read};
use crate::store::row::message::MessageRow;
use crate::store::schema::{self, Table};
use crate::store::snapshot::Snapshot;
use crate::store::timer::{Timer, TimerKind};

/// Messages in all destination queues, as timers in memory: some 15 MB. Tests get there sooner.
const QUEUED_MAX: usize = if cfg!(test) { 512 } else { 131_072 };
/// A queue this short sheds nothing.
const SHORT: usize = 8;
/// A queue this long sheds before any other where its site is throttled.
const LONG: usize = 64;
/// A queue that is shorter reads more, and up to so many.
const LOW: usize = if cfg!(test) { 16 } else { 2_048 };
const HIGH: usize = if cfg!(test) { 128 } else { 16_384 };
/// Timers that are read from one snapshot.
const PAGE: usize = 512;
/// Messages in the store whose time is over end within such an interval, so that a queue is not read for each of them.
const END_INTERVAL: Duration = Duration::from_secs(60);
/// The pause after the store could not be read.
const AGAIN: Duration = Duration::from_secs(60);

/// Messages of one destination that are in the store alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Left {
    /// None of them has an earlier timer.
    from: Timer,
    /// The earliest end of a message among them, or a time before it.
    ends_at: Timestamp,
}

/// The reader of messages that were left.
pub(super) enum Reader {
    /// A destination queue.
    Queue(Arc<Lane>),
    /// Reads the messages of no destination queue.
    Aside,
}

/// Next step of a reader at one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// The message is taken into memory.
    Take,
    /// It stays in the store, and the next one is looked at.
    PassOver,
    /// It stays in the store, as all that follow.
    Stop,
}

impl Left {
    pub(super) const fn of(ticket: &Ticket) -> Self {
        Self { from: ticket.timer, ends_at: ticket.give_up_at }
    }

    pub(super) fn and(self, other: Option<Self>) -> Self {
        other.map_or(self, |other| Self { from: self.from.min(other.from), ends_at: self.ends_at.min(other.ends_at) })
    }

    /// When those that end are looked for.
    pub(super) fn looks_at(self) -> Timestamp {
        let interval = u64::try_from(END_INTERVAL.as_millis()).unwrap_or(u64::MAX);
        Timestamp::from_millis(self.ends_at.as_millis().div_ceil(interval).saturating_mul(interval))
    }
}

impl Lane {
    /// Leaves half of what waits to the store, and says how many that is.
    fn shed(&self, near: &NearTimers) -> usize {
        let mut state = self.state();
        let count = if state.len() <= SHORT { 0 } else { state.len() / 2 };
        let mut shed = state.marketing.shed(count);
        let rest = count - shed.len();
        shed.append(&mut state.transactional.shed(rest));
        let Some(left) = shed.iter().map(Left::of).reduce(|left, one| left.and(Some(one))) else { return 0 };
        state.left_behind(left, self.number, near);
        near.leave(shed.iter().map(|ticket| ticket.timer));
        shed.len()
    }

    /// Returns the order in which queues shed messages to the store.
    fn weight(&self) -> (bool, usize) {
        let state = self.state();
        let is_long = state.len() > LONG;
        (is_long && state.window.standing() != Standing::Open, state.len())
    }

    /// Has the store read where the queue runs low.
    pub(super) fn call_for_more(&self, now: Timestamp, near: &NearTimers) {
        if self.state().wants_more(now) {
            near.set_alarm((now, self.number));
        }
    }

    /// Returns the messages to read back, if it is time to, and marks them as being read.
    fn begin_reading(&self, now: Timestamp) -> Option<Left> {
        let mut state = self.state();
        if !state.wants_more(now) {
            return None;
        }
        state.is_reading = true;
        state.left.take()
    }

    /// Reading ends; there is still something left, where `left` says so.
    fn end_reading(&self, left: Option<Left>, near: &NearTimers) {
        let mut state = self.state();
        state.is_reading = false;
        if let Some(left) = left {
            state.left_behind(left, self.number, near);
        }
    }

    /// Whether a message with this timer may be among those in the store.
    fn covers(&self, timer: &Timer) -> bool {
        self.state().left.is_some_and(|left| left.from <= *timer)
    }
}

impl super::queue::Queue {
    fn left_behind(&mut self, left: Left, number: u64, near: &NearTimers) {
        let left = left.and(self.left);
        if self.left.is_none_or(|before| before.looks_at() != left.looks_at()) {
            near.set_alarm((left.looks_at(), number));
        }
        self.left = Some(left);
    }

    fn wants_more(&self, now: Timestamp) -> bool {
        let is_low = self.len() == 0 || self.window.standing() == Standing::Open && self.len() < LOW;
        let is_time = |left: &Left| is_low || left.looks_at() <= now;
        !self.is_closed && !self.is_reading && self.left.as_ref().is_some_and(is_time)
    }
}

impl Transfers {
    /// Makes room for other messages, where there are too many in memory.
    pub(super) fn make_room(&self) {
        if self.shared.queued() <= QUEUED_MAX {
            return;
        }
        let lanes = way_lanes(&self.lanes());
        let others = lanes.into_iter().filter(|lane| !matches!(lane.site, Site::InHouse(_)));
        if let Some(lane) = others.max_by_key(|lane| lane.weight()) {
            self.shared.left_queue(lane.shed(self.shared.near()));
        }
    }

    /// Reads the messages again that `lane` has in the store, where it is time to.
    pub(super) fn read_again(self: &Arc<Self>, lane: &Arc<Lane>) {
        let now = self.shared.now();
        if let Some(left) = lane.begin_reading(now) {
            self.read(Reader::Queue(Arc::clone(lane)), left);
        }
    }

    pub(super) fn read(self: &Arc<Self>, reader: Reader, left: Left) {
        let hold = self.shared.engine.store.near().hold();
        let looks_at_all = left.ends_at <= self.shared.now();
        let reading = Reading { transfers: Arc::clone(self), reader, left: Some(left), _hold: hold };
        tokio::spawn(async move { caught(reading.run(looks_at_all)).await.ok() });
    }

    /// Whether `reader` is the one to read this message again: it may belong there, or no other queue would read it.
    fn is_read_by(&self, reader: &Reader, timer: &Timer, row: &MessageRow) -> bool {
        let order = self.shared.relays.order(row.stream, MessageId(timer.id));
        let ways: Vec<(Number, Option<Site>)> =
            order.into_iter().map(|number| (number, self.site_for(number, row))).collect();
        let is_own = |(number, site): &(Number, Option<Site>)| {
            let Reader::Queue(lane) = reader else { return false };
            *number == lane.relay && site.as_ref().is_none_or(|site| *site == lane.site)
        };
        let lanes = self.lanes();
        let is_covered = |(number, site): (Number, Option<Site>)| {
            site.and_then(|site| lanes.by_way.get(&(number, site))).is_some_and(|other| other.covers(timer))
        };
        ways.iter().any(is_own) || !ways.into_iter().any(is_covered)
    }

    fn site_for(&self, number: Number, row: &MessageRow) -> Option<Site> {
        match &self.shared.relays.relay(number).way {
            RelayWay::Smarthost(smarthost) => Some(Site::of_smarthost(smarthost)),
            RelayWay::Mx => self.routes.last_seen(row.to.domain()),
        }
    }
}

/// The reading of messages that were left. What was not read when it is dropped is left as before.
struct Reading {
    transfers: Arc<Transfers>,
    reader: Reader,
    left: Option<Left>,
    _hold: Hold,
}

impl Drop for Reading {
    fn drop(&mut self) {
        let shared = &self.transfers.shared;
        match &self.reader {
            Reader::Queue(lane) => {
                lane.end_reading(self.left.take(), shared.near());
                // The queue may run low by now.
                lane.call_for_more(shared.now(), shared.near());
            }
            Reader::Aside => shared.aside.end_reading(self.left.take(), shared.now(), shared.near()),
        }
    }
}

impl Reading {
    fn alarm(&self) -> u64 {
        match &self.reader {
            Reader::Queue(lane) => lane.number,
            Reader::Aside => aside::ALARM,
        }
    }

    fn step(&self, timer: &Timer, row: &MessageRow, snapshot: &Snapshot) -> Result<Step, StoreError> {
        if row.give_up_at <= self.transfers.shared.expiry() {
            return Ok(Step::Take);
        }
        match &self.reader {
            Reader::Queue(lane) if lane.len() >= HIGH => Ok(Step::Stop),
            Reader::Queue(_) => Ok(Step::Take),
            Reader::Aside => self.transfers.step_aside(timer, row, snapshot),
        }
    }

    /// Reads until the queue is full; where some may be at their end, to the end of the table.
    async fn run(mut self, looks_at_all: bool) {
        let shared = Arc::clone(&self.transfers.shared);
        let mut from = self.left.map(|left| left.from);
        // Of those that are passed over.
        let mut passed = None;
        while let Some(first) = from.filter(|_| !shared.is_stopping()) {
            match self.page(&first, looks_at_all, &mut passed) {
                Ok(next) => from = next,
                Err(error) => {
                    tracing::error!(%error, "could not read queued messages; reading them again in a minute");
                    shared.near().set_alarm((shared.now() + AGAIN, self.alarm()));
                    return;
                }
            }
            tokio::task::yield_now().await;
        }
        self.left = passed;
    }

    /// Reads one page, and says where the next one begins.
    fn page(&self, from: &Timer, looks_at_all: bool, passed: &mut Option<Left>) -> Result<Option<Timer>, StoreError> {
        let shared = &self.transfers.shared;
        let time = shared.engine.clock.time();
        let snapshot = shared.engine.store.snapshot()?;
        let end = Timer::of_store(time.now + Duration::from_millis(1), TimerKind::Transfer).encode();
        let keys = snapshot.sound_keys(Table::Timers, &from.encode(), &end, Order::Ascending, PAGE)?;
        let timers: Vec<_> = keys.iter().filter_map(|key| Timer::decode(key)).collect();
        for timer in timers.iter().filter(|timer| timer.kind == TimerKind::Transfer) {
            if shared.near().knows(timer) {
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
                *passed = Some(Left { from: *timer, ends_at }.and(*passed));
                if looks_at_all || step == Step::PassOver {
                    continue;
                }
                *passed = passed.map(|passed| passed.and(self.left.map(|left| Left { from: *timer, ..left })));
                return Ok(None);
            }
            if shared.near().claim(timer) {
                self.transfers.take(*timer, &snapshot)?;
            }
        }
        Ok(timers.last().filter(|_| keys.len() == PAGE).copied())
    }
}
