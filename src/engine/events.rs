//! The account's event log: 30 days of events, newest first, whose bytes stand in the messages' timelines (spec 4.3).

use super::Engine;
use super::listing::{Page, PageRequest, last_id, until};
use crate::base::id::{AccountId, EventId, MessageId, Ulid};
use crate::base::time::Timestamp;
use crate::domain::event::EventType;
use crate::store::error::StoreError;
use crate::store::op::sweep::oldest_kept;
use crate::store::read::{Order, Read, after_prefix};
use crate::store::row::Row as _;
use crate::store::row::event::{EventLogRow, EventOfTypeRow};
use crate::store::schema::{self, Table};

/// Which events are asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EventFilter {
    /// Only those of this message.
    pub message: Option<MessageId>,
    /// Only those of this type.
    pub kind: Option<EventType>,
}

impl Engine {
    /// A page of the account's events as the bytes that were written once.
    ///
    /// # Errors
    /// Those of the store.
    pub fn events(
        &self,
        account: AccountId,
        filter: EventFilter,
        page: PageRequest,
    ) -> Result<Page<Vec<u8>>, StoreError> {
        let snapshot = self.store.snapshot()?;
        let log = Log { read: &snapshot, account, oldest: oldest_kept(self.clock.now()), page };
        let places = match (filter.message, filter.kind) {
            (Some(message), kind) => log.of_message(message, kind)?,
            (None, Some(kind)) => log.of_type(kind)?,
            (None, None) => log.all()?,
        };
        let Page { rows, next } = Page::cut(places, page.limit);
        let mut events = Vec::with_capacity(rows.len());
        for (message, event) in rows {
            events.extend(snapshot.get(Table::Timeline, &schema::timeline(account, message, event))?);
        }
        Ok(Page { rows: events, next })
    }
}

impl Engine {
    /// How many events of a type there have been since a moment; `most` where there are as many or more.
    ///
    /// # Errors
    /// Those of the store.
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
        Ok(self.store.snapshot()?.keys(Table::EventLogByType, &from, &to, Order::Descending, most)?.len())
    }
}

/// Where events stand: what pages are cut of, with one place more than asked for where there are more.
type Places = Vec<(Ulid, (MessageId, EventId))>;

struct Log<'r, R> {
    read: &'r R,
    account: AccountId,
    oldest: Ulid,
    page: PageRequest,
}

impl<R: Read> Log<'_, R> {
    /// The keys behind `prefix` from the oldest event that is still shown to where the page begins.
    fn range(&self, prefix: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let from = [prefix, &self.oldest.0].concat();
        let to = self.page.before.map_or_else(|| after_prefix(prefix), |before| [prefix, &before.0].concat());
        // A cursor from before the oldest event has nothing left.
        if from > to { (from.clone(), from) } else { (from, to) }
    }

    fn scan(
        &self,
        table: Table,
        prefix: &[u8],
        mut place: impl FnMut(EventId, &[u8]) -> Result<Option<MessageId>, StoreError>,
    ) -> Result<Places, StoreError> {
        let (from, to) = self.range(prefix);
        let mut places = Places::new();
        self.read.scan(table, &from, &to, Order::Descending, &mut |key, bytes| {
            if let Some(id) = last_id(key)
                && let Some(message) = place(EventId(id), bytes)?
            {
                places.push((id, (message, EventId(id))));
            }
            Ok(until(places.len() > self.page.limit))
        })?;
        Ok(places)
    }

    fn all(&self) -> Result<Places, StoreError> {
        self.scan(Table::EventLog, self.account.as_bytes(), |_, bytes| Ok(Some(EventLogRow::decode(bytes)?.message)))
    }

    fn of_type(&self, kind: EventType) -> Result<Places, StoreError> {
        let prefix = schema::named(self.account, &[kind.code()]);
        self.scan(Table::EventLogByType, &prefix, |_, bytes| Ok(Some(EventOfTypeRow::decode(bytes)?.message)))
    }

    /// A message has few events, so its timeline is gone through whatever the type.
    fn of_message(&self, message: MessageId, kind: Option<EventType>) -> Result<Places, StoreError> {
        let prefix = schema::message(self.account, message);
        self.scan(Table::Timeline, &prefix, |event, _| {
            let Some(kind) = kind else { return Ok(Some(message)) };
            let row = self.read.row::<EventLogRow>(&schema::event(self.account, event))?;
            Ok(row.filter(|row| row.kind == kind).map(|_| message))
        })
    }
}
