//! The account's event log: 30 days of events, whose bytes are in the messages' timelines (contract 4). Listed newest
//! first, followed oldest first ([`super::follow`]).

use super::Engine;
use super::listing::{Page, PageRequest, last_id, until};
use crate::base::id::{AccountId, EventId, MessageId, Ulid};
use crate::base::time::Timestamp;
use crate::domain::event::EventType;
use crate::store::error::StoreError;
use crate::store::op::sweep::oldest_kept;
use crate::store::read::{Order, Read, after_prefix, sound};
use crate::store::row::Row as _;
use crate::store::row::event::{EventLogRow, EventOfTypeRow};
use crate::store::schema::{self, Table};
use crate::store::snapshot::Snapshot;

/// Filter for events.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EventFilter {
    /// Only events of this message.
    pub message: Option<MessageId>,
    /// Only events of this type.
    pub kind: Option<EventType>,
    /// Only events recorded later. Followers of the log don't use it.
    pub after: Option<Timestamp>,
    /// Only events recorded earlier. Followers of the log don't use it.
    pub before: Option<Timestamp>,
}

impl EventFilter {
    /// Returns the smallest identifier that may match, among events that are kept at `expiry`.
    fn least(&self, snapshot: &Snapshot, expiry: Timestamp) -> Result<Ulid, StoreError> {
        let least = self.after.map(|at| Ulid::new(at, [u8::MAX; 10]).next());
        Ok(oldest_kept(snapshot, expiry)?.max(least.unwrap_or_default()))
    }

    /// Returns the first identifier after the matching events, at most `before`.
    fn end(&self, before: Option<Ulid>) -> Option<Ulid> {
        [self.before.map(|at| Ulid::new(at, [0; 10])), before].into_iter().flatten().min()
    }
}

impl Engine {
    /// Returns a page of the account's events, with their stored bytes.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn events(
        &self,
        account: AccountId,
        filter: EventFilter,
        page: PageRequest,
    ) -> Result<Page<Vec<u8>>, StoreError> {
        let filter = EventFilter { before: self.bound_of_ids(filter.before), ..filter };
        let snapshot = self.store.snapshot()?;
        let log = Log {
            read: &snapshot,
            account,
            from: filter.least(&snapshot, self.clock.time().expiry)?,
            before: filter.end(page.before),
            order: Order::Descending,
            count: page.limit + 1,
        };
        log.page(filter, page.limit, usize::MAX)
    }

    /// Returns the page of events directly after `after`, newest first. Its `next` shows whether newer ones follow.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn newer_events(
        &self,
        account: AccountId,
        filter: EventFilter,
        after: EventId,
        limit: usize,
    ) -> Result<Page<Vec<u8>>, StoreError> {
        let filter = EventFilter { before: self.bound_of_ids(filter.before), ..filter };
        let mut page = self.events_from(account, filter, after.0.next(), (limit, usize::MAX))?;
        page.rows.reverse();
        Ok(page)
    }

    /// Returns the page of events from `from` on, oldest first. Its `next` names the last one if newer ones follow. The
    /// page ends after the event that reaches `bytes`.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn events_from(
        &self,
        account: AccountId,
        filter: EventFilter,
        from: Ulid,
        (limit, bytes): (usize, usize),
    ) -> Result<Page<Vec<u8>>, StoreError> {
        let snapshot = self.store.snapshot()?;
        let from = filter.least(&snapshot, self.clock.time().expiry)?.max(from);
        let before = filter.end(None);
        let log = Log { read: &snapshot, account, from, before, order: Order::Ascending, count: limit + 1 };
        log.page(filter, limit, bytes)
    }

    /// Returns the message of an event that is still in the log.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn message_of_event(&self, account: AccountId, event: EventId) -> Result<Option<MessageId>, StoreError> {
        let row: Option<EventLogRow> = self.store.snapshot()?.row(&schema::event(account, event))?;
        Ok(row.map(|row| row.message))
    }

    /// Counts the events of a type since a given time, up to `most`.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn count_events(
        &self,
        account: AccountId,
        kind: EventType,
        since: Timestamp,
        most: usize,
    ) -> Result<usize, StoreError> {
        let prefix = schema::named(account, &[kind.code()]);
        let from = [prefix.as_slice(), &Ulid::new(since, [0; 10]).0].concat();
        let to = after_prefix(&prefix);
        Ok(self.store.snapshot()?.sound_keys(Table::EventLogByType, &from, &to, Order::Descending, most)?.len())
    }
}

/// Position of an event in its message's timeline.
pub(super) struct Place {
    pub(super) message: MessageId,
    pub(super) event: EventId,
    pub(super) kind: EventType,
}

/// A part of an account's log.
pub(super) struct Log<'r, R> {
    pub(super) read: &'r R,
    pub(super) account: AccountId,
    /// The first identifier of the part.
    pub(super) from: Ulid,
    /// The first identifier after the part; the log's end if `None`.
    pub(super) before: Option<Ulid>,
    pub(super) order: Order,
    /// Maximum number of events.
    pub(super) count: usize,
}

impl<R: Read> Log<'_, R> {
    /// Returns the bytes of the part's first `limit` matching events, or fewer if they reach `bytes` before.
    fn page(&self, filter: EventFilter, limit: usize, bytes: usize) -> Result<Page<Vec<u8>>, StoreError> {
        let places = self.places(filter)?.into_iter().map(|place| (place.event.0, place)).collect();
        let Page { rows, mut next } = Page::cut(places, limit);
        let (mut events, mut size) = (Vec::with_capacity(rows.len()), 0);
        for (place, after) in rows.iter().zip(1..) {
            let event = self.bytes(place)?;
            size += event.as_ref().map_or(0, Vec::len);
            events.extend(event);
            if size >= bytes && after < rows.len() {
                next = Some(place.event.0);
                break;
            }
        }
        Ok(Page { rows: events, next })
    }

    /// Returns the matching events of the part, in its order.
    pub(super) fn places(&self, filter: EventFilter) -> Result<Vec<Place>, StoreError> {
        match (filter.message, filter.kind) {
            (Some(message), kind) => self.of_message(message, kind),
            (None, Some(kind)) => self.of_type(kind),
            (None, None) => self.all(),
        }
    }

    /// Returns the event's bytes, or `None` if they are deleted or damaged: every caller shows a list.
    pub(super) fn bytes(&self, place: &Place) -> Result<Option<Vec<u8>>, StoreError> {
        sound(self.read.get(Table::Timeline, &schema::timeline(self.account, place.message, place.event)))
            .map(Option::flatten)
    }

    /// Returns the range of the part's keys with `prefix`.
    fn range(&self, prefix: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let from = [prefix, &self.from.0].concat();
        let to = self.before.map_or_else(|| after_prefix(prefix), |before| [prefix, &before.0].concat());
        // A part whose end is before its start is empty: its cursor is older than the oldest event.
        if from > to { (from.clone(), from) } else { (from, to) }
    }

    fn scan(
        &self,
        table: Table,
        prefix: &[u8],
        mut place: impl FnMut(EventId, &[u8]) -> Result<Option<Place>, StoreError>,
    ) -> Result<Vec<Place>, StoreError> {
        let (from, to) = self.range(prefix);
        let mut places = Vec::new();
        self.read.scan_sound(table, &from, &to, self.order, &mut |key, bytes| {
            if let Some(id) = last_id(key) {
                places.extend(sound(place(EventId(id), bytes))?.flatten());
            }
            Ok(until(places.len() >= self.count))
        })?;
        Ok(places)
    }

    fn all(&self) -> Result<Vec<Place>, StoreError> {
        self.scan(Table::EventLog, self.account.as_bytes(), |event, bytes| {
            let EventLogRow { message, kind } = EventLogRow::decode(bytes)?;
            Ok(Some(Place { message, event, kind }))
        })
    }

    fn of_type(&self, kind: EventType) -> Result<Vec<Place>, StoreError> {
        let prefix = schema::named(self.account, &[kind.code()]);
        self.scan(Table::EventLogByType, &prefix, |event, bytes| {
            Ok(Some(Place { message: EventOfTypeRow::decode(bytes)?.message, event, kind }))
        })
    }

    /// A message has few events, so its whole timeline is read for any type. The log's index has the type of each
    /// event.
    fn of_message(&self, message: MessageId, wanted: Option<EventType>) -> Result<Vec<Place>, StoreError> {
        let prefix = schema::message(self.account, message);
        self.scan(Table::Timeline, &prefix, |event, _| {
            let row = self.read.row::<EventLogRow>(&schema::event(self.account, event))?;
            let row = row.filter(|row| wanted.is_none_or(|wanted| wanted == row.kind));
            Ok(row.map(|row| Place { message, event, kind: row.kind }))
        })
    }
}
