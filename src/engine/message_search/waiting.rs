//! Finding messages that wait, by the table of queued messages. Few messages wait, but the index has the status queued
//! in every block, because every message once had it.

use super::MessageFilter;
use crate::base::id::{AccountId, Ulid};
use crate::engine::listing::{last_id, until};
use crate::store::error::StoreError;
use crate::store::read::{Order, Read as _, after_prefix};
use crate::store::schema::{self, Table};
use crate::store::snapshot::Snapshot;

/// Maximum number of queued messages if the search has no term of the index. Reading their keys takes some
/// milliseconds.
const QUEUED_MAX: usize = 50_000;
/// Limit if the index has a term of the search. With more messages the index needs fewer reads.
const QUEUED_MAX_WITH_TERM: usize = 1_000;

/// Returns the queued messages with keys in a range, from old to new, if the filter takes only messages that wait.
/// `None` if it takes others too, or if too many wait.
pub(super) fn messages(
    snapshot: &Snapshot,
    account: AccountId,
    filter: &MessageFilter,
    (from, to): (&[u8], &[u8]),
) -> Result<Option<Vec<Ulid>>, StoreError> {
    if filter.statuses.is_empty() || !filter.statuses.iter().all(|status| status.is_waiting()) {
        return Ok(None);
    }
    let most = if filter.terms().is_empty() { QUEUED_MAX } else { QUEUED_MAX_WITH_TERM };
    let prefix = match &filter.to {
        Some(address) => schema::waiting_for(account, &address.match_key()),
        None => account.as_bytes().to_vec(),
    };
    let (mut ids, mut read) = (Vec::new(), 0);
    let end = after_prefix(&prefix);
    snapshot.scan_sound(Table::Waiting, &prefix, &end, Order::Ascending, &mut |key, _| {
        let is_within = |id: &Ulid| {
            let key = [account.as_bytes().as_slice(), &id.0].concat();
            key.as_slice() >= from && key.as_slice() < to
        };
        ids.extend(last_id(key).filter(is_within));
        read += 1;
        Ok(until(read > most))
    })?;
    ids.sort_unstable();
    Ok(Some(ids).filter(|_| read <= most))
}
