//! Finding messages by the Message-ID that an SMTP client set. The application's log may contain it.

use super::{MessageFilter, Search};
use crate::base::id::{AccountId, Ulid};
use crate::engine::listing::{Page, PageRequest, last_id, until};
use crate::engine::messages::MessageRecord;
use crate::store::error::StoreError;
use crate::store::read::{Order, Read as _, after_prefix};
use crate::store::row::message::MessageRow;
use crate::store::schema::{self, Table};
use crate::store::snapshot::Snapshot;

/// Returns whether a client set this Message-ID, with or without brackets.
pub(super) fn is_original(row: &MessageRow, wanted: &str) -> bool {
    row.original_message_id().is_some_and(|original| bare(original) == bare(wanted))
}

fn bare(id: &str) -> &str {
    id.trim().trim_start_matches('<').trim_end_matches('>')
}

/// Returns the page of messages with a client's Message-ID, newest first. Its read limit is that of any other page.
pub(super) fn search(
    snapshot: &Snapshot,
    account: AccountId,
    original: &str,
    filter: &MessageFilter,
    page: PageRequest,
) -> Result<Page<MessageRecord>, StoreError> {
    let prefix = schema::messages_by_original_id(account, original);
    let limit = page.limit;
    let mut search = Search { snapshot, filter, limit, rows: Vec::new(), next: None, reached: None, looked_at: 0 };
    let upper = [page.before, filter.before.map(|at| Ulid::new(at, [0; 10]))].into_iter().flatten().min();
    let lower = filter.after.map(|at| Ulid::new(at, [u8::MAX; 10]).next()).unwrap_or_default();
    let from = [prefix.as_slice(), &lower.0].concat();
    let to = upper.map_or_else(|| after_prefix(&prefix), |upper| [prefix.as_slice(), &upper.0].concat());
    snapshot.scan_sound(Table::MessagesByOriginalId, &from, &to, Order::Descending, &mut |key, _| {
        if search.is_full() {
            search.next = search.reached;
            return Ok(until(true));
        }
        if let Some(id) = last_id(key) {
            search.look_at(account, id)?;
        }
        Ok(until(false))
    })?;
    Ok(Page { rows: search.rows, next: search.next })
}
